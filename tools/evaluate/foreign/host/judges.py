"""Judges of foreign code: the one at work, and on a GPU the one that comes after it.

A judge is a worker of our own with a `GuestBroker` beside it, who answers its questions about
guests and brings them in from outside of all walls. On a GPU each judge takes one candidate, so the
next one is started while its predecessor is busy: it imports torch meanwhile and leaves the device
alone until it is asked.

Judges foreign code: a judge of our own, guests that it calls in, and the end of all of them.

One guest runs the foreign code, another the reference for timing; the judge is a worker of our own
that holds the truth, the clock and the verdict. A candidate's guest never outlives its question.
On a CPU the judge and the reference's guest stay for the next question; on a GPU, where memory
that was shared is only given back by ending, none does that heard a case, and others stand ready.
"""

import asyncio
import contextlib
import socket
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kernelwright.tools.evaluate.finalists import cautious, suspicious
from kernelwright.tools.evaluate.foreign.host.guest_process import ASLEEP, Guests
from kernelwright.tools.evaluate.foreign.messages import INQUIRY, GuestAnswer, GuestQuestion
from kernelwright.tools.evaluate.messages import Broken, ForeignRequest, Judged, Lacking, Reply
from kernelwright.tools.evaluate.rules import Defence, Rules, fresh_seed
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError, WorkerProcess
from kernelwright.tools.evaluate.wire import frame, receive
from kernelwright.tools.tasks.sources.carried import elsewhere
from kernelwright.tools.types import (
    EnvironmentLacksError,
    Evaluation,
    Isolation,
    Verdict,
    Verification,
)


class GuestBroker:
    """Serves one judge. `descriptor` is the judge's end.

    Args:
        guests: whom it may bring in.
    """

    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        self._ours, self._theirs = socket.socketpair()
        self._serving = asyncio.create_task(self._serve())

    @property
    def descriptor(self) -> int:
        """The judge's end, to be inherited by the judge."""
        return self._theirs.fileno()

    async def aclose(self) -> None:
        """Stop answering."""
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        self._theirs.close()

    async def _serve(self) -> None:
        reader, writer = await asyncio.open_connection(sock=self._ours)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    inquiry = INQUIRY.validate_json(await receive(reader))
                    finding = await self._find(inquiry)
                    writer.write(frame(finding.model_dump_json().encode()))
                    await writer.drain()
                    if inquiry.seat:
                        self._hand_over(inquiry)
        finally:
            writer.close()

    async def _find(self, inquiry: GuestQuestion) -> GuestAnswer:
        if inquiry.seat:
            await self._guests.seat(inquiry.guest)
            return GuestAnswer()
        guest = self._guests.named(inquiry.guest)
        if guest is None:
            raise ConnectionError(f"nobody is seated as {inquiry.guest}")
        if inquiry.stop:
            return GuestAnswer(ended=await guest.stop(inquiry.stop, inquiry.limit_s))
        if inquiry.pause:
            await guest.pause()
            return GuestAnswer()
        if inquiry.pause is False:
            return GuestAnswer(woke=guest.resume())
        return GuestAnswer(books=guest.books())

    def _hand_over(self, inquiry: GuestQuestion) -> None:
        """The judge's end of a guest's socket; a byte never meets a full buffer here."""
        guest = self._guests.named(inquiry.guest)
        assert guest is not None
        socket.send_fds(self._ours, [b"g"], [guest.descriptor])
        guest.handed_over()


class Judge(NamedTuple):
    """A worker that judges, and who answers its questions about guests."""

    worker: WorkerProcess
    broker: GuestBroker

    async def aclose(self) -> None:
        """End both."""
        await self.worker.aclose()
        await self.broker.aclose()


class Judges:
    """Starts judges and ends them.

    Args:
        scratch: the folder of their folders.
        device: what they work on.
        guests: whom their ushers may bring in.

    Attributes:
        started: How many were started up to now.
    """

    def __init__(self, scratch: Path, device: str, guests: Guests) -> None:
        self._scratch, self._device, self._guests = scratch, device, guests
        self._present: Judge | None = None
        self._next: asyncio.Task[Judge] | None = None
        self._rules = Rules()
        self._numbers = count()
        self.started = 0

    async def present(self, rules: Rules, readable: tuple[Path, ...]) -> Judge:
        """The judge that sits, or else the next one, who can read what is asked.

        Raises:
            WorkerBrokenError: none comes up.
        """
        if rules.has(Defence.SANDBOX) != self._rules.has(Defence.SANDBOX):
            await self.aclose()  # they sit behind another wall
        self._rules = rules
        if self._present is None and self._next is not None:
            # Shielded: one that is given up meanwhile must not stay half started.
            self._present = await asyncio.shield(self._next)
            self._next = None
        judge = self._present
        if judge is None or not _can_hear(judge, readable):
            await self.leave()
            judge = await self._start(readable)
        self._present = judge
        return judge

    def prepare(self, readable: tuple[Path, ...]) -> None:
        """Start the next one in the background, if there is none."""
        if self._next is None:
            self._next = asyncio.create_task(self._start(readable))

    async def leave(self) -> None:
        """End the judge at work."""
        judge, self._present = self._present, None
        if judge is not None:
            await judge.aclose()

    async def aclose(self) -> None:
        """End all of them."""
        coming, self._next = self._next, None
        if coming is not None:
            (judge,) = await asyncio.gather(coming, return_exceptions=True)
            if isinstance(judge, Judge):
                await judge.aclose()
        await self.leave()

    async def _start(self, readable: tuple[Path, ...]) -> Judge:
        self.started += 1
        broker = GuestBroker(self._guests)
        try:
            worker = await WorkerProcess.start(
                # Never another's folder, which may still be on its way out.
                self._scratch / "judge" / str(next(self._numbers)),
                self._rules,
                (broker.descriptor,),
                device=self._device,
                readable=readable,
                settings=ASLEEP,
            )
        except BaseException:
            await broker.aclose()
            raise
        return Judge(worker, broker)


def _can_hear(judge: Judge, readable: tuple[Path, ...]) -> bool:
    return judge.worker.alive and set(readable) <= set(judge.worker.readable)


class ForeignJudge:
    """The judge of foreign code and its guests, for one candidate at a time.

    Args:
        scratch: a folder for the processes' own.
        device: what they work on.
    """

    def __init__(self, scratch: Path, device: str) -> None:
        self._device = device
        self._guests = Guests(scratch, device)
        self._judges = Judges(scratch, device, self._guests)
        self._asked = 0

    @property
    def judges_started(self) -> int:
        """How often a judge had to be started up to now."""
        return self._judges.started

    async def judge(self, request: ForeignRequest) -> Evaluation:
        """The evaluation of foreign code; every failure of it is one.

        Args:
            request: what is asked; `broker` is filled in here.

        Raises:
            EnvironmentLacksError: this machine has not what the code needs, such as a GPU.
            WorkerBrokenError: the judge itself failed.
        """
        found = await self._once(request)
        if not request.rules.has(Defence.QUARANTINE) or not suspicious(found, request.rules):
            return found
        # Once more in fresh processes on other values; the worse one counts.
        await self.aclose()
        seed = fresh_seed(request.seed, "too good to be believed at once")
        return cautious(found, await self._once(request.model_copy(update={"seed": seed})))

    async def _once(self, request: ForeignRequest) -> Evaluation:
        self._asked += 1
        await self._guests.judged_by(request.rules)
        if self._asked == 1:
            self._guests.prepare()  # while the judge starts
        try:
            reply = await self._ask(request)
            guest = self._guests.named("candidate")
            isolation = guest.isolation if guest else _behind(request.rules, self._device)
        except BaseException:
            await self.aclose()
            raise
        await self._afterwards(reply)
        evaluation = _evaluation(request, reply)
        verification = evaluation.verification.model_copy(update={"isolation": isolation})
        return evaluation.model_copy(update={"verification": verification})

    async def aclose(self) -> None:
        """End the judges and every guest."""
        await self._judges.aclose()
        await self._guests.aclose()

    async def _ask(self, request: ForeignRequest) -> Reply | Ended:
        judge = await self._present(request)
        if self._asked > 1 and not request.compare_to:
            self._guests.spare_next = True
        asked = request.model_copy(update={"broker": judge.broker.descriptor})
        return await judge.worker.ask(asked, request.rules.reference_s)

    async def _present(self, request: ForeignRequest) -> Judge:
        """The judge, who can read what the task's file imports."""
        readable = elsewhere(request.task)
        judge = await self._judges.present(request.rules, readable)
        if self._asked > 1 and self._device == "cuda" and not request.compare_to:
            self._judges.prepare(readable)
        return judge

    async def _afterwards(self, reply: Reply | Ended) -> None:
        """Nothing of a candidate's stays, and of the others what is as good as new."""
        await self._guests.leave("candidate")
        if self._device == "cuda" or isinstance(reply, Ended) or reply.retire:
            await self._judges.leave()
            await self._guests.leave_all()


def _behind(rules: Rules, device: str) -> Isolation:
    """The wall that a guest would have had, had the source not been refused before."""
    return standing(rules, device).isolation


def _evaluation(request: ForeignRequest, reply: Reply | Ended) -> Evaluation:
    if isinstance(reply, Ended):
        return Evaluation(
            candidate=request.foreign.name,
            verification=Verification(
                verdict=Verdict.CRASHED, reason=f"the judge of foreign code {reply.words}"
            ),
        )
    if isinstance(reply.answer, Lacking):
        raise EnvironmentLacksError(reply.answer.words)
    if isinstance(reply.answer, Broken):
        raise WorkerBrokenError(f"{reply.answer.words}\n{reply.answer.detail}")
    if not isinstance(reply.answer, Judged):
        raise WorkerBrokenError(f"a judge answered {reply.answer.kind!r} to another question")
    return reply.answer.evaluation
