"""The ladder that one compiled candidate climbs: verify, set up, screen, compare.

Each rung can end it; what is known by then is in the evaluation.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.evaluate.messages import JudgeRequest, Stage
from kernelwright.tools.evaluate.metering import Meter
from kernelwright.tools.evaluate.profiling.coverage import coverage
from kernelwright.tools.evaluate.timing.harness import Timed
from kernelwright.tools.evaluate.timing.speed_of_light import impossible
from kernelwright.tools.evaluate.timing.stopwatch import stopwatch
from kernelwright.tools.evaluate.verify.failures import rejection
from kernelwright.tools.evaluate.verify.inspection import Inspection
from kernelwright.tools.evaluate.verify.memory import SpoiltMemory
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.evaluate.worker.comparing import Comparing
from kernelwright.tools.evaluate.worker.proof import Proof
from kernelwright.tools.evaluate.worker.station import Station
from kernelwright.tools.evaluate.worker.steps import Steps
from kernelwright.tools.languages.loading import load_candidate
from kernelwright.tools.types import Evaluation, Measurement, StageTimes, Verdict

_MORE_LOOKS = 3


class Ladder:
    """One candidate's way up."""

    def __init__(
        self,
        station: Station,
        request: JudgeRequest,
        announce: Callable[[Stage], None],
        meter: Meter,
    ) -> None:
        self._station = station
        self._request = request
        self._rules = request.rules
        self._steps = Steps(request, announce, meter)
        self._proof = Proof(station, request, self._steps)
        self._comparing = Comparing(station, request, self._steps)
        self._stages = StageTimes(compile_s=request.built.seconds)

    def climb(self) -> Evaluation:
        """Every rung that the effort asks for and the candidate deserves."""
        start = time.perf_counter()
        verification = self._proof.verify()
        self._stages = self._stages.model_copy(update={"verify_s": time.perf_counter() - start})
        evaluation = Evaluation(
            candidate=self._request.candidate.id,
            verification=verification,
            reports=self._request.built.reports,
            compiler_log=self._request.built.log,
            stages=self._stages,
        )
        if verification.verdict is not Verdict.CORRECT:
            return evaluation
        try:
            return self._time(evaluation)
        except Exception as error:
            found = rejection(error)
            return self._failed(evaluation, found.verdict, f"while it was timed: {found.reason}")

    def _time(self, evaluation: Evaluation) -> Evaluation:
        bench, request = self._station.bench, self._request
        self._steps.begin("inputs")
        memory = SpoiltMemory(bench.device)
        runner = load_candidate(request.candidate, request.built, bench.device, allocator=memory)
        weights = {name: value.clone() for name, value in bench.reference.weights().items()}
        self._steps.candidate_runs("the candidate prepares")
        watch = stopwatch(bench.device)
        prepare_ms = watch.time_ms(lambda: runner.prepare(weights))

        def plain(arguments: Sequence[Argument]) -> object:
            return runner(arguments, weights)

        self._steps.say("inputs for timing are drawn", self._rules.reference_s)
        start = time.perf_counter()
        harness = self._station.harness
        self._steps.candidate_runs("the candidate is timed", often=True)
        launches = runner.launches(harness.sets[0], weights)
        evaluation = evaluation.model_copy(update={"launches": launches})
        self._steps.begin("coverage")
        share, method = self._coverage(weights)
        self._steps.begin("time alone")
        inspection = Inspection(
            bench,
            weights,
            lambda: runner.prepare_again(weights),
            self._request.seed,
            harsh=self._proof.others,
            spoil=memory.spoil,
        )
        call = inspection.watching(plain)
        harness.inspection = inspection
        try:
            return self._timed(evaluation, call, start, share, method, prepare_ms)
        finally:
            harness.inspection = None

    def _coverage(self, weights: Mapping[str, Tensor]) -> tuple[float | None, str]:
        """Who does the work, seen in a run of its own."""
        if not self._rules.has(Defence.COVERAGE):
            return None, ""
        device, inputs = self._station.bench.device, self._station.harness.sets[0]
        runner = load_candidate(self._request.candidate, self._request.built, device)
        runner.prepare(weights)
        return coverage(lambda: runner(inputs, weights), runner, device)

    def _timed(
        self,
        evaluation: Evaluation,
        call: Timed,
        start: float,
        share: float | None,
        method: str,
        prepare_ms: float,
    ) -> Evaluation:
        """Screen, and compare where that was asked for."""
        bench, request = self._station.bench, self._request
        screen = self._screen(call)
        update = {"coverage": share, "method": method}
        evaluation = evaluation.model_copy(
            update={
                "verification": evaluation.verification.model_copy(update=update),
                "screen": screen,
                "prepare_ms": prepare_ms,
                "stages": self._spent("screen_s", start),
            }
        )
        words = impossible(screen.median_ms, bench, request.baselines)
        if words and self._rules.has(Defence.FLOOR):
            return self._failed(evaluation, Verdict.BELOW_FLOOR, words)
        if request.effort == "screen":
            return evaluation
        start = time.perf_counter()
        comparisons = self._comparing.compare(call, screen)
        modes = self._comparing.modes(call)
        told = (*evaluation.verification.not_verified, *self._comparing.failed)
        verification = evaluation.verification.model_copy(update={"not_verified": told})
        return evaluation.model_copy(
            update={
                "verification": verification,
                "comparisons": comparisons,
                "modes": modes,
                "launch_ms": self._comparing.launch_ms,
                "stages": self._spent("time_s", start),
            }
        )

    def _screen(self, call: Timed) -> Measurement:
        rules, best = self._rules, self._request.best_ms
        hopeless = rules.hopeless_ratio * best if best is not None else float("inf")
        harness = self._station.harness
        screen = harness.measure(
            call,
            seconds=rules.screen_s,
            least=rules.screen_samples_min,
            most=rules.screen_samples_max,
            hopeless_ms=hopeless if self._request.effort == "screen" else float("inf"),
        )
        # However few samples there were, how many more are looked at is drawn.
        for _ in range(1 + secrets.randbelow(_MORE_LOOKS)):
            harness.look(call)
        return screen

    def _spent(self, stage: str, start: float) -> StageTimes:
        self._stages = self._stages.model_copy(update={stage: time.perf_counter() - start})
        return self._stages

    def _failed(self, evaluation: Evaluation, verdict: Verdict, reason: str) -> Evaluation:
        update = {"verdict": verdict, "reason": reason}
        changed = evaluation.verification.model_copy(update=update)
        return evaluation.model_copy(update={"verification": changed})
