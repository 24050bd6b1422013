"""Long work in a thread that learns when nobody waits for it any more.

A thread cannot be ended from outside, and a program waits for its threads: an interrupted one would
go on until the work is done. Whoever works for long asks `is_wanted` now and then.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

_unwanted: ContextVar[threading.Event | None] = ContextVar("unwanted", default=None)


class UnwantedError(Exception):
    """Ends work in a thread whose result nobody waits for; nobody sees it."""


async def in_thread(
    work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """What `asyncio.to_thread` does; where this is cancelled, the work is told."""
    unwanted = threading.Event()

    def told() -> Result:
        _unwanted.set(unwanted)
        return work(*args, **kwargs)

    try:
        return await asyncio.to_thread(told)
    except asyncio.CancelledError:
        unwanted.set()
        raise


def is_wanted() -> bool:
    """Whether somebody still waits for what this thread does; also so outside of `in_thread`."""
    unwanted = _unwanted.get()
    return unwanted is None or not unwanted.is_set()
