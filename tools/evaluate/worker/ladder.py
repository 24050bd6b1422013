"""The ladder that one compiled candidate climbs: verify, set up, screen, compare.

Each rung can end it; what is known by then is in the evaluation. `Proof` decides whether the
candidate is right, and in which precision: draws of inputs in the order of the effort; what was not
looked at is kept in words.
"""

import secrets
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kernelwright.tools.candidates import DeviceError, LaunchRefused
from kernelwright.tools.candidates.plan import library_calls
from kernelwright.tools.candidates.run import PlanRunner, device_lost
from kernelwright.tools.evaluate.finalists import impossible
from kernelwright.tools.evaluate.findings import PREPARED
from kernelwright.tools.evaluate.messages import JudgeRequest, Stage
from kernelwright.tools.evaluate.process_setup import Meter
from kernelwright.tools.evaluate.profiling.coverage import coverage
from kernelwright.tools.evaluate.rules import Defence, fresh_seed
from kernelwright.tools.evaluate.timing.harness import Timed
from kernelwright.tools.evaluate.timing.modes import CompiledPlan, GuardedFirst, replayed
from kernelwright.tools.evaluate.timing.stopwatch import stopwatch
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.inspection import Inspection
from kernelwright.tools.evaluate.verify.measured_precision import Precision, by_source, measured
from kernelwright.tools.evaluate.verify.memory import GuardedMemory, SpoiltMemory
from kernelwright.tools.evaluate.verify.precision import (
    COARSER,
    lower_precisions,
    task_precision,
)
from kernelwright.tools.evaluate.verify.reasons import RejectedError, rejection
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, harshest_first
from kernelwright.tools.evaluate.verify.runners import Runner, plan_runner, prepared_by
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.evaluate.verify.truth import UnverifiableError
from kernelwright.tools.evaluate.worker.comparing import Comparing
from kernelwright.tools.evaluate.worker.task_runtime import Steps, TaskRuntime
from kernelwright.tools.languages import load_candidate
from kernelwright.tools.types import (
    IN_MODE,
    Evaluation,
    Measurement,
    RefusedError,
    StageTimes,
    Verdict,
    Verification,
)
from kernelwright.tools.types.verdict import OWN_NOT_FINITE


class Proof:
    """Decides whether one candidate is right, and in which precision.

    Args:
        task_runtime: The task on its device.
        request: What is judged.
        steps: Announces what runs.
    """

    def __init__(self, task_runtime: TaskRuntime, request: JudgeRequest, steps: Steps) -> None:
        self._task_runtime, self._request, self._steps = task_runtime, request, steps
        self._rules = request.rules
        self._comparator = ResultComparator(task_runtime.runtime)
        self._not_verified: list[str] = []
        self._precision = by_source(request.task, request.candidate)
        self.compiled: CompiledPlan | None = None  # of a candidate that is called so

    @property
    def others(self) -> list[str]:
        """Distributions beside the task's own that it was tried on."""
        return [name for name in self._comparator.distributions if name != "task"]

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
        except RuntimeError as error:
            # A worker whose device is lost answers nobody else, so what broke it ran just now; it
            # may have written over the code of the kernels that look at its results.
            if not device_lost(error):
                raise
            lost = rejection(error)
            return self._verification(lost.verdict, f"after it ran: {lost.reason}")
        if self._rules.has(Defence.NULLS):
            self._steps.begin("nulls")
            self._not_verified += self._task_runtime.nulls
        if off := self._rules.switched_off:
            self._not_verified.append(f"anything by {', '.join(off)}: switched off for a test")
        if self._request.effort != "certify":
            self._not_verified.append(f"distributions other than {self._used()}")
        beside = self._comparator.beside
        return self._verification(
            Verdict.CORRECT, f"right on inputs drawn from {self._used()}{beside}"
        )

    def _try_draws(self) -> None:
        request, runtime = self._request, self._task_runtime.runtime
        poisoned = self._rules.has(Defence.POISON)
        memory = GuardedMemory(runtime.device, runtime.rules.guard_bytes, poisoned=poisoned)
        self._steps.begin("load")
        runner = self._in_its_mode(plan_runner(runtime, request.candidate, request.built, memory))
        calls = library_calls(request.candidate.plan)
        announce = self._steps.candidate_runs
        trials = Trials(runtime, memory, runner, announce, keeps=True, calls=calls)
        trials.prepare()
        for number, draw in enumerate(self._draws()):
            self._steps.begin(f"verify {draw.distribution}")
            try:
                trials.run(
                    draw,
                    self._comparator,
                    twice=number == 0,
                    settle=self._steps.reference_runs,
                    weights=self._other_weights(number),
                    recycled=number % 2 == 1,  # as timed calls are; poison shows other things
                )
            except RefusedError as refused:
                if number == 0:
                    raise
                self._not_verified.append(f"{draw.distribution}: {refused}")
            if note := runtime.truth.note:
                self._not_verified.append(note)
                runtime.truth.note = ""
        self._not_verified += trials.skipped
        self._precision = self._measured(trials)

    def _in_its_mode(self, plain: PlanRunner) -> Runner:
        """What is verified: the plan, and where it is called inside torch.compile that as well.

        The replay of a CUDA graph is looked at while it is timed.
        """
        request, runtime = self._request, self._task_runtime.runtime
        if request.candidate.mode != "compile":
            return plain
        self._steps.begin("torch.compile")
        self._steps.compiles("torch.compile works around the candidate's launches")
        arguments = runtime.draw(Draw("task", fresh_seed(request.seed, "compiled")))
        weights = runtime.reference.weights()
        try:
            runner = load_candidate(request.candidate, request.built, runtime.device)
            self.compiled = CompiledPlan(runner, request.candidate.id)
            self.compiled.prepare(weights)
            self.compiled.compile(arguments, weights)
        except (LaunchRefused, DeviceError) as error:
            raise rejection(error) from error
        return GuardedFirst(plain, self.compiled)

    def _measured(self, trials: Trials) -> Precision:
        """Its digits; a screening measures them only where the source gives a reason to."""
        request, runtime = self._request, self._task_runtime.runtime
        if not self._rules.has(Defence.PRECISION):
            return Precision(label=task_precision(request.task))
        if request.effort == "screen" and not lower_precisions(request.task, request.candidate):
            return self._as_turned(self._precision)
        self._steps.begin("digits")
        seed = fresh_seed(request.seed, "digits")
        brief, settle = request.effort == "screen", self._steps.reference_runs
        found = measured(trials, runtime, request.candidate, seed, settle, is_brief=brief)
        return self._as_turned(found)

    def _as_turned(self, found: Precision) -> Precision:
        """No finer label than that of PyTorch's own result which it was as close as."""
        unseen = found.label == task_precision(self._request.task)
        coarser = unseen and self._comparator.coarser
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
        others: list[str] = []
        for name in ranked:
            if len(others) == count:
                break
            self._steps.say(f"PyTorch runs on inputs drawn from {name!r}", self._rules.reference_s)
            if self._task_runtime.runtime.tells(name):
                others.append(name)
            else:
                self._not_verified.append(f"{name}: {OWN_NOT_FINITE}")
        # Values must change in the same memory even where only the task's own will do.
        chosen = ["task", *(others or ["task"])]
        return [Draw(name, fresh_seed(self._request.seed, i)) for i, name in enumerate(chosen)]

    def _used(self) -> str:
        return ", ".join(dict.fromkeys(self._comparator.distributions))

    def _verification(self, verdict: Verdict, reason: str) -> Verification:
        comparator = self._comparator
        return Verification(
            verdict=verdict,
            reason=reason,
            error_ratio=comparator.error_ratio,
            errors=tuple(comparator.errors),
            allclose_1e4=comparator.allclose_1e4,
            allclose_1e2=comparator.allclose_1e2,
            precision=self._precision.label,
            effective_bits=self._precision.bits,
            apart=self._precision.apart,
            distributions=tuple(comparator.distributions),
            not_verified=tuple(dict.fromkeys(self._not_verified)),
        )


_MORE_LOOKS = 3


class Ladder:
    """Takes one compiled candidate up the ladder."""

    def __init__(
        self,
        task_runtime: TaskRuntime,
        request: JudgeRequest,
        announce: Callable[[Stage], None],
        meter: Meter,
    ) -> None:
        self._task_runtime = task_runtime
        self._request = request
        self._rules = request.rules
        self._steps = Steps(request, announce, meter)
        self._proof = Proof(task_runtime, request, self._steps)
        self._comparing = Comparing(task_runtime, request, self._steps)
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
        if verification.verdict is not Verdict.CORRECT or not self._request.timed:
            return evaluation
        try:
            return self._time(evaluation)
        except Exception as error:
            found = rejection(error)
            return self._failed(evaluation, found.verdict, f"while it was timed: {found.reason}")

    def _time(self, evaluation: Evaluation) -> Evaluation:
        runtime, request = self._task_runtime.runtime, self._request
        self._steps.begin("inputs")
        memory = SpoiltMemory(runtime.device)
        runner = load_candidate(
            request.candidate,
            request.built,
            runtime.device,
            allocator=memory,
            host=runtime.reference.host,
        )
        weights = {name: value.clone() for name, value in runtime.reference.weights().items()}
        self._steps.candidate_runs("the candidate prepares")
        watch = stopwatch(runtime.device)
        with memory.aside():
            prepare_ms = watch.time_ms(lambda: runner.prepare(weights))

        self._steps.say("inputs for timing are drawn", self._rules.reference_s)
        start = time.perf_counter()
        harness = self._task_runtime.harness
        self._steps.candidate_runs("the candidate is timed", often=True)
        launches = runner.launches(harness.sets[0], weights)
        evaluation = evaluation.model_copy(update={"launches": launches})
        self._steps.begin("coverage")
        share, method = self._coverage(weights)
        method += IN_MODE[self._request.candidate.mode] if method else ""
        self._steps.begin("time alone")
        called, prepare_again = self._in_its_mode(runner, weights)

        def prepares() -> None:
            with memory.aside():
                prepare_again()

        timed = self._proof.compiled or runner
        inspection = Inspection(
            runtime,
            weights,
            prepares,
            self._request.seed,
            harsh=self._proof.others,
            prepared=lambda: prepared_by(timed, weights),
            spoil=memory.spoil,
        )
        call = inspection.watching(called)
        harness.inspection = inspection
        try:
            return self._timed(evaluation, call, start, share, method, prepare_ms)
        finally:
            harness.inspection = None

    def _in_its_mode(
        self, runner: PlanRunner, weights: dict[str, Tensor]
    ) -> tuple[Timed, Callable[[], None]]:
        """What is timed, and what brings all that it prepared up to date with its weights."""
        compiled = self._proof.compiled
        if compiled is not None:
            compiled.prepare(weights)
            return (
                lambda arguments: compiled(arguments, weights),
                lambda: compiled.prepare_again(weights),
            )
        if self._request.candidate.mode == "graph":
            self._steps.candidate_runs("the candidate is captured as a graph")
            called = replayed(runner, self._task_runtime.harness.sets[0], weights)
            return called, lambda: runner.prepare_again(weights)
        return (
            lambda arguments: runner(arguments, weights),
            lambda: runner.prepare_again(weights),
        )

    def _coverage(self, weights: Mapping[str, Tensor]) -> tuple[float | None, str]:
        """Who does the work, seen in a run of its own."""
        if not self._rules.has(Defence.COVERAGE):
            return None, ""
        device, inputs = self._task_runtime.runtime.device, self._task_runtime.harness.sets[0]
        runner = load_candidate(
            self._request.candidate,
            self._request.built,
            device,
            host=self._task_runtime.runtime.reference.host,
        )
        runner.prepare(weights)
        share, method = coverage(lambda: runner(inputs, weights), runner, device)
        # No time counts what is done once, so whoever reads one is told.
        return share, f"{method}, {PREPARED}" if runner.kept(weights) else method

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
        runtime, request = self._task_runtime.runtime, self._request
        screen = self._screen(call)
        update = {"coverage": share, "method": method}
        evaluation = evaluation.model_copy(
            update={
                "verification": evaluation.verification.model_copy(update=update),
                "screen": screen,
                "launch_ms": self._launch_ms(call, screen),
                "prepare_ms": prepare_ms,
                "stages": self._spent("screen_s", start),
            }
        )
        # The request knows the ceilings as they are now; they may have been measured again.
        words = impossible(
            screen.median_ms, runtime.task, request.hardware, self._rules, request.baselines
        )
        if words and self._rules.has(Defence.FLOOR):
            return self._failed(evaluation, Verdict.BELOW_FLOOR, words)
        if request.effort == "screen":
            return evaluation
        start = time.perf_counter()
        comparisons = self._comparing.compare(call)
        modes = self._comparing.modes(call)
        told = (*evaluation.verification.not_verified, *self._comparing.failed)
        verification = evaluation.verification.model_copy(update={"not_verified": told})
        return evaluation.model_copy(
            update={
                "verification": verification,
                "comparisons": comparisons,
                "modes": modes,
                "stages": self._spent("time_s", start),
            }
        )

    def _screen(self, call: Timed) -> Measurement:
        rules, best = self._rules, self._request.best_ms
        hopeless = rules.hopeless_ratio * best if best is not None else float("inf")
        harness = self._task_runtime.harness
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

    def _launch_ms(self, call: Timed, screen: Measurement) -> float | None:
        """What single calls take longer than the device; None on a CPU, and for long calls."""
        harness = self._task_runtime.harness
        if not harness.on_gpu or screen.median_ms > self._rules.host_below_ms:
            return None
        alone_ms = harness.alone_ms(call, self._rules.host_samples)
        return max(0.0, alone_ms - screen.median_ms)

    def _spent(self, stage: str, start: float) -> StageTimes:
        self._stages = self._stages.model_copy(update={stage: time.perf_counter() - start})
        return self._stages

    def _failed(self, evaluation: Evaluation, verdict: Verdict, reason: str) -> Evaluation:
        update = {"verdict": verdict, "reason": reason}
        changed = evaluation.verification.model_copy(update=update)
        return evaluation.model_copy(update={"verification": changed})
