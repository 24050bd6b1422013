"""Times a candidate beside PyTorch, in turns; a finalist under other loads as well.

`timed_baseline` times one way in which PyTorch itself does a task (`TaskRuntime`), `Comparing` a
candidate beside all of them.
"""

import time
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import get_args

import torch

from kernelwright.tools.evaluate.messages import JudgeRequest
from kernelwright.tools.evaluate.process_setup import Meter
from kernelwright.tools.evaluate.rules import FAST, GRAPHS, LIBRARY
from kernelwright.tools.evaluate.timing.baselines import MODES, BaselineFailedError
from kernelwright.tools.evaluate.timing.harness import Timed
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.evaluate.worker.beside import beside_fastest, served
from kernelwright.tools.evaluate.worker.task_runtime import Steps, TaskRuntime
from kernelwright.tools.types import Baseline, Comparison, ModeTiming
from kernelwright.tools.types.measurement import Mode


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
        self._share_s = inf  # of the time that is left, of the present comparison
        self.failed: list[str] = []

    def compare(self, call: Timed) -> tuple[Comparison, ...]:
        """Against every baseline that can be made here, in turns."""
        found: list[Comparison] = []
        hardest = self._hardest_first()
        for number, name in enumerate(hardest):
            self._share_s = self._left_s() / (len(hardest) - number)
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
            seconds=min(self._steps.seconds, self._share_s),
            notes=(*remarks, *_plain(name, replayed)),
            noise=self._noise,
            beyond=min((item.ci95_high for item in found), default=inf),
            patience_s=self._patience_s,
        )
        compared = compared.model_copy(update={"as_graph": replayed is not None})
        return beside_fastest(compared, self._fastest_ms(name))

    @property
    def _patience_s(self) -> float:
        """How long a finalist's pairs go on where they settle nothing."""
        certifies = self._request.effort == "certify"
        return min(self._rules.settle_max_s, self._share_s) if certifies else 0.0

    def _left_s(self) -> float:
        """Seconds that are left for comparing; `inf` where nothing ends it."""
        until_s = self._request.until_s
        return inf if until_s is None else max(0.0, until_s - time.monotonic())

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
        if not self._left_s():
            self.failed.append("its times under other loads: there was no time left for them")
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
