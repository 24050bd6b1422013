"""Runs a suite: one task after another on one device, each at its own risk.

All tasks share one executor, so that a worker is started, and the device measured, once. While a
task is searched on a GPU the next file is read beside it, since reading needs only the CPU.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from graphs.context import Listener
from graphs.executors import opened
from graphs.suite.one import Ground, OneFile
from graphs.suite.outcome import Outcome, Terms
from profiles.load import SearchProfile
from tools.evaluate.executor import Executor, PatientExecutor, StandingExecutor
from tools.nouns import Refusal, Task, TracePolicy

Begun = Callable[[Path], Listener | None]


async def run_suite(
    files: Sequence[Path],
    profile: SearchProfile | None,
    terms: Terms,
    ground: Ground,
    *,
    begun: Begun = lambda path: None,
) -> AsyncIterator[Outcome]:
    """Search every file, one after the other.

    Args:
        files: The tasks.
        profile: How much each search may spend; None measures only baselines.
        terms: Stand in every outcome.
        ground: Where it is run, and by whom.
        begun: Told when a file's turn comes; gives who listens to its search.

    Raises:
        EnvironmentLacksError: When this machine lacks what the target needs; else every failure
            is an outcome.
    """
    executor, target, rules = ground.executor, ground.target, ground.rules
    async with opened(executor, target, seed=terms.seed, rules=rules) as judge:
        ahead = await _ahead(judge, len(files), ground.ahead)
        readings = _Readings(judge, files, ahead=ahead)
        try:
            for number, path in enumerate(files):
                one = OneFile(judge, path, terms, ground)
                yield await one.run(readings.of(number), profile, begun(path))
        finally:
            await readings.aclose()


async def _ahead(judge: Executor, files: int, wished: bool | None) -> bool:
    """Whether work for the next files is done beside the present one; begins with it if so."""
    # On a CPU it would disturb the times.
    ahead = (await judge.hardware()).kind == "cuda" if wished is None else wished
    if ahead and isinstance(judge, StandingExecutor):
        # One reads the next file, one is the finalist's, and one may be lost.
        judge.stand_by(min(3, files + 1))
    return ahead


class _Readings:
    """Reads files, the next one beforehand where that disturbs nobody."""

    def __init__(self, judge: Executor, files: Sequence[Path], *, ahead: bool) -> None:
        self._judge, self._files, self._ahead = judge, files, ahead
        self._tasks: dict[int, asyncio.Task[Task | Refusal]] = {}

    def of(self, number: int) -> "asyncio.Task[Task | Refusal]":
        """The reading of one file; begins that of the next."""
        reading = self._begin(number)
        if self._ahead and number + 1 < len(self._files):
            self._begin(number + 1)
        return reading

    async def aclose(self) -> None:
        """End what was begun and is not wanted any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, number: int) -> "asyncio.Task[Task | Refusal]":
        if number not in self._tasks:
            self._tasks[number] = asyncio.create_task(_read(self._judge, self._files[number]))
        return self._tasks[number]


async def _read(judge: Executor, path: Path) -> Task | Refusal:
    if isinstance(judge, PatientExecutor):
        return await judge.read(path, TracePolicy())
    return await judge.trace(path, TracePolicy())
