"""A candidate timed beside PyTorch, in turns; a finalist under other loads as well."""

from collections.abc import Sequence
from math import inf
from typing import get_args

import torch

from kernelwright.tools.evaluate.messages import JudgeRequest
from kernelwright.tools.evaluate.timing.baselines import BaselineFailedError
from kernelwright.tools.evaluate.timing.harness import Timed
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.evaluate.worker.station import Station
from kernelwright.tools.evaluate.worker.steps import Steps
from kernelwright.tools.types import Comparison, Measurement, ModeTiming
from kernelwright.tools.types.measurement import Mode


class Comparing:
    """The comparisons of one candidate.

    Args:
        station: The task on its device, its clock and its baselines.
        request: What is judged, and beside what.
        steps: Announces what runs.

    Attributes:
        launch_ms: The host's share of a call, once it was seen in graphs too.
        failed: What could not be compared because a baseline failed meanwhile.
    """

    def __init__(self, station: Station, request: JudgeRequest, steps: Steps) -> None:
        self._station, self._request, self._steps = station, request, steps
        self._rules = request.rules
        self.launch_ms: float | None = None
        self.failed: list[str] = []

    def compare(self, call: Timed, screen: Measurement) -> tuple[Comparison, ...]:
        """Against every baseline that can be made here, in turns."""
        harness = self._station.harness
        replayed: Timed | None = None
        notes: tuple[str, ...] = ()
        if self._station.bench.device == "cuda" and screen.median_ms < self._rules.graph_below_ms:
            self._steps.candidate_runs("the candidate is captured as a graph")
            self._steps.begin("capture")
            replayed = self._inspected(harness.as_graph(call))
            if replayed is not None:
                notes = (f"graph replays; called one by one: {screen.median_ms:.4f} ms",)
        found: list[Comparison] = []
        for name in self._hardest_first():
            if (baseline := self._baseline(name, as_graph=replayed is not None)) is None:
                continue
            remarks = self._remarks(name)
            self._steps.candidate_runs(f"the candidate is timed beside {name}", often=True)
            self._steps.begin(f"against {name}")
            try:
                comparison = harness.compare(
                    name,
                    _answerable(baseline),
                    replayed or call,
                    seconds=self._steps.seconds,
                    notes=(*notes, *remarks),
                    queued=replayed is not None,
                    noise=self._request.baselines.noise if self._request.baselines else 0.0,
                    beyond=min((item.ci95_high for item in found), default=inf),
                )
            except BaselineFailedError as error:
                self.failed.append(f"its time beside {name}, which failed: {error}")
                continue
            found.append(comparison)
        found.sort(key=lambda item: self._request.compare_to.index(item.baseline))
        if replayed is not None and found:
            in_graphs = min(item.candidate_ms for item in found)
            self.launch_ms = max(0.0, screen.median_ms - in_graphs)
        return tuple(found)

    def _remarks(self, name: str) -> tuple[str, ...]:
        """What is to be known of a baseline's answers, where a finalist is compared with it."""
        if self._request.effort != "certify":
            return ()
        self._steps.say(f"{name}'s answers are looked at", self._rules.reference_s, baseline=name)
        self._steps.begin(f"exactness {name}")
        found = self._station.remark(name)
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
        if self._rules.evidence == "timing":
            return ()
        name = known.best.name
        baseline = self._baseline(name, as_graph=False)
        if name not in self._request.compare_to or baseline is None:
            return ()
        found = []
        for mode in get_args(Mode):
            self._steps.candidate_runs(f"the candidate is timed in {mode} mode", often=True)
            self._steps.begin(f"{mode} mode")
            seconds, noise = self._rules.mode_s, known.noise
            try:
                compared = self._station.harness.compare(
                    name, _answerable(baseline), call, seconds=seconds, noise=noise, mode=mode
                )
            except BaselineFailedError as error:
                self.failed.append(f"its times in {mode} mode beside {name}, which failed: {error}")
                continue
            found.append(ModeTiming(mode=mode, comparison=compared))
        return tuple(found)

    def _inspected(self, call: Timed | None) -> Timed | None:
        inspection = self._station.harness.inspection
        return inspection.watching(call) if call is not None and inspection is not None else call

    def _baseline(self, name: str, *, as_graph: bool) -> Timed | None:
        limit = self._rules.max_autotune_s if "max" in name else self._rules.baseline_s
        self._steps.say(f"{name} is made", limit, baseline=name)
        self._steps.begin(f"build {name}")
        try:
            call = self._station.baselines.get(name)
        except BaselineFailedError:
            return None
        if as_graph and name != "graph":
            return self._station.harness.as_graph(call) or call
        return call


def _answerable(call: Timed) -> Timed:
    """The same call, whose lack of memory is its own and not the candidate's beside it."""

    def called(arguments: Sequence[Argument]) -> object:
        try:
            return call(arguments)
        except (torch.OutOfMemoryError, MemoryError) as error:
            words = str(error).split(". ")[0]
            raise BaselineFailedError(f"it ran out of memory: {words}") from error

    return called
