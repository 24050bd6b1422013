"""Keeps Python's collector of cycles from stopping the page.

A full collection looks at every object of the process and stops every thread of it meanwhile.
What this server imports, Chainlit, LangGraph and what they bring, is 800,000 objects that
live as long as the process: 150 to 600 ms a collection, and a page that stands still as long. So
the collector rests while they are imported; then they are put out of its sight, and only what
conversations make is looked at. Full collections of that come when nothing runs (`swept`), or by
Python's own rule where something always runs.

Not here: memory that is held on purpose, such as a conversation that somebody looks at.
"""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from kernelwright.tools import runtime as collector

# How many objects more than fewer make a young, and how many of those make an older collection:
# a message or a plan makes tens of thousands that are gone at once.
THRESHOLDS = (20_000, 20, 10)
SWEEP_S = 30.0


@contextlib.contextmanager
def imports_out_of_sight() -> Iterator[None]:
    """Import inside of this; afterwards what was made meanwhile is looked at by nobody."""
    try:
        with collector.imports_out_of_sight():
            yield
    finally:
        gc.set_threshold(*THRESHOLDS)


@contextlib.asynccontextmanager
async def swept(quiet: Callable[[], bool], every_s: float = SWEEP_S) -> AsyncIterator[None]:
    """Collect what conversations have left behind, now and then while `quiet` holds."""
    task = asyncio.create_task(_sweep(quiet, every_s))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _sweep(quiet: Callable[[], bool], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        if quiet():
            gc.collect()


@dataclass
class Collections:
    """How long collections took, in seconds of the monotonic clock; feel with `felt`."""

    longest_s: float = 0.0
    last_s: float = 0.0
    last_ended_s: float = 0.0
    _began_s: float = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Python calls this before and after each."""
        if phase == "start":
            self._began_s = time.monotonic()
        elif info["generation"] == 2:
            self.last_ended_s = time.monotonic()
            self.last_s = self.last_ended_s - self._began_s
            self.longest_s = max(self.longest_s, self.last_s)

    @contextlib.contextmanager
    def felt(self) -> Iterator["Collections"]:
        """Watch the collector."""
        gc.callbacks.append(self)
        try:
            yield self
        finally:
            gc.callbacks.remove(self)

    def since(self, began_s: float) -> float:
        """How long the last full collection took, if it ended after this moment; 0 if not."""
        return self.last_s if self.last_ended_s >= began_s else 0.0


BEAT_S = 0.02
# Above this a person notices.
STALL_S = 0.2
# A collection that is worth a line even where nobody noticed it.
LONG_S = 0.1

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def felt() -> AsyncIterator[None]:
    """Feel the pulse of the running loop; a long collection is told at the end."""
    with Collections().felt() as collections:
        task = asyncio.create_task(_beat(collections))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if collections.longest_s > LONG_S:
                took_ms = collections.longest_s * 1e3
                log.warning("the longest full collection took %.0f ms", took_ms)


async def _beat(collections: Collections) -> None:
    while True:
        began, worked = time.monotonic(), time.process_time()
        await asyncio.sleep(BEAT_S)
        late = time.monotonic() - began - BEAT_S
        if late > STALL_S:
            own = time.process_time() - worked
            log.warning("%s", stall_words(late, own, collections.since(began)))


def stall_words(late_s: float, own_s: float, collection_s: float) -> str:
    """A stall in a sentence."""
    words = f"the page stood still for {late_s * 1e3:.0f} ms, {own_s * 1e3:.0f} of them ours"
    collection = f"; a full collection took {collection_s * 1e3:.0f} ms of it"
    return words + (collection if collection_s else "")
