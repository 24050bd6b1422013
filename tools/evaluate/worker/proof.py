"""Whether a compiled candidate is right, and in which precision.

Draws of inputs in the order of the effort; what was not looked at is kept in words.
"""

import torch

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.evaluate.messages import JudgeRequest
from kernelwright.tools.evaluate.seeds import fresh_seed
from kernelwright.tools.evaluate.verify.bench import Draw
from kernelwright.tools.evaluate.verify.digits import Precision, by_source, measured
from kernelwright.tools.evaluate.verify.failures import RejectedError
from kernelwright.tools.evaluate.verify.harsh import harshest_first
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.precision import lower_precisions, task_precision
from kernelwright.tools.evaluate.verify.sentence import Sentence
from kernelwright.tools.evaluate.verify.trials import Trials, plan_runner
from kernelwright.tools.evaluate.verify.truth import UnverifiableError
from kernelwright.tools.evaluate.verify.turned import AS_TURNED, COARSER
from kernelwright.tools.evaluate.worker.station import Station
from kernelwright.tools.evaluate.worker.steps import Steps
from kernelwright.tools.tasks import RefusedError
from kernelwright.tools.types import Verdict, Verification


class Proof:
    """One candidate's trials.

    Args:
        station: The task on its device.
        request: What is judged.
        steps: Announces what runs.
    """

    def __init__(self, station: Station, request: JudgeRequest, steps: Steps) -> None:
        self._station, self._request, self._steps = station, request, steps
        self._rules = request.rules
        self._sentence = Sentence(station.bench)
        self._not_verified: list[str] = []
        self._precision = by_source(request.task, request.candidate)

    @property
    def others(self) -> list[str]:
        """Distributions beside the task's own that it was tried on."""
        return [name for name in self._sentence.distributions if name != "task"]

    def verify(self) -> Verification:
        """The verdict, with every figure that led to it."""
        try:
            self._try_draws()
        except RejectedError as found:
            return self._verification(found.verdict, found.reason)
        except UnverifiableError as error:
            return self._verification(Verdict.OUT_OF_MEMORY, f"not verified: {error}")
        except (torch.OutOfMemoryError, MemoryError):
            torch.cuda.empty_cache()
            words = "not verified: inputs, guarded copies and the truth do not fit into memory"
            return self._verification(Verdict.OUT_OF_MEMORY, words)
        except RefusedError as refused:
            return self._verification(Verdict.CRASHED, f"the reference itself failed: {refused}")
        if self._rules.has(Defence.NULLS):
            self._steps.begin("nulls")
            self._not_verified += self._station.nulls
        if off := self._rules.switched_off:
            self._not_verified.append(f"anything by {', '.join(off)}: switched off for a test")
        if self._request.effort != "certify":
            self._not_verified.append(f"distributions other than {self._used()}")
        beside = "" if not self._sentence.coarser else AS_TURNED
        return self._verification(
            Verdict.CORRECT, f"right on inputs drawn from {self._used()}{beside}"
        )

    def _try_draws(self) -> None:
        request, bench = self._request, self._station.bench
        poisoned = self._rules.has(Defence.POISON)
        memory = GuardedMemory(bench.device, bench.rules.guard_bytes, poisoned=poisoned)
        self._steps.begin("load")
        runner = plan_runner(bench, request.candidate, request.built, memory)
        trials = Trials(bench, memory, runner, self._steps.candidate_runs, keeps=True)
        trials.prepare()
        for number, draw in enumerate(self._draws()):
            self._steps.begin(f"verify {draw.distribution}")
            try:
                trials.run(
                    draw,
                    self._sentence,
                    twice=number == 0,
                    settle=self._steps.reference_runs,
                    weights=self._other_weights(number),
                    recycled=number % 2 == 1,  # as timed calls are; poison shows other things
                )
            except RefusedError as refused:
                if number == 0:
                    raise
                self._not_verified.append(f"{draw.distribution}: {refused}")
            if note := bench.truth.note:
                self._not_verified.append(note)
                bench.truth.note = ""
        self._not_verified += trials.skipped
        self._precision = self._measured(trials)

    def _measured(self, trials: Trials) -> Precision:
        """Its digits; a screening measures them only where the source gives a reason to."""
        request, bench = self._request, self._station.bench
        if not self._rules.has(Defence.PRECISION):
            return Precision(label=task_precision(request.task))
        if request.effort == "screen" and not lower_precisions(request.task, request.candidate):
            return self._as_turned(self._precision)
        self._steps.begin("digits")
        seed = fresh_seed(request.seed, "digits")
        found = measured(trials, bench, request.candidate, seed, self._steps.reference_runs)
        return self._as_turned(found)

    def _as_turned(self, found: Precision) -> Precision:
        """No finer label than that of PyTorch's own result which it was as close as."""
        unseen = found.label == task_precision(self._request.task)
        coarser = unseen and self._sentence.coarser
        return found.model_copy(update={"label": COARSER}) if coarser else found

    def _other_weights(self, number: int) -> int | None:
        """The module's own weights at first, others from then on."""
        if number == 0 or not self._rules.has(Defence.SETUP_TIMED):
            return None
        return fresh_seed(self._request.seed, "weights", number)

    def _draws(self) -> list[Draw]:
        """The task's own values, and others that suit it: one, two or all by effort."""
        ranked = harshest_first(self._request.task, self._rules)
        count = {"screen": 1, "precise": 2, "certify": len(ranked)}[self._request.effort]
        # Values must change in the same memory even where only the task's own will do.
        chosen = ["task", *(ranked[:count] or ["task"])]
        return [Draw(name, fresh_seed(self._request.seed, i)) for i, name in enumerate(chosen)]

    def _used(self) -> str:
        return ", ".join(dict.fromkeys(self._sentence.distributions))

    def _verification(self, verdict: Verdict, reason: str) -> Verification:
        sentence = self._sentence
        return Verification(
            verdict=verdict,
            reason=reason,
            error_ratio=sentence.error_ratio,
            errors=tuple(sentence.errors),
            allclose_1e4=sentence.allclose_1e4,
            allclose_1e2=sentence.allclose_1e2,
            precision=self._precision.label,
            effective_bits=self._precision.bits,
            apart=self._precision.apart,
            distributions=tuple(sentence.distributions),
            not_verified=tuple(dict.fromkeys(self._not_verified)),
        )
