"""Measures a grid in this process, or shares it among GPUs, each seen by one process alone.

Such a process is `python -m kernelwright.ui.grid`: it reads a `GridShare` from its input, writes a
record a line, and ends with whoever began it. Shapes are marked by files that are created
exclusively, so a process takes the next one when it is done. A process that is lost costs the
shape that it had begun, which has no record then and is measured when the grid is resumed.
"""

import asyncio
import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TextIO

from kernelwright.graphs.gemm.runner import Grid, measure_grid
from kernelwright.graphs.gemm.tuning import Budget
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.gemm.record import GemmRecord, Terms, read
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import EnvironmentLacksError, Value
from kernelwright.ui.suite import Gpu, last_words, process_on
from kernelwright.ui.terminal.output import remarks

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class GridShare(Value):
    """The shapes of a grid, and under which terms they are measured.

    `known` is the file of what was measured before, `marks` the folder by which processes share
    the shapes; "" for none.
    """

    shapes: tuple[GemmShape, ...]
    terms: Terms
    budget: Budget
    seconds: float | None = None
    known: str = ""
    marks: str = ""

    @property
    def grid(self) -> Grid:
        """As a runner takes it."""
        return Grid(
            shapes=self.shapes,
            terms=self.terms,
            budget=self.budget,
            seconds=self.seconds,
            known=read(Path(self.known)) if self.known else (),
            marks=Path(self.marks) if self.marks else None,
        )


async def measured(share: GridShare) -> AsyncIterator[GemmRecord]:
    """Measure it here.

    Raises:
        EnvironmentLacksError: This machine lacks what it takes.
    """
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        rules, seed = Rules.of("library"), share.terms.seed
        judge = LocalExecutor.create("cuda", Path(scratch), seed=seed, rules=rules)
        try:
            judge.warm()
            async for record in measure_grid(judge, share.grid):
                yield record
        finally:
            await judge.aclose()


_Told = GemmRecord | str | None


async def measured_on(share: GridShare, gpus: Sequence[Gpu]) -> AsyncIterator[GemmRecord]:
    """Share it among GPUs.

    Raises:
        EnvironmentLacksError: Every process was lost before it measured anything.
    """
    told: asyncio.Queue[_Told] = asyncio.Queue()
    used, ends, count = gpus[: len(share.shapes)], [], 0
    with tempfile.TemporaryDirectory(prefix="kernelwright-grid-") as marks:
        shared = share.model_copy(update={"marks": marks})
        working = [asyncio.create_task(_part(shared, gpu, told)) for gpu in used]
        try:
            running = len(working)
            while running:
                item = await told.get()
                if isinstance(item, GemmRecord):
                    count += 1
                    yield item
                elif item is None:
                    running -= 1
                else:
                    ends.append(item)
                    remarks().print(item, markup=False)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
    if ends and not count:
        raise EnvironmentLacksError("; ".join(ends))


async def _part(share: GridShare, gpu: Gpu, told: "asyncio.Queue[_Told]") -> None:
    """What one GPU's process measures; how it ended where that was a loss."""
    try:
        with tempfile.TemporaryFile() as errors:
            async with process_on(gpu, "kernelwright.ui.grid", share, errors) as process:
                assert process.stdout is not None
                async for line in process.stdout:
                    await told.put(GemmRecord.model_validate_json(line))
                status = await process.wait()
            if status != 0:
                said = last_words(errors)
                await told.put(f"the process of {gpu.name} ended with status {status}{said}")
    finally:
        await told.put(None)


def main() -> None:
    """Measure the share; nothing else goes to the output."""
    # Killed or not, whoever began this takes it along.
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        share = GridShare.model_validate_json(sys.stdin.read())
        asyncio.run(_run(share, lines))


async def _run(share: GridShare, lines: TextIO) -> None:
    working = asyncio.ensure_future(_tell(share, lines))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, working.cancel)
    await asyncio.gather(working, return_exceptions=False)


async def _tell(share: GridShare, lines: TextIO) -> None:
    records = measured(share)
    async with aclosing(records):  # type: ignore[type-var]
        async for record in records:
            lines.write(record.model_dump_json() + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
