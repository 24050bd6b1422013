"""Feels the loop's pulse: says when the page of everybody stood still, and whose fault it was.

A beat that comes late because the loop was busy is a fault of ours; one that comes late because
the machine gave the time to others, as to a search's own measurements, is not, and is told apart by
this process's own time. A full collection of Python's, which stops every thread, is named.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

from ui.chat.server_memory import Collections

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
