"""The ladder that one compiled candidate climbs: verify, set up, screen, compare.

Each rung can end it; what is known by then is in the evaluation.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import get_args

import torch
from torch import Tensor

from tools.candidates.run import PlanRunner
from tools.evaluate.clock.baselines import BaselineFailedError
from tools.evaluate.clock.harness import Timed
from tools.evaluate.clock.stopwatch import stopwatch
from tools.evaluate.defences import Defence
from tools.evaluate.judge.bench import Draw
from tools.evaluate.judge.coverage import coverage
from tools.evaluate.judge.digits import Precision, by_source, measured
from tools.evaluate.judge.failures import RejectedError, rejection
from tools.evaluate.judge.harsh import harshest_first
from tools.evaluate.judge.inspection import Inspection
from tools.evaluate.judge.memory import GuardedMemory, SpoiltMemory
from tools.evaluate.judge.precision import lower_precisions, task_precision
from tools.evaluate.judge.sentence import Sentence
from tools.evaluate.judge.speed_of_light import impossible
from tools.evaluate.judge.trials import Trials, plan_runner
from tools.evaluate.judge.truth import Argument, UnverifiableError
from tools.evaluate.messages import JudgeRequest, Stage
from tools.evaluate.metering import Meter
from tools.evaluate.seeds import fresh_seed
from tools.evaluate.worker.station import Station
from tools.nouns import (
    Comparison,
    Evaluation,
    Measurement,
    ModeTiming,
    StageTimes,
    Verdict,
    Verification,
)
from tools.nouns.measurement import Mode
from tools.tasks import RefusedError

_TIMED_RUNS = 10
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
        self._meter = meter
        self._station = station
        self._request = request
        self._announce = announce
        self._rules = request.rules
        self._sentence = Sentence(station.bench)
        self._not_verified: list[str] = []
        self._stages = StageTimes(compile_s=request.built.seconds)
        self._launch_ms: float | None = None
        self._precision = by_source(request.task, request.candidate)

    def climb(self) -> Evaluation:
        """Every rung that the effort asks for and the candidate deserves."""
        start = time.perf_counter()
        verification = self._verify()
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

    def _verify(self) -> Verification:
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
            self._begin("nulls")
            self._not_verified += self._station.nulls
        if off := self._rules.switched_off:
            self._not_verified.append(f"anything by {', '.join(off)}: switched off for a test")
        if self._request.effort != "certify":
            self._not_verified.append(f"distributions other than {self._used()}")
        return self._verification(Verdict.CORRECT, f"right on inputs drawn from {self._used()}")

    def _try_draws(self) -> None:
        request, bench = self._request, self._station.bench
        poisoned = self._rules.has(Defence.POISON)
        memory = GuardedMemory(bench.device, bench.rules.guard_bytes, poisoned=poisoned)
        self._begin("load")
        runner = plan_runner(bench, request.candidate, request.built, memory)
        trials = Trials(bench, memory, runner, self._candidate_runs, keeps=True)
        trials.prepare()
        for number, draw in enumerate(self._draws()):
            self._begin(f"verify {draw.distribution}")
            try:
                trials.run(
                    draw,
                    self._sentence,
                    twice=number == 0,
                    settle=self._reference_runs,
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
            return self._precision
        self._begin("digits")
        seed = fresh_seed(request.seed, "digits")
        return measured(trials, bench, request.candidate, seed, self._reference_runs)

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

    def _time(self, evaluation: Evaluation) -> Evaluation:
        bench, request = self._station.bench, self._request
        self._begin("inputs")
        memory = SpoiltMemory(bench.device)
        runner = PlanRunner(request.candidate, request.built, bench.device, allocator=memory)
        weights = {name: value.clone() for name, value in bench.reference.weights().items()}
        self._candidate_runs("the candidate prepares")
        watch = stopwatch(bench.device)
        prepare_ms = watch.time_ms(lambda: runner.prepare(weights))

        def plain(arguments: Sequence[Argument]) -> object:
            return runner(arguments, weights)

        self._say("inputs for timing are drawn", self._rules.reference_s)
        start = time.perf_counter()
        harness = self._station.harness
        self._candidate_runs("the candidate is timed", often=True)
        launches = runner.launches(harness.sets[0], weights)
        evaluation = evaluation.model_copy(update={"launches": launches})
        self._begin("coverage")
        share, method = self._coverage(weights)
        self._begin("time alone")
        inspection = Inspection(
            bench,
            weights,
            lambda: runner.prepare_again(weights),
            self._request.seed,
            harsh=[name for name in self._sentence.distributions if name != "task"],
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
        runner = PlanRunner(self._request.candidate, self._request.built, device)
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
        comparisons = self._compare(call, screen)
        modes = self._modes(call)
        return evaluation.model_copy(
            update={
                "comparisons": comparisons,
                "modes": modes,
                "launch_ms": self._launch_ms,
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

    def _compare(self, call: Timed, screen: Measurement) -> tuple[Comparison, ...]:
        """Against every baseline that can be made here, in turns."""
        harness = self._station.harness
        replayed: Timed | None = None
        notes: tuple[str, ...] = ()
        if self._station.bench.device == "cuda" and screen.median_ms < self._rules.graph_below_ms:
            self._candidate_runs("the candidate is captured as a graph")
            self._begin("capture")
            replayed = self._inspected(harness.as_graph(call))
            if replayed is not None:
                notes = (f"graph replays; called one by one: {screen.median_ms:.4f} ms",)
        found: list[Comparison] = []
        for name in self._hardest_first():
            if (baseline := self._baseline(name, as_graph=replayed is not None)) is None:
                continue
            self._candidate_runs(f"the candidate is timed beside {name}", often=True)
            self._begin(f"against {name}")
            comparison = harness.compare(
                name,
                baseline,
                replayed or call,
                seconds=self._seconds(),
                notes=notes,
                queued=replayed is not None,
                noise=self._request.baselines.noise if self._request.baselines else 0.0,
                beyond=min((item.ci95_high for item in found), default=inf),
            )
            found.append(comparison)
        found.sort(key=lambda item: self._request.compare_to.index(item.baseline))
        if replayed is not None and found:
            in_graphs = min(item.candidate_ms for item in found)
            self._launch_ms = max(0.0, screen.median_ms - in_graphs)
        return tuple(found)

    def _hardest_first(self) -> list[str]:
        """Those whose times are known, the fastest first, then those that nobody has timed yet.

        What is certainly slower than one that was compared is soon done with.
        """
        known = self._request.baselines.items if self._request.baselines else ()
        medians = {i.name: i.measurement.median_ms for i in known if i.measurement is not None}
        return sorted(self._request.compare_to, key=lambda name: medians.get(name, inf))

    def _modes(self, call: Timed) -> tuple[ModeTiming, ...]:
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
            self._candidate_runs(f"the candidate is timed in {mode} mode", often=True)
            self._begin(f"{mode} mode")
            seconds, noise = self._rules.mode_s, known.noise
            compared = self._station.harness.compare(
                name, baseline, call, seconds=seconds, noise=noise, mode=mode
            )
            found.append(ModeTiming(mode=mode, comparison=compared))
        return tuple(found)

    def _inspected(self, call: Timed | None) -> Timed | None:
        inspection = self._station.harness.inspection
        return inspection.watching(call) if call is not None and inspection is not None else call

    def _baseline(self, name: str, *, as_graph: bool) -> Timed | None:
        limit = self._rules.max_autotune_s if "max" in name else self._rules.baseline_s
        self._say(f"{name} is made", limit, baseline=name)
        self._begin(f"build {name}")
        try:
            call = self._station.baselines.get(name)
        except BaselineFailedError:
            return None
        if as_graph and name != "graph":
            return self._station.harness.as_graph(call) or call
        return call

    def _seconds(self) -> float:
        return self._rules.certify_s if self._request.effort == "certify" else self._rules.precise_s

    def _begin(self, step: str) -> None:
        self._meter.begin(f"{self._request.effort}: {step}")

    def _spent(self, stage: str, start: float) -> StageTimes:
        self._stages = self._stages.model_copy(update={stage: time.perf_counter() - start})
        return self._stages

    def _failed(self, evaluation: Evaluation, verdict: Verdict, reason: str) -> Evaluation:
        update = {"verdict": verdict, "reason": reason}
        changed = evaluation.verification.model_copy(update=update)
        return evaluation.model_copy(update={"verification": changed})

    def _candidate_runs(self, words: str, *, often: bool = False) -> None:
        """Announce a step of the candidate's; how long it may take follows from eager's time.

        One that is timed has shown before that it comes back, and runs many times.
        """
        eager = self._request.baselines.named("eager") if self._request.baselines else None
        usual_s = eager.measurement.median_ms / 1e3 if eager and eager.measurement else 0.0
        limit = self._rules.candidate_s + self._rules.candidate_slowdown * usual_s
        if often:
            limit = _TIMED_RUNS * limit + self._seconds()
        self._announce(Stage(words=words, limit_s=limit, blame="candidate"))

    def _reference_runs(self) -> None:
        self._say("the reference runs", self._rules.reference_s)

    def _say(self, words: str, limit_s: float, baseline: str = "") -> None:
        stage = Stage(words=words, limit_s=limit_s, blame="reference", baseline=baseline)
        self._announce(stage)
