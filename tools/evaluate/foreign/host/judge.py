"""Judges foreign code: a judge of our own, guests that it calls in, and the end of all of them.

One guest runs the foreign code, another the reference for timing; the judge is a worker of our own
that holds the truth, the clock and the verdict. A candidate's guest never outlives its question.
On a CPU the judge and the reference's guest stay for the next question; on a GPU, where memory
that was shared is only given back by ending, none does that heard a case, and others stand ready.
"""

from pathlib import Path

from kernelwright.tools.evaluate.finalists import cautious, suspicious
from kernelwright.tools.evaluate.foreign.host.guest_process import Guests
from kernelwright.tools.evaluate.foreign.host.judges import Judge, Judges
from kernelwright.tools.evaluate.messages import Broken, Judged, Lacking, Reply
from kernelwright.tools.evaluate.messages.requests import ForeignRequest
from kernelwright.tools.evaluate.rules import Defence, Rules, fresh_seed
from kernelwright.tools.evaluate.sandbox.bubblewrap import beside
from kernelwright.tools.evaluate.sandbox.walled import Ended
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError
from kernelwright.tools.types import (
    EnvironmentLacksError,
    Evaluation,
    Isolation,
    Verdict,
    Verification,
)


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
        readable = beside(request.task.source, request.task.path)
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
