"""The limit that a person set: what is under way when it is over is ended.

Only of a search whose seconds hold everything, on this machine: of a judge far away nobody knows
when it will answer. What was cut off is decided once, so that a resume does not try it again and a
replay knows of it; a search that goes on after its end, with more seconds, tries it anew.

Not covered: reading the file, eager PyTorch's own time and the first candidate, without which there
would be nothing to tell.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kernelwright.graphs.search.context import SearchContext
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.types import Candidate, Effort

# What ends by itself at the limit gets so long to say so.
_GRACE_S = 0.5
# A certification that began in time may end so much later, as a part of the limit: what it would
# leave unsettled otherwise is all that the seconds were spent on.
_LATE_SHARE = 0.25

Answer = TypeVar("Answer")


def latest_s(profile: SearchProfile) -> float:
    """When a certification that began in time is to end, in seconds after the file was read."""
    return (1 + _LATE_SHARE) * profile.seconds


def certifying_left_s(context: SearchContext) -> float | None:
    """Seconds until a certification that begins now is to end; None without a limit."""
    left_s = context.left_s
    return None if left_s is None else left_s + latest_s(context.profile) - context.profile.seconds


async def until_the_limit(
    context: SearchContext, work: Callable[[], Awaitable[Answer]], effort: Effort = "screen"
) -> Answer | None:
    """What comes of the work; None where the limit ended it."""
    left_s = certifying_left_s(context) if effort == "certify" else context.left_s
    if left_s is None:
        return await work()
    ending = asyncio.timeout(max(0.0, left_s) + _GRACE_S)
    try:
        async with ending:
            return await work()
    except TimeoutError:
        if not ending.expired():
            raise
        return None


async def unless_cut(
    context: SearchContext,
    candidate: Candidate,
    effort: Effort,
    work: Callable[[], Awaitable[Answer]],
) -> Answer | None:
    """What comes of a judgement; None where the limit ended it, now or in an earlier session.

    Nothing begins behind the limit.
    """
    key, left_s = f"cut:{effort}:{candidate.id}:{context.laps}", context.left_s
    if context.decided(key) is not None:
        return None
    found = None
    if left_s is None or left_s > 0.0:
        found = await until_the_limit(context, work, effort)
    if found is None:
        context.decide(key, lambda: str(True))
    return found
