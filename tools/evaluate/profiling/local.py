"""Profiles a candidate on this machine: counters and times, each with what keeps it away.

On a GPU both take seconds to start, so they start together; but the times are taken only when
nothing is counted any more. Whoever asks holds the device's lease.
"""

import asyncio
import contextlib
import time

from kernelwright.tools.evaluate.messages import (
    Broken,
    OpenProfilerRequest,
    Profiled,
    ProfileRequest,
)
from kernelwright.tools.evaluate.profiling.absent import not_asked
from kernelwright.tools.evaluate.profiling.nsight import Counted
from kernelwright.tools.evaluate.profiling.standby import Standby
from kernelwright.tools.evaluate.sandbox.ended import Ended
from kernelwright.tools.evaluate.sandbox.keeper import Keeper
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError
from kernelwright.tools.languages import CompileFailure
from kernelwright.tools.types import Candidate, Missing, Profile


async def profile_here(
    request: ProfileRequest, judges: Keeper, aside: Keeper, counter: Standby
) -> Profile:
    """Everything that can be measured of one candidate.

    Args:
        request: What to profile.
        judges: The judge's worker, which times kernels on a CPU.
        aside: A worker beside it, which CUPTI may slow down.
        counter: Calls Nsight Compute.
    """
    start = time.perf_counter()
    if request.hardware.kind == "cuda":
        counted, _ = await asyncio.gather(
            counter.count(request), _open(aside, request.rules.profile_s)
        )
        timed = await _times(request, aside)
    else:
        counted, timed = Counted(), await _times(request, judges)
    missing = (counted.missing or timed.uncounted, timed.missing)
    return Profile(
        candidate=request.candidate.id,
        times=timed.times,
        counters=counted.counters,
        rules=counted.rules,
        host=timed.host,
        launches=timed.launches,
        missing=tuple(item for item in missing if item is not None),
        seconds=time.perf_counter() - start,
        outside=counted.outside,
    )


def not_profiled(candidate: Candidate, failed: CompileFailure) -> Profile:
    """What does not compile has nothing to measure."""
    return not_asked(candidate, failed.message, "see its verdict")


async def _open(aside: Keeper, limit_s: float) -> None:
    """Make CUPTI ready; whoever asks for times is told if that went wrong."""
    with contextlib.suppress(WorkerBrokenError):
        await aside.ask(OpenProfilerRequest(), limit_s)


async def _times(request: ProfileRequest, keeper: Keeper) -> Profiled:
    reply = await keeper.ask(request, request.rules.profile_s)
    if isinstance(reply, Ended):
        why = f"the profiled process {reply.words}"
        missing = Missing(step="times", why=why, remedy="none is needed: the next one has another")
        return Profiled(missing=missing)
    if isinstance(reply.answer, Profiled):
        return reply.answer
    detail = reply.answer.words if isinstance(reply.answer, Broken) else reply.answer.kind
    raise WorkerBrokenError(f"a worker that was to profile answered: {detail}")
