"""What is built in the background stands still while something is timed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.executors.local.workshop import Workshop
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing import baselines
from kernelwright.tools.types import Task, TracePolicy


def states(pids: tuple[int, ...]) -> set[str]:
    """The kernel's letters for what the processes do: T for stopped."""
    return {Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] for pid in pids}


async def until(holds: Callable[[], bool]) -> None:
    """A signal takes effect when its process has its turn."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.exhaustive
async def test_a_worker_in_the_background_stands_still_while_something_is_timed(
    tmp_path: Path, cpu: Hardware, short_rules: Rules
) -> None:
    shop = Workshop(cpu, tmp_path, seed=0, rules=short_rules, lease=None, spares=None)
    try:
        worker = await shop.keeper.apart("build")
        with shop.in_background(worker):
            await until(lambda: "T" not in states(worker.processes()))
            async with shop.undisturbed():
                await until(lambda: states(worker.processes()) == {"T"})
            await until(lambda: "T" not in states(worker.processes()))
        async with shop.undisturbed():
            await until(lambda: "T" not in states(worker.processes()))
        assert worker.alive
    finally:
        await shop.aclose()


ROW = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * {factor}, dim=-1)


def get_inputs():
    return [torch.randn(7, 129)]
"""


@pytest.mark.exhaustive
async def test_files_read_for_regions_leave_the_models_own_process_at_its_compiling(
    tmp_path: Path, cpu: Hardware, short_rules: Rules
) -> None:
    """The process that read a file compiles it for torch.compile; only the latest are kept."""
    paths = [tmp_path / f"{number}.py" for number in range(4)]
    for factor, path in enumerate(paths, start=2):
        path.write_text(ROW.format(factor=factor), encoding="utf-8")
    model, *regions = paths
    rules = short_rules.model_copy(update={"compile_ahead": True})
    executor = LocalExecutor(cpu, tmp_path / "scratch", seed=0, rules=rules)
    try:
        task = await executor.read(model, TracePolicy())
        assert isinstance(task, Task)
        (reader,) = executor._builder._readers.values()
        executor.compile_ahead(False)
        for path in regions:
            assert isinstance(await executor.read(path, TracePolicy()), Task)
        assert list(executor._builder._readers) == [str(model)]
        assert reader.alive
        await executor._builder.settled(task)
        assert executor._builder._complete  # and it came to its end
    finally:
        await executor.aclose()


class Kind:
    """A kind of vectors, whose test costs seconds."""

    def __init__(self, name: str, works: bool) -> None:
        self.name, self.works, self.asked = name, works, 0

    def __str__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        self.asked += 1
        return self.works


def test_only_the_widest_vectors_that_work_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpu_vec_isa

    kinds = [Kind("amx", True), Kind("avx512", False), Kind("avx2", True), Kind("sse", True)]
    monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", kinds)
    monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", lambda: ["avx512", "avx2", "sse"])
    monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", list)
    baselines.keep_to_oneself()
    assert [str(kind) for kind in cpu_vec_isa.valid_vec_isa_list()] == ["avx2"]
    assert [kind.asked for kind in kinds] == [0, 1, 1, 0]
    assert cpu_vec_isa.pick_vec_isa() is kinds[2]


@pytest.mark.parametrize(
    ("flags", "code", "works"),
    [
        ("-mavx2 -mfma", "#include <ATen/cpu/vec/vec.h>", True),
        ("-mavx2", "__m256 twice(__m256 x) { return _mm256_add_ps(x, x); }", False),
        (
            "-mavx2",
            "#include <immintrin.h>\n__m256 f(__m256 x) { return _mm256_add_ps(x, x); }",
            True,
        ),
        ("-mvectors-of-tomorrow", "#include <ATen/cpu/vec/vec.h>", False),
    ],
)
def test_vectors_work_where_the_compiler_knows_them(
    monkeypatch: pytest.MonkeyPatch, flags: str, code: str, works: bool
) -> None:
    from torch._inductor import cpu_vec_isa

    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", None)
    monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", list)
    baselines.keep_to_oneself()
    kind = cpu_vec_isa.VecAVX2()
    kind._arch_flags = flags
    assert kind.check_build(code) is works
