"""Candidates are compiled before they are asked about, on a GPU, and none of them twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.evaluate.executors.local import baselines as compiling
from kernelwright.tools.evaluate.executors.local.baselines import Compiling
from kernelwright.tools.evaluate.executors.local.workshop import Workshop
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import CompileFailure
from kernelwright.tools.types import Candidate, Verdict


class Compiler:
    """Says what it was asked for, and is done when it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ended: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, candidate: Candidate, **limits: object) -> CompileFailure:
        self.asked.append(candidate.id)
        try:
            await self.go.wait()
        finally:
            self.ended.append(candidate.id)
        return CompileFailure(
            verdict=Verdict.COMPILE_ERROR, message=candidate.id, log="", seconds=0.0
        )


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(compiling, "compile_candidate", made)
    return made


def on(device: str, scratch: Path) -> Compiling:
    hardware = hardware_profile(device).model_copy(update={"measured": True})
    return Compiling(
        Workshop(hardware, scratch, seed=0, rules=Rules(), lease=None, spares=None)
    )  # fmt: skip


async def test_those_that_come_later_are_compiled_with_the_first_and_once(
    compiler: Compiler, kernel: Callable[..., Candidate], tmp_path: Path
) -> None:
    first, second = kernel(), kernel(before="int unused = 0;")
    assert first.id != second.id
    ahead = on("h200", tmp_path)
    ahead.begin((first, second))
    ahead.begin((second,))
    asking = asyncio.create_task(ahead.of(first))
    while len(compiler.asked) < 2:  # noqa: ASYNC110 - they begin
        await asyncio.sleep(0)
    compiler.go.set()
    for candidate, found in ((first, await asking), (second, await ahead.of(second))):
        assert isinstance(found, CompileFailure)
        assert found.message == candidate.id
    assert compiler.asked == [first.id, second.id]


async def test_what_nobody_asks_about_ends_with_its_executor(
    compiler: Compiler, kernel: Callable[..., Candidate], tmp_path: Path
) -> None:
    ahead = on("h200", tmp_path)
    ahead.begin((kernel(),))
    while not compiler.asked:  # noqa: ASYNC110 - it begins
        await asyncio.sleep(0)
    await ahead.aclose()
    assert compiler.ended == compiler.asked


async def test_on_a_cpu_nothing_is_compiled_beside_a_timing(
    compiler: Compiler, kernel: Callable[..., Candidate], tmp_path: Path
) -> None:
    ahead, first, second = on("cpu", tmp_path), kernel(), kernel(before="int unused = 0;")
    ahead.begin((first, second))
    asking = asyncio.create_task(ahead.of(first))
    while len(compiler.asked) < 2:  # noqa: ASYNC110 - they begin
        await asyncio.sleep(0)
    assert not asking.done()
    compiler.go.set()
    assert isinstance(await asking, CompileFailure)
    assert compiler.ended == [first.id, second.id]
