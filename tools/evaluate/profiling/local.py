"""Profiles a candidate on this machine: counters and times, each with what keeps it away.

On a GPU both take seconds to start, so they start together; but the times are taken only when
nothing is counted any more. Whoever asks holds the device's lease.

`Standby` is Nsight Compute with a process under it that stands ready, as its start is what costs
most. ncu has started it behind the wall, it has imported torch, and it waits for a request without
touching the device. Nobody's candidate ever met another in it: each counting uses one up, and the
next one is started when a counting is over. Where it does not work, counting goes its usual way.
"""

import asyncio
import contextlib
import shutil
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kernelwright.tools.evaluate.messages import (
    Broken,
    OpenProfilerRequest,
    Profiled,
    ProfileRequest,
)
from kernelwright.tools.evaluate.profiling import nsight
from kernelwright.tools.evaluate.profiling.nsight import Counted, Order
from kernelwright.tools.evaluate.profiling.program import Program, stays_behind
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.keeper import Keeper
from kernelwright.tools.evaluate.sandbox.walls import Wall, standing
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError
from kernelwright.tools.languages import CompileFailure
from kernelwright.tools.languages.base.compile import cache_folder
from kernelwright.tools.profile.ncu_report import too_slow
from kernelwright.tools.tasks.sources.carried import elsewhere
from kernelwright.tools.types import Candidate, Missing, Profile, Task

ANEW = "search again on the device itself"


def not_asked(candidate: Candidate, why: str, remedy: str = ANEW) -> Profile:
    """A profile in which both steps are missing for one reason."""
    counters = Missing(step="counters", why=why, remedy=remedy)
    times = Missing(step="times", why=why, remedy=remedy)
    return Profile(candidate=candidate.id, missing=(counters, times))


class Waiting(NamedTuple):
    """A process under ncu that waits for its request."""

    order: Order
    program: Program
    behind: Wall

    def can_run(self, request: ProfileRequest) -> bool:
        """Whether it lives and may read what the request needs."""
        known = self.order.readable
        reads = (path for path in nsight.needed(request) if path not in known)
        inside = all(any(path.is_relative_to(folder) for folder in known) for path in reads)
        return self.program.alive and inside


class Standby:
    """Counts candidates one after another.

    Args:
        scratch: The folder of their folders.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._numbers = count()
        self._waiting: asyncio.Task[Waiting | None] | None = None
        self._closed = False

    def prepare(self, task: Task, rules: Rules) -> None:
        """Start in the background what will count a candidate of this task, if nothing waits."""
        if self._waiting is None and not self._closed:
            self._waiting = asyncio.create_task(self._start(task, rules))

    async def count(self, request: ProfileRequest) -> Counted:
        """What `nsight.count` finds, sooner where a process stood ready."""
        waiting = await self._taken()
        if waiting is not None and waiting.can_run(request):
            nsight.ask(waiting.order, request)
            found = await nsight.ended(
                waiting.order, waiting.program, nsight.own_names(request), waiting.behind
            )
            await _left(waiting)
            if nsight.worked(found) or found.missing == too_slow(waiting.order.limit_s):
                return found  # what took too long would do so again
        elif waiting is not None:
            await _left(waiting)
        return await nsight.count(request, self._scratch / "counted")

    async def aclose(self) -> None:
        """End what waits."""
        self._closed = True
        if (waiting := await self._taken()) is not None:
            await _left(waiting)

    async def _taken(self) -> Waiting | None:
        coming, self._waiting = self._waiting, None
        return None if coming is None else await coming

    async def _start(self, task: Task, rules: Rules) -> Waiting | None:
        """None where ncu is missing, cannot be started or works outside the wall only."""
        ncu, behind = nsight.find_ncu(), standing(rules, "cuda")
        if isinstance(ncu, Missing) or not stays_behind(ncu, behind):
            return None
        readable = (*elsewhere(task), cache_folder())
        folder = self._scratch / f"ready-{next(self._numbers)}"
        order = nsight.order_of(ncu, rules, readable, folder)
        try:
            return Waiting(order, await nsight.begun(order, behind), behind)
        except OSError:
            return None


async def _left(waiting: Waiting) -> None:
    await waiting.program.aclose()
    await asyncio.to_thread(shutil.rmtree, waiting.order.scratch, ignore_errors=True)


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
