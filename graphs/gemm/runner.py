"""Measures a grid, shape after shape on one device, and shares shapes among processes.

The next shape's task is read and its first candidates are written and compiled while the present
one is judged: that needs the CPU alone. Every shape ends with a record, what fails included, except
that a machine which lacks something is raised.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from kernelwright.graphs.gemm.tuning import Budget, Prepared, Tuning, prepare
from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.gemm.record import GemmRecord, Terms
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import EnvironmentLacksError

# How long one shape may take at most, whatever its budget: a judge that hangs is given up.
_GIVEN_UP_S = 180.0


@dataclass(frozen=True)
class Grid:
    """What is measured, and what it may cost.

    Attributes:
        shapes: In the order in which they are measured.
        terms: Stand in every record.
        budget: Of a shape.
        seconds: Of all of them: none is begun that would not end in time, going by those so far.
        known: What was measured before, for the settings that are tried first.
        marks: A folder by which several processes share the shapes; None for one process.
    """

    shapes: tuple[GemmShape, ...]
    terms: Terms
    budget: Budget
    seconds: float | None = None
    known: tuple[GemmRecord, ...] = ()
    marks: Path | None = None


class _Turns:
    """Gives out shapes, each to one process alone."""

    def __init__(self, grid: Grid) -> None:
        self._left, self._marks = iter(grid.shapes), grid.marks

    def next(self) -> GemmShape | None:
        """One that no process has begun; None when there is none."""
        return next((shape for shape in self._left if self._takes(shape)), None)

    def _takes(self, shape: GemmShape) -> bool:
        if self._marks is None:
            return True
        try:
            (self._marks / shape.name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


async def measure_grid(
    judge: Executor, grid: Grid, begun: Callable[[GemmShape], object] = lambda shape: None
) -> AsyncIterator[GemmRecord]:
    """Records, as they are made.

    Args:
        judge: Who judges, for as long as this runs.
        grid: The shapes.
        begun: Told when a shape's turn comes.

    Raises:
        EnvironmentLacksError: This machine lacks what it takes.
    """
    start_s = time.monotonic()
    measuring = _Measuring(judge, grid, await judge.hardware(), start_s)
    try:
        while (shape := measuring.next()) is not None:
            begun(shape)
            yield await measuring.record(shape)
    finally:
        await measuring.aclose()


class _Measuring:
    """A grid under way: the present shape, and the reading of the next."""

    def __init__(self, judge: Executor, grid: Grid, hardware: Hardware, start_s: float) -> None:
        self._judge, self._grid, self._hardware = judge, grid, hardware
        self._turns, self._known = _Turns(grid), list(grid.known)
        self._start_s, self._longest_s = start_s, 0.0
        self._coming = self._begin()

    def next(self) -> GemmShape | None:
        """The shape whose turn it is; None where there is none, or no time for one."""
        if self._coming is None:
            return None
        limit_s, spent_s = self._grid.seconds, time.monotonic() - self._start_s
        wanted_s = max(self._longest_s, self._grid.budget.seconds)
        return None if limit_s is not None and spent_s + wanted_s > limit_s else self._coming[0]

    async def record(self, shape: GemmShape) -> GemmRecord:
        """Measure the shape whose turn it is."""
        assert self._coming is not None
        began_s, (_, reading) = time.monotonic(), self._coming
        found = await self._measured(shape, reading)
        found = found.model_copy(update={"seconds": time.monotonic() - began_s})
        self._longest_s = max(self._longest_s, found.seconds)
        self._known.append(found)
        return found

    async def _measured(self, shape: GemmShape, reading: "asyncio.Task[Prepared]") -> GemmRecord:
        try:
            async with asyncio.timeout(_GIVEN_UP_S):
                prepared = await reading
                self._coming = self._begin()
                tuning = Tuning(self._judge, prepared, self._grid.terms, self._grid.budget)
                return await tuning.run()
        except EnvironmentLacksError:
            raise
        except TimeoutError:
            words = f"it was not done after {_GIVEN_UP_S:.0f} s"
        except Exception as error:  # ours, and still only this shape's
            words = f"{type(error).__name__}: {error}".splitlines()[0]
        if self._coming is not None and self._coming[1] is reading:
            self._coming = self._begin()
        return GemmRecord(shape=shape, terms=self._grid.terms, ended="failed", words=words)

    def _begin(self) -> "tuple[GemmShape, asyncio.Task[Prepared]] | None":
        shape = self._turns.next()
        return None if shape is None else (shape, asyncio.create_task(self._prepare(shape)))

    async def _prepare(self, shape: GemmShape) -> Prepared:
        known = tuple(self._known)
        found = await asyncio.to_thread(prepare, shape, self._grid.terms, self._hardware, known)
        self._judge.foresee([one.candidate for one in found.first])
        return found

    async def aclose(self) -> None:
        """End the reading that nobody waits for."""
        if self._coming is not None:
            self._coming[1].cancel()
            await asyncio.gather(self._coming[1], return_exceptions=True)
