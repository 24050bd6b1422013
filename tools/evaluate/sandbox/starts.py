"""Lets a few workers start at a time, in the order in which they were asked for.

A start keeps a processor busy for seconds. Of twenty that share two processors each takes as long
as all; one after the other they take no longer together, and half of them are ready in half
the time.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Starts:
    """A queue of those who want to start a worker. For one event loop.

    Args:
        at_once: How many start at the same time; as many as there are processors by default.
    """

    def __init__(self, at_once: int | None = None) -> None:
        self._slots = asyncio.Semaphore(at_once or os.cpu_count() or 1)
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return self._waiting

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One's turn to start a worker, first come, first served."""
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()
