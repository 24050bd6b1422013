"""Times foreign code against each of PyTorch's own ways, and compares three clocks over it.

Each comparison is an `InterleavedTimer`'s; here it is decided against which baselines, for how
long, and whether the clocks agree. Only the judge's is believed. The guest's own clock (device
events, or the monotonic one) and the summed work (kernel durations, or processor time by the
kernel's books) must tell the same story as the judge's wall clock. Where they do not, something hid
from one of them, and that is a verdict.
"""

import math
import os
import time

import torch

from kernelwright.tools.evaluate.finalists import impossible
from kernelwright.tools.evaluate.foreign.clock_readings import ClockReadings
from kernelwright.tools.evaluate.foreign.guest_link import (
    BaselineTroubleError,
    ForeignSession,
    GuestFailedError,
    GuestLostError,
    Seat,
)
from kernelwright.tools.evaluate.foreign.guest_runner import rejected
from kernelwright.tools.evaluate.foreign.interleaved import InterleavedTimer, Stand, Verify
from kernelwright.tools.evaluate.foreign.messages import Call, MakeReference
from kernelwright.tools.evaluate.messages import ForeignRequest
from kernelwright.tools.evaluate.rules import Defence, Rules, fresh_seed
from kernelwright.tools.evaluate.timing.conditions import conditions
from kernelwright.tools.evaluate.timing.statistics import Pairs, median, percentile, take_pairs
from kernelwright.tools.evaluate.verify.memory import io_bytes
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import Clocks, Comparison, Evaluation, Measurement, Verdict

_PROTOCOL = "the judge's own wall clock around calls in another process"
_WAITING = "threads of OpenMP that wait sleep, on both sides, so every waking is in the times"
_LATE = 0.02  # a span within another cannot be longer, but for the clocks' own grain
_AHEAD_MS, _AHEAD_PERCENTILE = 0.3, 65
_TICK_MS = 10.0  # processor time is booked in ticks


class Timing:
    """Times one candidate that was found right.

    Args:
        runtime: the task.
        request: what was asked.
        seat: the candidate's.
        session: has the reference's guest.
        verify: compares a timed answer with the truth.
        seed: of the draws, which no guest knows.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        request: ForeignRequest,
        seat: Seat,
        session: ForeignSession,
        verify: Verify,
        seed: int,
    ) -> None:
        self._runtime, self._request, self._seat, self._verify = runtime, request, seat, verify
        self._session, self._seed = session, seed
        self._sets: list[list[Argument]] = []
        self._theirs: Stand | None = None
        self._rules = runtime.rules
        self._failures: list[str] = []

    def against(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with a comparison for each baseline that can be made.

        Raises:
            RejectedError: the candidate failed, or the clocks disagree.
            BaselineTroubleError: there is not even an eager baseline.
        """
        most = self._calls(self._reference())
        self._sets = [
            self._runtime.draw(Draw("task", fresh_seed(self._seed, "stand", i)))
            for i in range(most)
        ]
        ours = Stand(self._runtime, self._seat, self._sets)
        ours.arrange(self._rules.reference_s)
        for name in self._request.compare_to:
            try:
                evaluation = self._beside(name, ours, self._opposite(), most, evaluation)
            except BaselineTroubleError as trouble:
                self._failures.append(f"its time beside {name}, which failed: {trouble}")
                if trouble.lost:
                    self._theirs = None
                    self._session.dismiss()
        told = (*evaluation.verification.not_verified, *self._failures)
        verification = evaluation.verification.model_copy(update={"not_verified": told})
        return evaluation.model_copy(update={"verification": verification})

    def _reference(self) -> Seat:
        """The reference's seat, where eager can be called."""
        seat = self._session.reference(self._runtime)
        self._make(seat, "eager")
        return seat

    def _opposite(self) -> Stand:
        """The baselines' stand; another one after its guest was lost."""
        if self._theirs is None:
            self._theirs = Stand(self._runtime, self._reference(), self._sets)
            self._theirs.arrange(self._rules.reference_s)
        return self._theirs

    def _beside(
        self, name: str, ours: Stand, theirs: Stand, most: int, evaluation: Evaluation
    ) -> Evaluation:
        self._make(theirs.seat, name)
        timer = InterleavedTimer(
            self._runtime,
            ours,
            theirs,
            most=most,
            seed=fresh_seed(self._seed, name),
            verify=self._verify,
            limit_s=self._rules.reference_s,
        )
        try:
            with timer.alone():
                pairs = self._pairs(timer)
        except (GuestFailedError, GuestLostError) as error:
            raise rejected(error, f"it was timed beside {name}") from error
        work_ms = self._profiled(ours, most)
        clocks = timer.readings.clocks(work_ms)
        if self._rules.has(Defence.COMPANIONS) and (words := worked_ahead(timer.readings)):
            raise RejectedError(Verdict.CHEATING, words)
        if self._rules.has(Defence.CLOCKS_AGREE):
            if words := noise(timer.readings):
                self._failures.append(f"its time beside {name}: {words}")
                return evaluation
            self._agree(timer, clocks, work_ms)
        comparison = self._comparison(name, pairs, most, timer)
        update = {"comparisons": (*evaluation.comparisons, comparison), "clocks": clocks}
        if evaluation.screen is None:
            update["screen"] = _measurement(comparison)
        words = impossible(
            comparison.candidate_ms,
            self._runtime.task,
            self._runtime.hardware,
            self._rules,
            None,
        )
        if words and self._rules.has(Defence.FLOOR) and comparison.ratio > 1.0:
            raise RejectedError(Verdict.BELOW_FLOOR, words)
        return evaluation.model_copy(update=update)

    def _pairs(self, timer: InterleavedTimer) -> Pairs:
        """Both in turns, once caches of code, allocators and clocks have settled."""
        for _ in range(2):
            timer.baseline()
            timer.candidate()
        timer.readings.clear()
        pairs = take_pairs(
            timer.baseline,
            timer.candidate,
            device=self._runtime.device,
            rules=self._rules,
            seconds=self._rules.certify_s,
            noise=0.0,
        )
        timer.surprise()
        timer.watch()
        return pairs

    def _agree(self, timer: InterleavedTimer, clocks: Clocks, work_ms: float | None) -> None:
        words = disagreement(timer.readings, clocks, self._parallel(work_ms), self._rules)
        if words:
            raise RejectedError(Verdict.CHEATING, words)

    def _parallel(self, work_ms: float | None) -> float:
        return 1.0 if work_ms is not None else float(len(os.sched_getaffinity(0)))

    def _profiled(self, ours: Stand, most: int) -> float | None:
        """Kernel durations of one round, a call's worth; None where there is no device."""
        if self._runtime.device != "cuda":
            return None
        calls = [Call(arguments=i, outputs=i) for i in range(most)]
        _, done = ours.go(calls, "profile", self._rules.reference_s, exact=True)
        return done.work_ms / most if done.work_ms is not None else None

    def _make(self, seat: Seat, name: str) -> None:
        order = MakeReference(task=self._request.task, seed=self._request.seed, way=name)
        seat.link.ask(order, self._rules.baseline_s)

    def _calls(self, reference: Seat) -> int:
        """How many calls make a round: enough to outweigh the protocol, as far as memory goes."""
        one = Stand(self._runtime, reference, [self._runtime.draw(Draw("task", self._seed))])
        one.arrange(self._rules.reference_s)
        taken = []
        for _ in range(3):
            wall_ms, _ = one.go(
                [Call(arguments=0, outputs=0)], "call", self._rules.reference_s, exact=True
            )
            taken.append(wall_ms)
        inputs, outputs = io_bytes(self._runtime.task)
        guards = (
            3
            * self._rules.guard_bytes
            * (len(self._runtime.task.inputs) + len(self._runtime.task.outputs))
        )
        weights = sum(
            s.tensor.size_bytes + 3 * self._rules.guard_bytes for s in self._runtime.task.weights
        )
        room = self._seat.arena.memory.raw.numel() - weights
        fits = int(0.9 * room) // (inputs + outputs + guards)
        wanted = math.ceil(self._rules.foreign_span_ms / min(taken))
        return max(1, min(wanted, fits, self._affordable(), self._rules.foreign_calls_max))

    def _affordable(self) -> int:
        """How many calls a round may have, as every answer of a round is held against the truth.

        The fewest pairs that a comparison needs shall fit into its time, whatever the load.
        """
        start = time.perf_counter()
        draw = Draw("task", fresh_seed(self._seed, "what a truth costs"))
        arguments = self._runtime.draw(draw)
        self._runtime.right(arguments, self._runtime.own(arguments))
        if self._runtime.device == "cuda":
            torch.cuda.synchronize()  # what was issued is not what it costs
        spent_s = time.perf_counter() - start
        return max(2, int(self._rules.certify_s / self._rules.pairs_min / spent_s))

    def _comparison(
        self, name: str, pairs: Pairs, most: int, timer: InterleavedTimer
    ) -> Comparison:
        notes = (
            _PROTOCOL,
            _WAITING,
            f"{most // 2 or 1} to {most} calls in a row; the protocol's "
            f"{timer.readings.protocol_ms:.3g} ms a call are taken off",
            *pairs.notes,
        )
        # On a GPU guests and other workers of ours are among the processes that are counted.
        seen = conditions(self._runtime.device, flushed=True, sets=most, notes=notes)
        alone = seen.model_copy(update={"other_processes": None})
        return pairs.beside(name, alone, "rounds")


def _measurement(comparison: Comparison) -> Measurement:
    samples = comparison.candidate_samples_ms
    return Measurement(
        median_ms=comparison.candidate_ms,
        p10_ms=percentile(samples, 10),
        p90_ms=percentile(samples, 90),
        samples_ms=samples,
        conditions=comparison.conditions,
    )


def noise(readings: ClockReadings) -> str:
    """Why the clocks cannot be compared on this machine now, or an empty word when they can.

    A call is told from the protocol's cost only if it takes more than that cost itself varies by:
    the middle half of it, as a median is held against it. Rounds that another process interrupted
    lie outside; they widen the interval of the ratio, and the allowances of `disagreement`.
    """
    each = [reading.wall_ms / reading.calls for reading in readings.nulls]
    low, high = percentile(each, 25), percentile(each, 75)
    whole = median([reading.wall_ms / reading.calls for reading in readings.candidate])
    if whole - readings.protocol_ms > high - low:
        return ""
    return (
        f"the clocks could not be compared: too noisy; calls that do no work took {low:.3g} to "
        f"{high:.3g} ms each, half of the time, the candidate's {whole:.3g} ms, so its time cannot "
        "be told from them"
    )


def worked_ahead(readings: ClockReadings) -> str:
    """Why the candidate's work was begun before the clock, or an empty word when it was not.

    A guest that waits for the word needs no processor. Threads of OpenMP spin a little before
    they sleep, so what nearly all of these rounds of the baseline's guest stayed below is allowed.
    It takes four of ten of the candidate's: a timer that begins the work does not fall into each of
    them on a busy machine. Without any (on a GPU) there is nothing to tell.
    """
    if not readings.ahead_ms:
        return ""
    honest = percentile(readings.baseline_ahead_ms, 90)
    ahead = percentile(readings.ahead_ms, _AHEAD_PERCENTILE)
    whole = median([r.wall_ms for r in readings.candidate])
    if ahead <= honest + _AHEAD_MS:
        return ""
    return (
        f"when its values lay there and nothing was asked of it yet, the guest used {ahead:.3g} ms "
        f"of processor time in four of ten rounds (the baseline's at most {honest:.3g} ms, nearly "
        f"always), and {whole:.3g} ms passed by the clock then: it works ahead"
    )


def disagreement(readings: ClockReadings, clocks: Clocks, parallel: float, rules: Rules) -> str:
    """Why the three clocks cannot all be right, or an empty word when they can.

    A busy machine lengthens what happens outside of a guest's own clock, and lets threads spin
    that wait. So each allowance is what honest rounds ever needed, those of the baseline and of
    calls that do nothing, in turns with the candidate's; and it takes most of the rounds to accuse.

    Args:
        readings: of all rounds.
        clocks: a call's worth.
        parallel: how much work can be done at once: processors, or 1 for a device.
        rules: the margins.
    """
    told = (
        f"the three clocks disagree: wall clock {clocks.wall_ms:.4g} ms, the candidate's own clock "
        f"{clocks.own_ms:.4g} ms, summed work {clocks.work_ms:.4g} ms a call"
    )
    honest = (*readings.nulls, *readings.baseline)
    outside = max(r.wall_ms - r.own_ms for r in honest)
    missed = median([(r.wall_ms - outside - r.own_ms) / r.wall_ms for r in readings.candidate])
    whole = median([r.wall_ms for r in readings.candidate])
    if missed > rules.clock_margin and missed * whole > rules.clock_slack_ms:
        return f"{told}; its own clock misses work"
    if median([r.own_ms / r.wall_ms for r in readings.candidate]) > 1.0 + _LATE:
        return f"{told}; its own clock does not tell the time"
    calls = median([r.calls for r in readings.candidate])
    spun = max(0.0, *(r.cpu_ms - parallel * r.wall_ms for r in honest))
    if clocks.work_ms * calls > parallel * (whole * (1 + rules.clock_margin) + _TICK_MS) + spun:
        return f"{told}; work was done that the wall clock did not see"
    return ""
