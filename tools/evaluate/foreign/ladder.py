"""The ladder that foreign code climbs: read, build, verify, watch, time, try other shapes.

Each rung can end it; what is known by then is in the evaluation.

`Elsewhere` tries the shapes that the task does not have. A module was written for one task, and may
hold its sizes: that is no fault, but it is said. What fails is said as for any other candidate, and
ends the guest at worst. Not covered: sizes above the task's own, other element types and layouts.
"""

import json
import secrets
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.audit import (
    ForeignTrials,
    WorkAudit,
    audited,
    label,
    named,
    redraw,
)
from kernelwright.tools.evaluate.foreign.declarations import Declaration, read
from kernelwright.tools.evaluate.foreign.guest_link import (
    BaselineTroubleError,
    ForeignSession,
    GuestFailedError,
    GuestLostError,
    Seat,
)
from kernelwright.tools.evaluate.foreign.guest_runner import (
    GuestRejectedError,
    GuestRunner,
    LackingError,
    lacking,
    rejected,
)
from kernelwright.tools.evaluate.foreign.messages import Make
from kernelwright.tools.evaluate.foreign.timing import Timing
from kernelwright.tools.evaluate.messages import ForeignRequest, Stage
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Defence, fresh_seed
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.errors import finite
from kernelwright.tools.evaluate.verify.holdout import tried_on_others
from kernelwright.tools.evaluate.verify.measured_precision import Digits, probed
from kernelwright.tools.evaluate.verify.reasons import RejectedError, rejection
from kernelwright.tools.evaluate.verify.reference_runtime import (
    Draw,
    ReferenceRuntime,
    Result,
    harshest_first,
)
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.evaluate.verify.truth import Argument, UnverifiableError
from kernelwright.tools.tasks.loading.user_file import load_module
from kernelwright.tools.types import Evaluation, RefusedError, StageTimes, Verdict, Verification
from kernelwright.tools.types.verdict import OWN_NOT_FINITE


class Elsewhere:
    """The module that stands in a seat, called with inputs of other sizes.

    Args:
        seat: where it sits; nothing of earlier calls in its memory is needed any more.
        make: how the module was made.
        limit_s: how long a call may take, asked anew for each.
        first_s: how long the first call with other sizes may take.
        seed: of the draws.
    """

    def __init__(
        self,
        seat: Seat,
        make: Make,
        limit_s: Callable[[], float],
        first_s: Callable[[], float],
        seed: int,
    ) -> None:
        self._seat, self._make, self._seed = seat, make, seed
        self._limit_s, self._first_s = limit_s, first_s

    def fails(self, name: str, runtime: ReferenceRuntime) -> str:
        """Why it is not right on the inputs of that runtime; "" where it is.

        Args:
            name: what the shape is called.
            runtime: the task with inputs and outputs of that shape.
        """
        self._seat.memory.forget("input")
        self._seat.memory.forget("allocation")
        runner = GuestRunner(runtime, self._seat, self._make, self._limit_s, self._first_s)
        draw = Draw("normal", fresh_seed(self._seed, name))
        try:
            trials = Trials(runtime, self._seat.memory, runner, lambda _: None)
            trials.run(draw, ResultComparator(runtime), twice=False, settle=lambda: None)
        except (RejectedError, UnverifiableError) as found:
            return getattr(found, "reason", str(found))
        return trials.skipped[0] if trials.skipped else ""


_LONG_S = 3600.0  # every order has its own limit; the program's is a last resort
_ONLY_ON_A_GPU = (
    "its kernels, which are for a GPU: there is none here, and what was judged is what it does "
    "without them (--target cuda on a machine that has one judges them)"
)


class ForeignLadder:
    """Takes one foreign candidate up the ladder.

    Args:
        request: what is asked.
        session: seats guests.
        announce: told of stages.
    """

    def __init__(
        self, request: ForeignRequest, session: ForeignSession, announce: Callable[[Stage], None]
    ) -> None:
        self._request, self._rules, self._session = request, request.rules, session
        # The guest knows the request's seed, as both constructors draw weights under it: inputs
        # that followed from that could be worked out, and answered, before they are drawn.
        self._secret = secrets.randbits(62)
        announce(Stage(words="foreign code is judged", limit_s=_LONG_S, blame="judge"))
        self._runtime = ReferenceRuntime(
            request.task, request.hardware, request.rules, request.seed, no_new_processes
        )
        redraw(self._runtime, request.seed)  # on the host, as KernelBench draws them
        self._comparator = ResultComparator(self._runtime)
        self._not_verified: list[str] = []
        self._read: Declaration = read(
            request.foreign.source,
            request.foreign.entry,
            request.task.source,
            request.task.entry,
        )
        if self._read.for_gpu and self._runtime.device != "cuda":
            self._not_verified.append(_ONLY_ON_A_GPU)
        self._read = self._read.on(self._runtime.device)
        self._findings = WorkAudit()
        self._digits: Digits | None = None
        self._call_s = 0.0
        self._made = False

    def climb(self) -> Evaluation:
        """Every rung that the candidate deserves; LackingError where none can be tried here."""
        start = time.perf_counter()
        evaluation = Evaluation(
            candidate=self._request.foreign.name, verification=self._verification(*self._verify())
        )
        spent = StageTimes(verify_s=time.perf_counter() - start)
        prepare_ms = self._runner.made.seconds * 1e3 if self._made else None
        evaluation = evaluation.model_copy(update={"stages": spent, "prepare_ms": prepare_ms})
        if evaluation.verdict is Verdict.CORRECT and self._request.compare_to:
            evaluation = self._time(evaluation)
        if evaluation.verdict is Verdict.CORRECT and self._rules.has(Defence.HOLDOUT_SHAPES):
            evaluation = self._on_other_shapes(evaluation)
        return evaluation

    def _verify(self) -> tuple[Verdict, str]:
        try:
            self._try_everything()
        except RejectedError as found:
            self._raise_what_lacks(found)
            return self._sharpened(found)
        except UnverifiableError as error:
            return Verdict.OUT_OF_MEMORY, f"not verified: {error}"
        except (torch.OutOfMemoryError, MemoryError) as error:
            return Verdict.OUT_OF_MEMORY, f"not verified: {error}"
        except RefusedError as refused:
            return Verdict.CRASHED, f"the reference itself failed: {refused}"
        used = ", ".join(dict.fromkeys(self._comparator.distributions))
        beside = self._comparator.beside
        return Verdict.CORRECT, f"right on inputs drawn from {used}{beside}"

    def _raise_what_lacks(self, found: RejectedError) -> None:
        """LackingError where the code did not fail, but this machine."""
        failed = found.failed if isinstance(found, GuestRejectedError) else None
        if failed is None or failed.how not in ("import", "construct", "forward"):
            return
        if words := lacking(self._request.foreign.name, failed.words, self._runtime.device):
            raise LackingError(words)

    def _sharpened(self, found: RejectedError) -> tuple[Verdict, str]:
        """A result that is not there when the call returns has a reason where streams are made."""
        unfinished = (
            Verdict.WRONG_RESULT,
            Verdict.NOT_WRITTEN,
            Verdict.STALE_RESULT,
            Verdict.NONDETERMINISTIC,
        )
        watched = self._rules.has(Defence.CLOCKS_AGREE)
        if self._read.streams and found.verdict in unfinished and watched:
            return Verdict.CHEATING, (
                "its work goes on on a stream of its own after the call returned, where the "
                f"current stream does not wait for it: {found.reason}"
            )
        return found.verdict, found.reason

    def _try_everything(self) -> None:
        if self._rules.has(Defence.ALLOW_LIST) and self._read.forbidden:
            raise RejectedError(Verdict.CHEATING, "; ".join(self._read.forbidden))
        seed, runtime = self._secret, self._runtime
        seat = self._seat = self._session.candidate(runtime)
        self._runner = GuestRunner(runtime, seat, self._order(), self._limit_s, self._first_s)
        trials = ForeignTrials(runtime, seat, self._runner)
        trials.prepare()
        self._made = True
        self._eager()
        for number, draw in enumerate(self._draws()):
            try:
                trials.run(draw, self._comparator, twice=number == 0, settle=_nothing)
            except RefusedError as refused:
                if number == 0:
                    raise
                self._not_verified.append(f"{draw.distribution}: {refused}")
        again = Draw("task", fresh_seed(seed, "again"))
        trials.run(again, self._comparator, twice=False, settle=_nothing)
        if self._rules.has(Defence.NEW_VALUES):
            trials.one_element(again, self._comparator, _nothing)
        if self._rules.has(Defence.SETUP_TIMED):
            other = fresh_seed(seed, "other weights")
            note = trials.other_weights(
                again, self._comparator, _nothing, seed=other, taken=self._runner.taken
            )
            self._not_verified += [note] if note else []
        self._digits = self._probed(trials)
        self._not_verified += trials.skipped
        self._watch()

    def _probed(self, trials: ForeignTrials) -> Digits | None:
        """How many digits it computes with, as far as its task lets that be measured."""
        if not self._rules.has(Defence.PRECISION):
            return None
        ranges = bool(named(self._request.task, self._read, self._runner.settings))
        seed = fresh_seed(self._secret, "digits")
        return probed(trials, self._runtime, seed, _nothing, ranges=ranges, strict=True)

    def _watch(self) -> None:
        """Who does the work: what the guest's dispatcher saw, and what is written.

        What PyTorch compiles is labelled so whatever it calls, and a compiler that must have the
        whole forward refuses one whose operators are watched.
        """
        if self._read.compiles:
            return
        try:
            self._findings = audited(self._runtime, self._seat, self._limit_s() * 10, self._secret)
        except (GuestFailedError, GuestLostError) as error:
            raise rejected(error, "it was watched") from error
        words = self._findings.pretence(self._read, self._request.task)
        if words and self._rules.has(Defence.COVERAGE):
            raise RejectedError(Verdict.CHEATING, words)

    def _time(self, evaluation: Evaluation) -> Evaluation:
        timing = Timing(
            self._runtime,
            self._request,
            self._seat,
            self._session,
            self._verify_timed,
            self._secret,
        )
        start = time.perf_counter()
        try:
            found = timing.against(evaluation)
        except BaselineTroubleError as trouble:
            self._session.dismiss()
            found = _not_timed(evaluation, f"its times: PyTorch could not be timed: {trouble}")
        except (torch.OutOfMemoryError, MemoryError, UnverifiableError) as error:
            # A guest's own lack of memory comes as its failure; this is the judge's.
            self._session.dismiss()
            words = f"its times: there is no room to verify timed answers beside it: {error}"
            found = _not_timed(evaluation, words)
        except Exception as error:
            self._session.dismiss()
            failed = rejection(error)
            update = {"verdict": failed.verdict, "reason": f"while it was timed: {failed.reason}"}
            changed = evaluation.verification.model_copy(update=update)
            found = evaluation.model_copy(update={"verification": changed})
        stages = evaluation.stages.model_copy(update={"time_s": time.perf_counter() - start})
        return found.model_copy(update={"stages": stages})

    def _on_other_shapes(self, evaluation: Evaluation) -> Evaluation:
        """Which other shapes it is right on; the last rung, as its guest may be lost over it."""
        tried = Elsewhere(self._seat, self._order(), self._limit_s, self._first_s, self._secret)
        found = tried_on_others(self._runtime, self._secret, tried.fails, _nothing)
        update = {"shapes": found.words}
        changed = evaluation.verification.model_copy(update=update)
        return evaluation.model_copy(update={"verification": changed})

    def _verify_timed(
        self, draw: Draw, arguments: Sequence[Argument], got: Sequence[Tensor]
    ) -> None:
        """An answer of a timed call, held against the truth like any other."""
        own = self._runtime.own(arguments)
        if draw.distribution != "task" and not all(map(finite, own.outputs)):
            return  # as when it was verified: PyTorch itself has no answer there
        right = self._runtime.right(arguments, own)
        comparator = ResultComparator(self._runtime)
        outputs = Result(tuple(got), {})
        comparator.judge(draw, arguments, outputs, own, right, before=())

    def _order(self) -> Make:
        foreign, task = self._request.foreign, self._request.task
        file = load_module(task.source, task.path, task.project)
        getter = getattr(file, "get_init_inputs", list)
        try:
            arguments = json.dumps(getter())
        except (TypeError, ValueError):
            arguments = None  # tensors or types: the foreign file's own must do
        return Make(
            source=foreign.source,
            entry=foreign.entry,
            arguments=arguments,
            seed=self._request.seed,
            evaluation=task.evaluation,
        )

    def _draws(self) -> list[Draw]:
        others = harshest_first(self._request.task, self._rules)
        names = ["task", *(name for name in others if self._runtime.tells(name))]
        self._not_verified += [f"{one}: {OWN_NOT_FINITE}" for one in others if one not in names]
        return [Draw(name, fresh_seed(self._secret, i)) for i, name in enumerate(names)]

    def _eager(self) -> None:
        """How long PyTorch takes here, which bounds how long a candidate may."""
        arguments = self._runtime.draw(Draw("task", fresh_seed(self._secret, "eager")))
        self._runtime.own(arguments)
        start = time.perf_counter()
        self._runtime.own(arguments)
        if self._runtime.device == "cuda":
            torch.cuda.synchronize()
        self._call_s = time.perf_counter() - start

    def _limit_s(self) -> float:
        return self._rules.candidate_s + self._rules.candidate_slowdown * self._call_s

    def _first_s(self) -> float:
        """A limit for the first call, in which a compiler may have to run before the kernels do."""
        return self._rules.foreign_build_s if self._read.builds_late else self._limit_s()

    def _verification(self, verdict: Verdict, reason: str) -> Verification:
        comparator = self._comparator
        settings = self._runner.settings if self._made else ()
        precision, remarks = label(self._request.task, self._read, settings, self._digits)
        return Verification(
            verdict=verdict,
            reason=reason,
            error_ratio=comparator.error_ratio,
            errors=tuple(comparator.errors),
            allclose_1e4=comparator.allclose_1e4,
            allclose_1e2=comparator.allclose_1e2,
            coverage=self._findings.share,
            method=self._findings.method(self._read),
            precision=precision.label,
            effective_bits=precision.bits,
            apart=precision.apart,
            distributions=tuple(dict.fromkeys(comparator.distributions)),
            not_verified=tuple(dict.fromkeys((*self._not_verified, *remarks))),
        )


def _not_timed(evaluation: Evaluation, words: str) -> Evaluation:
    """The same evaluation, which says why it has no times."""
    told = (*evaluation.verification.not_verified, words)
    verification = evaluation.verification.model_copy(update={"not_verified": told})
    return evaluation.model_copy(update={"verification": verification})


def _nothing() -> None:
    """The judge's own worker is nobody's to blame: no stage to announce."""
