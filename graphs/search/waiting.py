"""Waiting for a judge far away: for a while within a session, then by ending it.

A client that waits for a person's answer does its own waiting.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kernelwright.graphs.run_view.events import Awaited
from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.types.awaiting import AwaitingError

POLL_S = 1.0

Answer = TypeVar("Answer")


async def patiently(context: SearchContext, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until there is an answer, and no longer than the session's patience lasts.

    Raises:
        AwaitingError: When patience ran out.
    """
    give_up = time.monotonic() + context.patience_s
    with context.at_the_judge():
        while True:
            try:
                return await ask()
            except AwaitingError as awaited:
                if time.monotonic() >= give_up:
                    raise
                _tell(context, awaited)
            await asyncio.sleep(POLL_S)


def _tell(context: SearchContext, awaited: AwaitingError) -> None:
    """Say once what is awaited."""
    paths = tuple(str(path) for path in awaited.paths)
    event = Awaited(words=awaited.words, paths=paths)
    context.emit(event, key=f"awaited:{' '.join(paths)}")
