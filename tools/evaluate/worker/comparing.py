"""Times a candidate beside PyTorch, in turns; a finalist under other loads as well.

`TaskRuntime` is one task in one worker: its reference, timing harness and baselines, each made when
needed. `timed_baseline` times one way in which PyTorch itself does a task, `Comparing` a candidate
beside all of them. `Steps` is what a worker says meanwhile: what runs now, on whose account, how
long. A step that does not come back in time, or takes its worker along, is told by its last words.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import inf
from typing import get_args

import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates.plan.vocabulary import ADMITTED
from kernelwright.tools.evaluate.messages import JudgeRequest, Stage
from kernelwright.tools.evaluate.process_setup import Meter, no_new_processes
from kernelwright.tools.evaluate.profiling.coverage import dispatched
from kernelwright.tools.evaluate.rules import FAST, GRAPHS, LIBRARY, Rules, fresh_seed
from kernelwright.tools.evaluate.timing.baselines import MODES, BaselineCalls, BaselineFailedError
from kernelwright.tools.evaluate.timing.harness import Harness, Timed
from kernelwright.tools.evaluate.verify.audit.findings import Findings, find, forward_s
from kernelwright.tools.evaluate.verify.measured_precision import times_eager
from kernelwright.tools.evaluate.verify.precision import may_be_coarser
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument, UnverifiableError
from kernelwright.tools.evaluate.worker.beside import beside_fastest, served
from kernelwright.tools.types import Baseline, Comparison, Dispatched, ModeTiming, Task, refuse
from kernelwright.tools.types.backward import Backward
from kernelwright.tools.types.measurement import Mode
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
_LONG_S, _PATIENCE_S = 0.3, 20.0


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

    def dispatched(self) -> tuple[Dispatched, ...]:
        """What PyTorch runs on the device for one forward.

        Raises:
            RefusedError: one forward would take too long to wait for.
        """
        seconds = forward_s(self.runtime)
        if seconds > _PATIENCE_S:
            raise refuse(f"one forward would take about {seconds:.0f} s here")
        arguments = self.runtime.draw(Draw("task", fresh_seed(self.runtime.seed, "dispatch")))
        warm_ups = 2 if seconds < _LONG_S else 0
        return dispatched(
            lambda: self.runtime.own(arguments), self.runtime.device, warm_ups=warm_ups
        )

    def outline(self) -> Outline:
        """The forward operator by operator, as eager PyTorch runs it, with times.

        Raises:
            RefusedError: one forward would take too long to wait for, or cannot be exported.
        """
        seconds = forward_s(self.runtime)
        if seconds > _PATIENCE_S:
            raise refuse(f"one forward would take about {seconds:.0f} s here")
        from kernelwright.tools.tasks.outline import outline_of
        from kernelwright.tools.tasks.parts.outline import outline_in_parts

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
        from kernelwright.tools.tasks.backward import backward_of

        arguments = self.runtime.draw(Draw("task", fresh_seed(self.runtime.seed, "backward")))
        return backward_of(self.runtime.reference, self.task, arguments)


def timed_baseline(task_runtime: TaskRuntime, name: str, meter: Meter) -> Baseline:
    """Make one of PyTorch's ways and time it; eager beside itself as well, which tells the noise.

    Args:
        task_runtime: the task on its device.
        name: see `BaselineCalls`.
        meter: counts the seconds of each step.

    Raises:
        BaselineFailedError: it cannot be made.
    """
    rules = task_runtime.runtime.rules
    meter.begin(f"baselines: build {name}")
    call = task_runtime.baselines.get(name)
    meter.begin(f"baselines: time {name}")
    notes: tuple[str, ...] = ()
    noise: float | None = None
    seconds, taken = rules.precise_s, tuple[float, ...]()
    if name == "eager":
        start = time.monotonic()
        again = task_runtime.harness.compare("eager", call, call, seconds=rules.calibrate_s)
        noise = abs(again.ratio - 1.0)
        # What was compared with itself has been timed; the rest of its time is for further samples.
        taken = again.baseline_samples_ms + again.candidate_samples_ms
        seconds -= time.monotonic() - start
        notes = (f"A/A ratio {again.ratio:.3f} [{again.ci95_low:.3f}, {again.ci95_high:.3f}]",)
    measurement = task_runtime.harness.measure(
        call,
        seconds=seconds,
        least=rules.pairs_min,
        most=rules.pairs_max,
        notes=notes,
        taken=taken,
    )
    harness, fastest = task_runtime.harness, task_runtime.baselines.fastest.get(name)
    if fastest is not None and fastest.median_ms < measurement.median_ms:
        measurement = fastest
    return Baseline(
        name=name,
        measurement=measurement,
        latency_ms=harness.alone_ms(call, rules.host_samples) if harness.on_gpu else None,
        setup_s=task_runtime.baselines.setup_s.get(name, 0.0),
        noise=noise,
    )


class Comparing:
    """Compares one candidate with every baseline.

    Args:
        task_runtime: The task on its device, its clock and its baselines.
        request: What is judged, and beside what.
        steps: Announces what runs.

    A baseline that is a CUDA graph competes with the candidate as one, or with its plain calls
    where it cannot be captured; all others with plain calls.

    Attributes:
        failed: What could not be compared because a baseline failed meanwhile.
    """

    def __init__(self, task_runtime: TaskRuntime, request: JudgeRequest, steps: Steps) -> None:
        self._task_runtime, self._request, self._steps = task_runtime, request, steps
        self._rules = request.rules
        self._replayed: Timed | None = None
        self._captured = False  # whether that was tried
        self.failed: list[str] = []

    def compare(self, call: Timed) -> tuple[Comparison, ...]:
        """Against every baseline that can be made here, in turns."""
        found: list[Comparison] = []
        for name in self._hardest_first():
            if (baseline := self._baseline(name)) is None:
                continue
            try:
                found.append(self._beside(name, _answerable(baseline), call, found))
            except BaselineFailedError as error:
                self.failed.append(f"its time beside {name}, which failed: {error}")
        found = self._with_latency(found, call)
        return tuple(sorted(found, key=lambda i: self._request.compare_to.index(i.baseline)))

    def _beside(
        self, name: str, baseline: Timed, call: Timed, found: Sequence[Comparison]
    ) -> Comparison:
        """One comparison by the headline's clock."""
        remarks = self._remarks(name)
        replayed = self._as_graph(call) if name in GRAPHS else None
        self._steps.candidate_runs(f"the candidate is timed beside {name}", often=True)
        self._steps.begin(f"against {name}")
        compared = self._task_runtime.harness.compare(
            name,
            baseline,
            replayed or call,
            seconds=self._steps.seconds,
            notes=(*remarks, *_plain(name, replayed)),
            noise=self._noise,
            beyond=min((item.ci95_high for item in found), default=inf),
            patience_s=self._rules.settle_max_s if self._request.effort == "certify" else 0.0,
        )
        compared = compared.model_copy(update={"as_graph": replayed is not None})
        return beside_fastest(compared, self._fastest_ms(name))

    def _fastest_ms(self, name: str) -> float | None:
        """The least that the baseline was seen to take, where a compiler draws its settings."""
        known, made = self._request.baselines, self._task_runtime.baselines.fastest
        names = {name, GRAPHS.get(name, name)} if GRAPHS.get(name, name) in MODES else set()
        items = [known.named(one) for one in names] if known else []
        seen = [made[one] for one in names if one in made]
        seen += [item.measurement for item in items if item and item.measurement]
        return min((item.median_ms for item in seen), default=None)

    @property
    def _noise(self) -> float:
        return self._request.baselines.noise if self._request.baselines else 0.0

    def _as_graph(self, call: Timed) -> Timed | None:
        """The candidate as graph replays; None where it cannot be captured."""
        if self._request.candidate.mode == "graph":
            return call  # which copies its arguments as well
        if not self._captured:
            self._captured = True
            self._steps.candidate_runs("the candidate is captured as a graph")
            self._steps.begin("capture")
            self._replayed = self._inspected(self._task_runtime.harness.as_graph(call))
        return self._replayed

    def _with_latency(self, found: Sequence[Comparison], call: Timed) -> list[Comparison]:
        """A finalist's single calls beside the same baselines, issued in the same way.

        With evidence of timing alone, only beside the one that is hardest to beat.
        """
        if self._request.effort != "certify" or not self._task_runtime.harness.on_gpu:
            return list(found)
        ranked = sorted(found, key=lambda item: item.ratio)
        count = len(ranked) if self._rules.evidence == "full" else 1
        return [*(self._other_clock(item, call) for item in ranked[:count]), *ranked[count:]]

    def _other_clock(self, found: Comparison, call: Timed) -> Comparison:
        """The same comparison with what single calls on an idle device took."""
        name, mine = found.baseline, self._replayed if found.as_graph else call
        baseline = self._baseline(name)
        if baseline is None or mine is None:
            return found
        self._steps.candidate_runs(f"single calls are timed beside {name}", often=True)
        self._steps.begin(f"latency against {name}")
        try:
            latency = self._task_runtime.harness.latency(
                _answerable(baseline), mine, seconds=self._rules.latency_s, noise=self._noise
            )
        except BaselineFailedError as error:
            self.failed.append(f"single calls beside {name}, which failed: {error}")
            return found
        return found.model_copy(update={"latency": latency})

    def _remarks(self, name: str) -> tuple[str, ...]:
        """What is to be known of a baseline's answers, where a finalist is compared with it."""
        if self._request.effort != "certify":
            return ()
        self._steps.say(f"{name}'s answers are looked at", self._rules.reference_s, baseline=name)
        self._steps.begin(f"exactness {name}")
        found = self._task_runtime.remark(name)
        return (found,) if found else ()

    def _hardest_first(self) -> list[str]:
        """Those whose times are known, the fastest first, then those that nobody has timed yet.

        What is certainly slower than one that was compared is soon done with.
        """
        known = self._request.baselines.items if self._request.baselines else ()
        medians = {i.name: i.measurement.median_ms for i in known if i.measurement is not None}
        return sorted(self._request.compare_to, key=lambda name: medians.get(name, inf))

    def modes(self, call: Timed) -> tuple[ModeTiming, ...]:
        """A finalist under other loads, beside the best baseline; not the headline."""
        known = self._request.baselines
        if self._request.effort != "certify" or known is None:
            return ()
        if self._rules.is_brief:
            return ()
        if self._rules.evidence == "library":
            return tuple(filter(None, map(partial(self._served, call), self._rivals())))
        name = known.best.name
        baseline = self._baseline(name)
        if name not in self._request.compare_to or baseline is None:
            return ()
        replayed = self._as_graph(call) if name in GRAPHS else None
        found = []
        for mode in get_args(Mode):
            self._steps.candidate_runs(f"the candidate is timed in {mode} mode", often=True)
            self._steps.begin(f"{mode} mode")
            seconds, noise = self._rules.mode_s, known.noise
            try:
                compared = self._task_runtime.harness.compare(
                    name,
                    _answerable(baseline),
                    replayed or call,
                    seconds=seconds,
                    notes=_plain(name, replayed),
                    noise=noise,
                    mode=mode,
                )
            except BaselineFailedError as error:
                self.failed.append(f"its times in {mode} mode beside {name}, which failed: {error}")
                continue
            compared = compared.model_copy(update={"as_graph": replayed is not None})
            found.append(ModeTiming(mode=mode, comparison=compared))
        return tuple(found)

    def _rivals(self) -> tuple[str, ...]:
        """The library's fastest way, and what it can do at its best."""
        hardest = [name for name in self._hardest_first() if name != FAST]
        return tuple(dict.fromkeys(n for n in (*hardest[:1], LIBRARY[-1]) if n in hardest))

    def _served(self, call: Timed, name: str) -> ModeTiming | None:
        baseline, harness = self._baseline(name), self._task_runtime.harness
        if baseline is None:
            return None
        words = f"the candidate is timed in server mode beside {name}"
        self._steps.candidate_runs(words, often=True)
        self._steps.begin(f"server mode against {name}")
        mine = self._as_graph(call) if harness.on_gpu else None
        calls = name, _answerable(baseline), call
        try:
            found = served(harness, calls, mine, seconds=self._rules.mode_s, noise=self._noise)
        except BaselineFailedError as error:
            self.failed.append(f"its times in server mode beside {name}, which failed: {error}")
            return None
        return ModeTiming(mode="server", comparison=found)

    def _inspected(self, call: Timed | None) -> Timed | None:
        inspection = self._task_runtime.harness.inspection
        return inspection.watching(call) if call is not None and inspection is not None else call

    def _baseline(self, name: str) -> Timed | None:
        limit = self._rules.max_autotune_s if "max" in name else self._rules.baseline_s
        self._steps.say(f"{name} is made", limit, baseline=name)
        self._steps.begin(f"build {name}")
        try:
            return self._task_runtime.baselines.get(name)
        except BaselineFailedError:
            return None


def _plain(name: str, replayed: Timed | None) -> tuple[str, ...]:
    """What is to be known of a comparison with a graph in which the candidate is none."""
    if name not in GRAPHS or replayed is not None:
        return ()
    return ("the candidate cannot be captured in a CUDA graph: plain calls beside replays",)


def _answerable(call: Timed) -> Timed:
    """The same call, whose lack of memory is its own and not the candidate's beside it."""

    def called(arguments: Sequence[Argument]) -> object:
        try:
            return call(arguments)
        except (torch.OutOfMemoryError, MemoryError) as error:
            words = str(error).split(". ")[0]
            raise BaselineFailedError(f"it ran out of memory: {words}") from error

    return called
