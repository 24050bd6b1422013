"""One task in one worker: its bench, timing harness and baselines, each made when needed."""

from functools import cached_property

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.ground import no_new_processes
from kernelwright.tools.evaluate.profiling.dispatch import dispatched
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.seeds import fresh_seed
from kernelwright.tools.evaluate.timing.baselines import MODES, BaselineCalls
from kernelwright.tools.evaluate.timing.harness import Harness
from kernelwright.tools.evaluate.verify.audit.findings import Findings, find, forward_s
from kernelwright.tools.evaluate.verify.bench import Bench, Draw
from kernelwright.tools.evaluate.verify.exactness import times_eager
from kernelwright.tools.evaluate.verify.truth import UnverifiableError
from kernelwright.tools.evaluate.verify.turned import may_be_coarser
from kernelwright.tools.tasks.refusals import refuse
from kernelwright.tools.types import Dispatched, Task

# Longer forwards are watched cold, or not at all.
_LONG_S, _PATIENCE_S = 0.3, 20.0


class Station:
    """What a worker keeps while it is asked about the same task."""

    def __init__(self, task: Task, hardware: Hardware, rules: Rules, seed: int) -> None:
        self.task = task
        self.bench = Bench(task, hardware, rules, seed, no_new_processes)
        self._remarks: dict[str, str] = {}

    def remark(self, baseline: str) -> str:
        """What a reader of ratios over a baseline should know of its answers; "" if nothing.

        Raises:
            BaselineFailedError: it cannot be made.
        """
        if baseline not in self._remarks:
            asked = baseline in MODES and may_be_coarser(self.task, self.bench.device)
            self._remarks[baseline] = self._far_off(baseline) if asked else ""
        return self._remarks[baseline]

    def _far_off(self, baseline: str) -> str:
        seed = fresh_seed(self.bench.seed, "exactness")
        times = times_eager(self.bench, self.baselines.get(baseline), seed)
        bound = self.bench.rules.error_bound
        if times is None or times <= bound:
            return ""
        return (
            f"its answers are {times:.3g} times as far from the truth as eager's (bound: {bound:g})"
        )

    @cached_property
    def harness(self) -> Harness:
        """Timing inputs and stopwatch."""
        return Harness(self.bench)

    @cached_property
    def baselines(self) -> BaselineCalls:
        """What PyTorch itself does, ready to be timed."""
        return BaselineCalls(self.bench, self.harness, no_new_processes)

    @cached_property
    def nulls(self) -> tuple[str, ...]:
        """Which answers without work pass for this task; a warning each."""
        try:
            return self.bench.nulls.words()
        except UnverifiableError as error:
            return (f"null answers were not tried: {error}",)

    @cached_property
    def findings(self) -> Findings:
        """What the audit's experiments found: badges, and notes on what was left out."""
        return find(self.bench)

    def dispatched(self) -> tuple[Dispatched, ...]:
        """What PyTorch runs on the device for one forward.

        Raises:
            RefusedError: one forward would take too long to wait for.
        """
        seconds = forward_s(self.bench)
        if seconds > _PATIENCE_S:
            raise refuse(f"one forward would take about {seconds:.0f} s here")
        arguments = self.bench.draw(Draw("task", fresh_seed(self.bench.seed, "dispatch")))
        warm_ups = 2 if seconds < _LONG_S else 0
        return dispatched(lambda: self.bench.own(arguments), self.bench.device, warm_ups=warm_ups)
