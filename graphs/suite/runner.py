"""Runs a suite: one task after another on one device, each at its own risk.

All tasks share one executor, so that a worker is started, and the device measured, once. While a
task is searched on a GPU the next file is read beside it, since reading needs only the CPU. What
takes seconds once, the judge's worker and a search's imports, is begun while the first is read.

Several processes may share the files of one suite. They mark what they take by files that are
created exclusively, which is atomic among processes and needs nobody who answers: a process that
ends at any moment keeps the others from nothing but the file that it had begun.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Protocol

from kernelwright.graphs.search.context import Listener
from kernelwright.graphs.search.run_terms import opened
from kernelwright.graphs.search.session import import_beforehand
from kernelwright.graphs.suite.one import Ground, OneFile
from kernelwright.graphs.suite.outcome import Outcome, Terms
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import Refusal, Task, TracePolicy


class Turns(Protocol):
    """Gives out files."""

    def begin(self) -> Path | None:
        """The next file to do, which is this process's from now on; None when there is none."""
        ...

    def ahead(self) -> Path | None:
        """The file that is likely to be begun next, to be read beforehand; None when none is."""
        ...


class InOrder:
    """One file after the other, for one process."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._left = deque(files)

    def begin(self) -> Path | None:
        """The next one."""
        return self._left.popleft() if self._left else None

    def ahead(self) -> Path | None:
        """The one after it."""
        return self._left[0] if self._left else None


class Shared:
    """Each file for the process that comes first.

    Who reads a file ahead sets it aside, so that no other one reads it too. It is no promise: when
    nothing else is left a process begins what another one has set aside and not begun, which may
    be busy with a slow file, or dead.

    Args:
        files: All files of the suite, the same in every process.
        marks: A folder for the marks, empty at first.
    """

    def __init__(self, files: Sequence[Path], marks: Path) -> None:
        self._files, self._marks = tuple(files), marks
        self._aside: tuple[int, ...] = ()

    def begin(self) -> Path | None:
        """What this process has set aside, else what nobody has, else what another one has."""
        everything = range(len(self._files))
        free = [number for number in everything if not self._is_marked(number, "aside")]
        wanted, self._aside = (*self._aside, *free, *everything), ()
        number = next((number for number in wanted if self._mark(number, "begun")), None)
        return None if number is None else self._files[number]

    def ahead(self) -> Path | None:
        """Set the next one aside that nobody has begun or set aside."""
        for number, path in enumerate(self._files):
            if not self._is_marked(number, "begun") and self._mark(number, "aside"):
                self._aside = (number,)
                return path
        return None

    def _is_marked(self, number: int, how: str) -> bool:
        return self._place(number, how).exists()

    def _mark(self, number: int, how: str) -> bool:
        """Whether this process is the one that marks it."""
        try:
            self._place(number, how).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _place(self, number: int, how: str) -> Path:
        return self._marks / f"{number}.{how}"


Begun = Callable[[Path], Listener | None]


async def run_suite(
    files: Sequence[Path],
    profile: SearchProfile | None,
    terms: Terms,
    ground: Ground,
    *,
    begun: Begun = lambda path: None,
    marks: Path | None = None,
) -> AsyncIterator[Outcome]:
    """Search every file, one after the other.

    Args:
        files: The tasks.
        profile: How much each search may spend; None measures only baselines.
        terms: Stand in every outcome.
        ground: Where it is run, and by whom.
        begun: Told when a file's turn comes; gives who listens to its search.
        marks: Where the processes that share these files mark them; without it all are done here.

    Raises:
        EnvironmentLacksError: When this machine lacks what the target needs; else every failure
            is an outcome.
    """
    executor, target, rules = ground.executor, ground.target, ground.rules
    async with opened(executor, target, seed=terms.seed, rules=rules) as judge:
        ahead = await _ahead(judge, len(files), ground.ahead)
        turns: Turns = InOrder(files) if marks is None else Shared(files, marks)
        readings = _Readings(judge)
        if judge.capabilities.reads_apart:
            judge.warm()
        importing = asyncio.create_task(_import(ground, wanted=profile is not None))
        try:
            while (path := turns.begin()) is not None:
                one = OneFile(judge, path, terms, ground)
                reading = readings.of(path)
                if ahead and (coming := turns.ahead()) is not None:
                    readings.of(coming)
                yield await one.run(_ready(reading, importing), profile, begun(path))
        finally:
            importing.cancel()
            await asyncio.gather(importing, readings.aclose(), return_exceptions=True)


async def _ready(
    reading: "asyncio.Task[Task | Refusal]", importing: "asyncio.Task[None]"
) -> Task | Refusal:
    """What was read, once a search could begin with it."""
    read = await reading
    await asyncio.shield(importing)  # the next file waits for it too
    return read


async def _import(ground: Ground, *, wanted: bool) -> None:
    """Import what searches need where they are wanted, and not made of other agents."""
    if wanted and ground.make_agents is None:
        await asyncio.to_thread(import_beforehand, ground.target, ground.models)


async def _ahead(judge: Executor, files: int, wanted: bool | None) -> bool:
    """Whether work for the next files is done beside the present one; begins with it if so."""
    # On a CPU it would disturb the times.
    ahead = (await judge.hardware()).kind == "cuda" if wanted is None else wanted
    if ahead and judge.capabilities.stands_ready:
        # One reads the next file, one is the finalist's, and one may be lost.
        judge.stand_by(min(3, files + 1))
    return ahead


class _Readings:
    """Readings of files, each begun when it is first asked for."""

    def __init__(self, judge: Executor) -> None:
        self._judge = judge
        self._tasks: dict[Path, asyncio.Task[Task | Refusal]] = {}

    def of(self, path: Path) -> "asyncio.Task[Task | Refusal]":
        """The reading of a file."""
        if path not in self._tasks:
            self._tasks[path] = asyncio.create_task(_read(self._judge, path))
        return self._tasks[path]

    async def aclose(self) -> None:
        """End what was begun and is not wanted any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _read(judge: Executor, path: Path) -> Task | Refusal:
    if judge.capabilities.reads_apart:
        return await judge.read(path, TracePolicy())
    return await judge.trace(path, TracePolicy())
