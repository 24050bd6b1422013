"""What an answer is worth: judged by any executor, and asked about only once.

An answer becomes a candidate by the contract and goes up the executor's ladder; what breaks the
contract is a verdict like any other and costs no device time. Speed is told against the fastest
baseline that was measured. Verdicts are kept in a file, line by line as they come, so that a run
that is killed judges nothing twice. While one batch of answers is judged, the next may be compiled:
`foresee` begins with that.
"""

import asyncio
import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from kernelwright.tools.candidates import ContractError
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.learning.contract.launches import Interface, candidate_of, interface
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    LanguageName,
    Refusal,
    Task,
    Value,
    Verdict,
)

# What proves that somebody tried to fool the judge, or was too fast to be true.
CHEATS = frozenset({Verdict.CHEATING, Verdict.BELOW_FLOOR, Verdict.STALE_RESULT})
_LOG_CHARACTERS = 1500


class Worth(Value):
    """What the judge said of one answer; `speedup` is best baseline / answer, if it is correct."""

    verdict: Verdict
    reason: str = ""
    median_ms: float | None = None
    baseline_ms: float | None = None
    candidate: str = ""

    @property
    def speedup(self) -> float | None:
        """None for what is not correct, or was not timed."""
        if self.verdict is not Verdict.CORRECT or not self.median_ms or not self.baseline_ms:
            return None
        return self.baseline_ms / self.median_ms

    @property
    def is_correct(self) -> bool:
        """Whether it may be learnt from."""
        return self.verdict is Verdict.CORRECT


class Known:
    """Verdicts by task and answer, in a file that grows by a line each.

    Args:
        path: The file; made when the first verdict is kept. None keeps them in memory alone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._of: dict[str, Worth] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            key, worth = json.loads(line)
            self._of[key] = Worth.model_validate(worth)
        except ValueError:
            return  # the line that a kill cut off

    def get(self, key: str) -> Worth | None:
        """The verdict under a key; None for a new one."""
        return self._of.get(key)

    def keep(self, key: str, worth: Worth) -> None:
        """Write a verdict down."""
        self._of[key] = worth
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, worth.model_dump(mode="json")]) + "\n")


class Judge:
    """Judges answers in the short contract.

    Args:
        executor: Who compiles, verifies and times, and answers within the call. One whose devices
            are elsewhere is asked for all answers to a task at once, and spreads them.
        language: What answers are written in.
        known: Where verdicts are kept.
        baselines: Where the times of baselines are kept, which several runs may share.
        device: What it judges on; what is kept is of that device alone.
    """

    def __init__(
        self,
        executor: Executor,
        language: LanguageName,
        known: Known | None = None,
        baselines: Known | None = None,
        device: str = "",
    ) -> None:
        self._executor, self._language = executor, language
        self._known, self._device = known or Known(None), device
        self._baselines = baselines or Known(None)

    @property
    def language(self) -> LanguageName:
        """What answers are written in."""
        return self._language

    def foresee(self, task: Task, answers: Sequence[str]) -> None:
        """Begin to compile what will be judged soon."""
        names = interface(task)
        found = [] if names is None else [self._candidate(answer, names) for answer in answers]
        new = [
            item
            for item, answer in zip(found, answers, strict=False)
            if isinstance(item, Candidate) and self._known.get(self._key(task, answer)) is None
        ]
        self._executor.foresee(new)

    async def judged(
        self, task: Task, answers: Sequence[str], *, eager_only: bool = True
    ) -> list[Worth]:
        """What every answer is worth, in order; equal answers are judged once.

        Args:
            task: What they are for.
            answers: As they were written.
            eager_only: Whether eager alone is the baseline; it is measured once something is right.
        """
        if self._executor.capabilities.remote:
            different = dict.fromkeys(answers)
            await asyncio.gather(*(self._one(task, answer) for answer in different))
        found = [await self._one(task, answer) for answer in answers]
        if not any(worth.is_correct for worth in found):
            return found
        baseline_ms = await self._baseline_ms(task, eager_only=eager_only)
        return [worth.model_copy(update={"baseline_ms": baseline_ms}) for worth in found]

    async def _baseline_ms(self, task: Task, *, eager_only: bool) -> float | None:
        """The fastest baseline of this session; None where PyTorch itself runs none."""
        key = self._key(task, f"baseline {eager_only}")
        known = self._baselines.get(key)
        if known is None:
            known = _fastest(await self._executor.baselines(task, eager_only=eager_only))
            self._baselines.keep(key, known)
        return known.baseline_ms

    async def _one(self, task: Task, answer: str) -> Worth:
        key = self._key(task, answer)
        worth = self._known.get(key)
        if worth is None:
            worth = await self._worth(task, answer)
            self._known.keep(key, worth)
        return worth

    async def _worth(self, task: Task, answer: str) -> Worth:
        names = interface(task)
        if names is None:
            return Worth(verdict=Verdict.INVALID_PLAN, reason="the task has no short contract")
        found = self._candidate(answer, names)
        if isinstance(found, Worth):
            return found
        if self._executor.capabilities.remote:
            # Answers from afar are kept by the candidate's name, and one code may serve two tasks.
            name = sha256(f"{task.digest} {found.id}".encode()).hexdigest()[:12]
            found = found.model_copy(update={"id": name})
        evaluation = await self._executor.evaluate(task, found, "screen")
        log = evaluation.compiler_log[-_LOG_CHARACTERS:]
        reason = "\n".join(filter(None, (evaluation.verification.reason, log)))
        return Worth(
            verdict=evaluation.verdict,
            reason=reason,
            median_ms=evaluation.median_ms,
            candidate=found.id,
        )

    def _candidate(self, answer: str, names: Interface) -> Candidate | Worth:
        try:
            return candidate_of(answer, names, self._language)
        except (ContractError, ValueError, RecursionError) as error:
            return Worth(verdict=Verdict.INVALID_PLAN, reason=str(error)[:_LOG_CHARACTERS])

    def _key(self, task: Task, answer: str) -> str:
        text = "\x1f".join((task.digest, self._language, self._device, answer))
        return sha256(text.encode()).hexdigest()[:32]


def _fastest(baselines: Baselines | Refusal) -> Worth:
    """The fastest of them, as it is kept; without a time where PyTorch itself runs none."""
    try:
        best = None if isinstance(baselines, Refusal) else baselines.best.measurement
    except LookupError:
        best = None
    return Worth(verdict=Verdict.CORRECT, baseline_ms=best.median_ms if best else None)
