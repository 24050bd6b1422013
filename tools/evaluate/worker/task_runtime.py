"""One task in one worker: its reference, timing harness and baselines, each made when needed.

`Steps` is what a worker says meanwhile: what runs now, on whose account, how long. A step that does
not come back in time, or takes its worker along, is told by its last words.
"""

from collections.abc import Callable
from functools import cached_property

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates.plan.vocabulary import ADMITTED
from kernelwright.tools.evaluate.messages import JudgeRequest, Stage
from kernelwright.tools.evaluate.process_setup import Meter, no_new_processes
from kernelwright.tools.evaluate.profiling.coverage import dispatched
from kernelwright.tools.evaluate.rules import Rules, fresh_seed
from kernelwright.tools.evaluate.timing.baselines import MODES, BaselineCalls
from kernelwright.tools.evaluate.timing.harness import Harness
from kernelwright.tools.evaluate.verify.audit.findings import Findings, find, forward_s
from kernelwright.tools.evaluate.verify.measured_precision import times_eager
from kernelwright.tools.evaluate.verify.precision import may_be_coarser
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import UnverifiableError
from kernelwright.tools.types import Dispatched, Task, refuse
from kernelwright.tools.types.backward import Backward
from kernelwright.tools.types.outline import Outline

_TIMED_RUNS = 10


class Steps:
    """Announces what a worker does next for one request.

    Args:
        request: What is judged.
        announce: Told before a step, as it may not come back.
        meter: Counts the seconds of each.
    """

    def __init__(
        self, request: JudgeRequest, announce: Callable[[Stage], None], meter: Meter
    ) -> None:
        self._request, self._announce, self._meter = request, announce, meter

    @property
    def seconds(self) -> float:
        """How long a candidate is timed at this effort."""
        rules = self._request.rules
        return rules.certify_s if self._request.effort == "certify" else rules.precise_s

    def begin(self, step: str) -> None:
        """Count seconds for this step from now on."""
        self._meter.begin(f"{self._request.effort}: {step}")

    def candidate_runs(self, words: str, *, often: bool = False) -> None:
        """Announce a step of the candidate's; how long it may take follows from eager's time.

        One that is timed has shown before that it comes back, and runs many times.
        """
        rules, known = self._request.rules, self._request.baselines
        eager = known.named("eager") if known else None
        usual_s = eager.measurement.median_ms / 1e3 if eager and eager.measurement else 0.0
        limit = rules.candidate_s + rules.candidate_slowdown * usual_s
        if often:
            limit = _TIMED_RUNS * limit + self.seconds
        self._announce(Stage(words=words, limit_s=limit, blame="candidate"))

    def compiles(self, words: str) -> None:
        """Announce that torch.compile works for the candidate, as long as for a baseline."""
        limit_s = self._request.rules.baseline_s
        self._announce(Stage(words=words, limit_s=limit_s, blame="candidate"))

    def reference_runs(self) -> None:
        """Announce that PyTorch's own forward runs."""
        self.say("the reference runs", self._request.rules.reference_s)

    def say(self, words: str, limit_s: float, baseline: str = "") -> None:
        """Announce a step that is not the candidate's."""
        self._announce(Stage(words=words, limit_s=limit_s, blame="reference", baseline=baseline))


# Longer forwards are watched cold, or not at all.
_PATIENCE_S = 20.0


class TaskRuntime:
    """What a worker keeps while it is asked about the same task."""

    def __init__(self, task: Task, hardware: Hardware, rules: Rules, seed: int) -> None:
        self.task = task
        self.runtime = ReferenceRuntime(task, hardware, rules, seed, no_new_processes)
        self._remarks: dict[str, str] = {}

    def remark(self, baseline: str) -> str:
        """What a reader of ratios over a baseline should know of its answers; "" if nothing.

        Raises:
            BaselineFailedError: it cannot be made.
        """
        if baseline not in self._remarks:
            asked = baseline in MODES and may_be_coarser(self.task, self.runtime.device)
            self._remarks[baseline] = self._far_off(baseline) if asked else ""
        return self._remarks[baseline]

    def _far_off(self, baseline: str) -> str:
        seed = fresh_seed(self.runtime.seed, "exactness")
        times = times_eager(self.runtime, self.baselines.get(baseline), seed)
        bound = self.runtime.rules.error_bound
        if times is None or times <= bound:
            return ""
        return (
            f"its answers are {times:.3g} times as far from the truth as eager's (bound: {bound:g})"
        )

    @cached_property
    def harness(self) -> Harness:
        """Timing inputs and stopwatch."""
        return Harness(self.runtime)

    @cached_property
    def baselines(self) -> BaselineCalls:
        """What PyTorch itself does, ready to be timed."""
        return BaselineCalls(self.runtime, self.harness, no_new_processes)

    @cached_property
    def nulls(self) -> tuple[str, ...]:
        """Which answers without work pass for this task; a warning each."""
        try:
            return self.runtime.nulls.words()
        except UnverifiableError as error:
            return (f"null answers were not tried: {error}",)

    @cached_property
    def findings(self) -> Findings:
        """What the audit's experiments found: badges, and notes on what was left out."""
        return find(self.runtime)

    def dispatched(self) -> tuple[tuple[Dispatched, ...], int]:
        """What PyTorch runs on the device for one forward, and of how many that is the median.

        Raises:
            RefusedError: one forward would take too long to wait for.
        """
        seconds = forward_s(self.runtime)
        if seconds > _PATIENCE_S:
            raise refuse(f"one forward would take about {seconds:.0f} s here")
        arguments = self.runtime.draw(Draw("task", fresh_seed(self.runtime.seed, "dispatch")))
        return dispatched(lambda: self.runtime.own(arguments), self.runtime.device)

    def outline(self) -> Outline:
        """The forward operator by operator, as eager PyTorch runs it, with times.

        Raises:
            RefusedError: one forward would take too long to wait for, or cannot be exported.
        """
        seconds = forward_s(self.runtime)
        if seconds > _PATIENCE_S:
            raise refuse(f"one forward would take about {seconds:.0f} s here")
        from kernelwright.tools.tasks.outline import outline_in_parts, outline_of

        arguments = self.runtime.draw(Draw("task", fresh_seed(self.runtime.seed, "outline")))
        outlined = outline_in_parts if self.task.parts else outline_of
        return outlined(self.runtime.reference, self.task, arguments, ADMITTED)

    def backward(self) -> Backward:
        """The backward as a task of its own.

        Raises:
            RefusedError: one forward would take too long to wait for, or there is no backward.
        """
        seconds = forward_s(self.runtime)
        if seconds > _PATIENCE_S:
            raise refuse(f"one forward would take about {seconds:.0f} s here")
        from kernelwright.tools.tasks.gradients.backward import backward_of

        arguments = self.runtime.draw(Draw("task", fresh_seed(self.runtime.seed, "backward")))
        return backward_of(self.runtime.reference, self.task, arguments)
