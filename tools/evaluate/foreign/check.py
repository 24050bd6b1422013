"""Judges foreign code: starts two guests and a judge, introduces them, and ends them all.

One guest runs the foreign code, another the reference for timing; the judge is a worker of our own
that holds the truth, the clock and the verdict. None of them outlives the question.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tools.evaluate.foreign.host.guest_process import GuestProcess
from tools.evaluate.foreign.host.usher import Usher
from tools.evaluate.foreign.request import Ends, ForeignRequest
from tools.evaluate.messages import Broken, Judged
from tools.evaluate.process.beside import beside
from tools.evaluate.process.ended import Ended
from tools.evaluate.process.worker import WorkerBrokenError, WorkerProcess
from tools.evaluate.rules import Rules
from tools.nouns import Evaluation, Isolation, Verdict, Verification, WallKind

ISOLATION = Isolation(
    kind=WallKind.NONE,
    words="a guest process apart from truth, clock and verdict; not isolated from this machine",
)


async def judge_foreign(request: ForeignRequest, scratch: Path) -> Evaluation:
    """The evaluation of foreign code; every failure of it is one.

    Args:
        request: what is asked; `ends` is filled in here.
        scratch: a folder for the processes' own.

    Raises:
        WorkerBrokenError: the judge itself failed.
    """
    device = request.hardware.kind
    async with _guests(scratch, request.rules, device) as (candidate, reference):
        isolation = candidate.isolation
        usher = Usher({"candidate": candidate, "reference": reference})
        ends = Ends(
            candidate=candidate.descriptor,
            reference=reference.descriptor,
            usher=usher.descriptor,
        )
        try:
            evaluation = await _asked(request.model_copy(update={"ends": ends}), scratch)
        finally:
            await usher.aclose()
    verification = evaluation.verification.model_copy(update={"isolation": isolation})
    return evaluation.model_copy(update={"verification": verification})


@asynccontextmanager
async def _guests(
    scratch: Path, rules: Rules, device: str
) -> AsyncIterator[tuple[GuestProcess, GuestProcess]]:
    async with (
        _guest(scratch / "guest", rules, device) as candidate,
        _guest(scratch / "guest-of-the-reference", rules, device) as reference,
    ):
        yield candidate, reference


@asynccontextmanager
async def _guest(scratch: Path, rules: Rules, device: str) -> AsyncIterator[GuestProcess]:
    guest = await GuestProcess.start(scratch, rules, device)
    try:
        yield guest
    finally:
        await asyncio.shield(guest.aclose())


async def _asked(request: ForeignRequest, scratch: Path) -> Evaluation:
    assert request.ends is not None
    ends = request.ends
    inherited = (ends.candidate, ends.reference, ends.usher)
    worker = await WorkerProcess.start(
        scratch / "judge",
        request.rules,
        inherited,
        device=request.hardware.kind,
        readable=beside(request.task.source, request.task.path),
    )
    try:
        reply = await worker.ask(request, request.rules.reference_s)
    finally:
        await worker.aclose()
    if isinstance(reply, Ended):
        return Evaluation(
            candidate=request.foreign.name,
            verification=Verification(
                verdict=Verdict.CRASHED, reason=f"the judge of foreign code {reply.words}"
            ),
        )
    if isinstance(reply.answer, Broken):
        raise WorkerBrokenError(f"{reply.answer.words}\n{reply.answer.detail}")
    if not isinstance(reply.answer, Judged):
        raise WorkerBrokenError(f"a judge answered {reply.answer.kind!r} to another question")
    return reply.answer.evaluation
