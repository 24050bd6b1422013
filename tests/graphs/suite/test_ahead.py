"""Work for the next files beside the present one changes no outcome, and leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

from kernelwright.graphs.suite import Ground, Outcome, Terms, run_suite
from kernelwright.tools.evaluate.executors.base.executor import Capabilities
from kernelwright.tools.evaluate.executors.local import baselines
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import detect
from kernelwright.tools.types import Refusal, Task, TracePolicy

RULES = Rules(
    precise_s=0.02, calibrate_s=0.02, pairs_min=3, pairs_max=5, warm_up_s=0.0, audit_s=0.2
)
GOOD = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1) - x


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""
FILES = {
    "1_good.py": GOOD,
    "2_crashing.py": f"import ctypes\nctypes.string_at(0)\n{GOOD}",
    "3_good.py": GOOD.replace("relu", "tanh"),
}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    monkeypatch.setitem(baselines.STANDARD, "cpu", ("eager",))
    folder = tmp_path / "files"
    folder.mkdir()
    for name, source in FILES.items():
        (folder / name).write_text(source)
    return tuple(folder / name for name in FILES)


@pytest_asyncio.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[[str], LocalExecutor]]:
    """Executors with folders of their own, whose processes name these."""
    made = []
    device = detect("cpu").model_copy(update={"measured": True, "bandwidth_gb_s": 1e6})

    def another(name: str) -> LocalExecutor:
        made.append(LocalExecutor(device, tmp_path / name, seed=3, rules=RULES))
        return made[-1]

    yield another
    for executor in made:
        await executor.aclose()


def alive(scratch: Path) -> list[str]:
    """Command lines of processes that were given a place in a folder."""
    lines = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                line = (place / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            lines += [line] if str(scratch) in line else []
    return lines


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
async def test_a_suite_that_works_ahead_has_the_outcomes_of_one_that_does_not(
    suite: tuple[Path, ...], make: Callable[[str], LocalExecutor], terms: Terms, tmp_path: Path
) -> None:
    found: dict[bool, list[Outcome]] = {}
    for ahead in (False, True):
        ground = Ground("cpu", tmp_path, executor=make(f"ahead-{ahead}"), ahead=ahead)
        found[ahead] = [item async for item in run_suite(suite, None, terms, ground)]
    for one, other in zip(found[False], found[True], strict=True):
        assert (one.file, one.ended, one.words) == (other.file, other.ended, other.words)
        assert one.badges == other.badges
        assert [name for name, _ in one.baselines_ms] == [name for name, _ in other.baselines_ms]
    assert [item.ended for item in found[True]] == ["baselines", "refused", "baselines"]
    assert "segmentation fault" in found[True][1].words
    assert (tmp_path / "ahead-True" / "spares").is_dir()
    assert not (tmp_path / "ahead-False" / "spares" / "spare-1").exists()


async def test_an_interrupted_suite_leaves_no_process(
    suite: tuple[Path, ...], make: Callable[[str], LocalExecutor], terms: Terms, tmp_path: Path
) -> None:
    executor = make("interrupted")
    ground = Ground("cpu", tmp_path, executor=executor, ahead=True)
    begun = asyncio.Event()

    async def work() -> None:
        async for _ in run_suite(suite, None, terms, ground, begun=lambda path: begun.set()):
            pass

    working = asyncio.create_task(work())
    await begun.wait()
    while not alive(executor.scratch):  # noqa: ASYNC110 - processes come up
        await asyncio.sleep(0.05)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await executor.aclose()
    assert working.cancelled()
    async with asyncio.timeout(120):
        while alive(executor.scratch):  # noqa: ASYNC110 - the kernel takes them away
            await asyncio.sleep(0.05)


async def test_a_file_that_hangs_while_it_is_read_ahead_costs_only_itself(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    @dataclass
    class Patient(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(reads_apart=True)

        def warm(self) -> None: ...

        async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
            if path.name.startswith("2"):
                await asyncio.sleep(3600)
            found: Task = toy.TASK
            return found

        async def audit(self, task: Task) -> Task | Refusal:
            return task

    ground = Ground("cpu", tmp_path, executor=Patient(), besides_s=2.0)
    kept = [item async for item in run_suite(files, None, terms, replace(ground, ahead=True))]
    assert [item.ended for item in kept] == ["baselines", "timed_out", "baselines"]
