"""Feels the loop's pulse: says when the page of everybody stood still, and whose fault it was.

A beat that comes late because the loop was busy is a fault of ours; one that comes late because
the machine gave the time to others, as to a search's own measurements, is not, and is told apart by
this process's own time.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

BEAT_S = 0.02
# Above this a person notices.
STALL_S = 0.2

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def felt() -> AsyncIterator[None]:
    """Feel the pulse of the running loop."""
    task = asyncio.create_task(_beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _beat() -> None:
    while True:
        began, worked = time.monotonic(), time.process_time()
        await asyncio.sleep(BEAT_S)
        late = time.monotonic() - began - BEAT_S
        if late > STALL_S:
            own = time.process_time() - worked
            log.warning(
                "the page stood still for %.0f ms, %.0f of them ours", late * 1e3, own * 1e3
            )
