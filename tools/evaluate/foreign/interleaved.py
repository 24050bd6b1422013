"""Times foreign code and a baseline in turns, each in a guest of its own, on the same values.

A round is one pair: fresh values for every call, a number of calls nobody knew before, and each
call its own place for the answer. The clock is the judge's: it starts with the word go and stops
when the judge has looked into every answer (`Look`), so that nothing a guest says or replaces
can shorten it; whole answers are taken after it, and must hold what was seen.

What the protocol itself costs is measured with calls that deliver an answer which was written
before the word go, in the baseline's guest (foreign code must not be asked what to subtract), and
taken off both.

Some rounds do not count: their values are of another distribution, so that code which is careful
for the first calls only, while it is verified, is found out. Their answers are taken without
PyTorch, see `Go`.

On a CPU the candidate's guest stands still while the baseline's works, with everything that it
started, and both do while their values are laid out: nothing keeps the processors from the other
one, nor works ahead. Some rounds never begin: the values lie there, nobody stands still, and the
kernel's books tell whether anything is done about them (`worked_ahead`).
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.clock_readings import ClockReading, ClockReadings
from kernelwright.tools.evaluate.foreign.guest_link import Seat
from kernelwright.tools.evaluate.foreign.guest_runner import Chance, Look, unchanged
from kernelwright.tools.evaluate.foreign.messages import Arrange, Call, Done, Go, Rehearse, Way
from kernelwright.tools.evaluate.foreign.shared_memory import place_of, slots_of
from kernelwright.tools.evaluate.rules import Defence, fresh_seed
from kernelwright.tools.evaluate.timing.stopwatch import Flush
from kernelwright.tools.evaluate.verify.bits import same_bits
from kernelwright.tools.evaluate.verify.memory import poison_byte, refill
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import (
    Draw,
    ReferenceRuntime,
    harshest_first,
    tensors,
)
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import Verdict

_SURPRISE, _SURPRISES_MAX = 0.1, 3  # chance before a round, and how many there may be by chance
_IDLE_SHARE, _IDLE_MS = 0.3, 20.0  # threads of OpenMP spin a little before they sleep
# Between a round and the next values, so that what is used from then on shows. On a busy machine a
# thread takes longer to spin its few milliseconds; after so long it has, whatever the load.
_RESTS, _REST_S, _STILL_MS, _RESTED_S = 8, 0.02, 0.1, 0.3
_WATCH, _WATCHES, _WATCHES_MAX = (
    0.5,
    10,
    16,
)  # chance before a round; how many there are, in the end

Verify = Callable[[Draw, Sequence[Argument], Sequence[Tensor]], None]


class Stand:
    """One guest's buffers for a round: as many sets of arguments and answers as calls at most.

    Args:
        runtime: the task.
        seat: the guest's.
        sets: arguments to lay the places out by.
    """

    def __init__(
        self, runtime: ReferenceRuntime, seat: Seat, sets: Sequence[Sequence[Argument]]
    ) -> None:
        self.seat = seat
        self._device = runtime.device
        seat.memory.forget("input")
        seat.memory.forget("allocation")
        self.arguments = [
            [seat.memory.place(a, str(i)) if isinstance(a, Tensor) else a for i, a in enumerate(s)]
            for s in sets
        ]
        self.outputs = [seat.outputs(runtime) for _ in sets]
        self._taken = [tuple(torch.empty_like(o) for o in outputs) for outputs in self.outputs]
        self._looks = [tuple(map(Look, outputs)) for outputs in self.outputs]
        self._chance = Chance(runtime.device)
        self._done_at_s = 0.0
        self._still = False

    @property
    def since_done_s(self) -> float:
        """How long ago the guest said that it was done."""
        return time.monotonic() - self._done_at_s

    def arrange(self, limit_s: float) -> None:
        """Tell the guest of the places."""
        arena = self.seat.arena
        order = Arrange(
            arguments=tuple(slots_of(arena, arguments) for arguments in self.arguments),
            outputs=tuple(tuple(place_of(arena, o) for o in outs) for outs in self.outputs),
        )
        self.seat.link.ask(order, limit_s)

    def pause(self) -> None:
        """Let the guest stand still."""
        if not self._still:
            self._still = True
            self.seat.link.pause()

    def resume(self) -> None:
        """Let it go on.

        Raises:
            RejectedError: it did not stand still.
        """
        if not self._still:
            return
        self._still = False
        if woke := self.seat.link.resume():
            raise RejectedError(
                Verdict.CHEATING,
                "when nothing was asked of it the guest was to stand still, and some of it went on "
                f"({', '.join(woke)})",
            )

    def fill(self, values: Sequence[Sequence[Argument]]) -> None:
        """New values into the same memory, and poison where the answers belong."""
        for placed, given in zip(self.arguments, values, strict=False):
            for place, value in zip(tensors(placed), tensors(given), strict=True):
                refill(place, value)
        for output in (output for outputs in self.outputs for output in outputs):
            output.reshape(-1).view(torch.uint8).fill_(poison_byte(output.dtype))

    def go(
        self,
        calls: Sequence[Call],
        way: Way,
        limit_s: float,
        *,
        exact: bool,
        as_bytes: bool = False,
    ) -> tuple[float, Done]:
        """The calls between the judge's two looks at its clock; milliseconds, and the report."""
        places = [self._chance.places(output.numel()) for output in self.outputs[0]]
        looks = [
            (look, place)
            for call in calls
            for look, place in zip(self._looks[call.outputs], places, strict=True)
        ]
        for look, place in looks:
            look.aim(place)
        go = Go(calls=tuple(calls), way=way, exact=exact, as_bytes=as_bytes)
        running = self.seat.link.started(go, limit_s)
        self.settle()
        start = running.wait()
        for look, _ in looks:
            look.take()
        self.settle()
        wall_ms = (time.perf_counter_ns() - start) / 1e6
        self._done_at_s = time.monotonic()
        self._take_whole(calls)
        return wall_ms, running.report()

    def _take_whole(self, calls: Sequence[Call]) -> None:
        for call in calls:
            for mine, theirs in zip(
                self._taken[call.outputs], self.outputs[call.outputs], strict=True
            ):
                mine.copy_(theirs)
        self.settle()

    def was_there(self, call: Call) -> bool:
        """Whether what was seen of a call's answer under the clock stands in the whole."""
        looks, taken = self._looks[call.outputs], self._taken[call.outputs]
        return all(look.stands_in(whole) for look, whole in zip(looks, taken, strict=True))

    def taken(self, call: Call) -> tuple[Tensor, ...]:
        """The judge's own copy of a call's answer."""
        return self._taken[call.outputs]

    def settle(self) -> None:
        """Wait for the judge's own work on the device."""
        if self._device == "cuda":
            torch.cuda.synchronize()


class Round:
    """One pair's values: drawn afresh, with as many calls as chance decides."""

    def __init__(
        self, runtime: ReferenceRuntime, most: int, seed: int, distribution: str = "task"
    ) -> None:
        chance = random.Random(seed)
        self.count = chance.randint(max(1, most - most // 2), most)
        self.draws = [Draw(distribution, fresh_seed(seed, i)) for i in range(self.count)]
        self.values = [runtime.draw(draw) for draw in self.draws]
        # Which place answers which call is nobody's business but the judge's.
        places = chance.sample(range(most), self.count)
        self.calls = [Call(arguments=i, outputs=place) for i, place in enumerate(places)]


class InterleavedTimer:
    """Times a candidate and one baseline in turns.

    Args:
        runtime: the task.
        ours: the candidate's stand.
        theirs: the baseline's.
        most: calls in a round at most.
        seed: of the draws.
        verify: compares answers with the truth; RejectedError when they are wrong.
        limit_s: how long a round may take; the baseline's first may take `Rules.baseline_s`, as a
            compiler comes first.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        ours: Stand,
        theirs: Stand,
        *,
        most: int,
        seed: int,
        verify: Verify,
        limit_s: float,
    ) -> None:
        self._runtime, self._ours, self._theirs = runtime, ours, theirs
        self._most, self._seed, self._verify, self._limit_s = most, seed, verify, limit_s
        self._rules = runtime.rules
        cache = int(runtime.hardware.cache_mib * 2**20)
        self._flush = Flush(runtime.device, cache, needed=True, settle_s=self._rules.settle_s)
        self._rounds = 0
        self._round: Round | None = None
        self._used: set[str] = set()
        self._left: tuple[float, float] | None = None
        self._chance = random.SystemRandom()
        self._harsh = harshest_first(runtime.task, runtime.rules)
        self._surprises = 0
        self._compiled = False
        # Not on a GPU, where the work is the device's and nobody tried what a pause does to it.
        self._stills = runtime.device == "cpu" and self._rules.has(Defence.COMPANIONS)
        self.readings = ClockReadings()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Rounds are made inside; after it the candidate's guest goes on."""
        try:
            yield
        finally:
            self._ours.resume()

    def baseline(self) -> float:
        """One round of the baseline: milliseconds a call, the protocol's cost taken off."""
        if self._stills:
            self._ours.pause()
        current = self._take("baseline")
        limit_s = self._limit_s if self._compiled else max(self._limit_s, self._rules.baseline_s)
        reading = self._timed(self._theirs, current, "call", limit_s)
        self._compiled = True
        self.readings.nulls.append(self._timed(self._theirs, current, "null", self._limit_s))
        self.readings.baseline.append(reading)
        return self.readings.net_ms(reading)

    def candidate(self) -> float:
        """One round of the candidate, every answer of which is verified after the clock."""
        if self._chance.random() < _SURPRISE and self._surprises < _SURPRISES_MAX:
            self.surprise()
        if self._chance.random() < _WATCH and len(self.readings.ahead_ms) < _WATCHES_MAX:
            self._watch()
        current = self._take("candidate")
        reading = self._answered(current)
        self.readings.candidate.append(reading)
        return self.readings.net_ms(reading)

    def watch(self) -> None:
        """Rounds that never begin, as many as it takes to tell anything."""
        while self._stills and len(self.readings.ahead_ms) < _WATCHES:
            self._watch()

    def _watch(self) -> None:
        if not self._stills:
            return
        self._ours.resume()
        values = Round(self._runtime, self._most, self._chance.getrandbits(60)).values
        for stand, used_ms in (
            (self._theirs, self.readings.baseline_ahead_ms),
            (self._ours, self.readings.ahead_ms),
        ):
            before_ms = self._rested_ms(stand)
            stand.fill(values)
            self._flush()
            used_ms.append(self._used_ms(stand) - before_ms)

    def surprise(self) -> None:
        """A round like any other but for its values; the clock does not count.

        Raises:
            RejectedError: answers are wrong, and those to such values were right at first.
        """
        harsh = self._harsh or ["task"]
        name = harsh[self._surprises % len(harsh)]
        self._surprises += 1
        seed = fresh_seed(self._seed, "surprise", self._surprises)
        try:
            self._answered(Round(self._runtime, self._most, seed, name), as_bytes=True)
        except RejectedError as found:
            if found.verdict is Verdict.CHEATING:
                raise  # what it did says more than that it did so now
            words = f"it answered otherwise while it was timed than while it was verified: {found}"
            raise RejectedError(found.verdict, words) from None

    def _answered(self, current: Round, *, as_bytes: bool = False) -> ClockReading:
        """The candidate's answers to a round, verified."""
        before = self._ours.seat.link.books()
        self._idle(before.cpu_ms)
        reading = self._timed(self._ours, current, "call", self._limit_s, as_bytes=as_bytes)
        after = self._ours.seat.link.books()
        self._left = (after.cpu_ms, time.monotonic())
        self._afterwards(current)
        return reading.model_copy(update={"cpu_ms": after.cpu_ms - before.cpu_ms})

    def _take(self, who: str) -> Round:
        """The round of the present pair, another one when this one was used already."""
        if self._round is None or who in self._used:
            self._rounds += 1
            seed = fresh_seed(self._seed, "round", self._rounds)
            self._round, self._used = Round(self._runtime, self._most, seed), set()
        self._used.add(who)
        return self._round

    def _timed(
        self, stand: Stand, current: Round, way: Way, limit_s: float, *, as_bytes: bool = False
    ) -> ClockReading:
        before_ms = self._rested_ms(stand)
        if self._stills:
            stand.pause()
        stand.fill(current.values)
        self._flush()
        stand.resume()
        if way == "null":
            stand.seat.link.ask(Rehearse(), limit_s)
            before_ms = self._used_ms(stand)
        exact = self._rules.has(Defence.EXACT_RESULT)
        wall_ms, done = stand.go(current.calls, way, limit_s, exact=exact, as_bytes=as_bytes)
        return ClockReading(
            calls=current.count,
            wall_ms=wall_ms,
            own_ms=done.own_ms,
            cpu_ms=self._used_ms(stand) - before_ms,
        )

    def _rested_ms(self, stand: Stand) -> float:
        """Processor time of a guest whose threads have stopped spinning for more work."""
        used_ms = self._used_ms(stand)
        for _ in range(_RESTS if self._runtime.device == "cpu" else 0):
            if stand.since_done_s > _RESTED_S:
                break
            time.sleep(_REST_S)
            before_ms, used_ms = used_ms, self._used_ms(stand)
            if used_ms - before_ms < _STILL_MS:
                break
        return used_ms

    def _used_ms(self, stand: Stand) -> float:
        """Processor time of a guest; on a GPU it is the device that does the work."""
        return 0.0 if self._runtime.device == "cuda" else stand.seat.link.books().cpu_ms

    def _idle(self, cpu_ms: float) -> None:
        """Nothing may go on in the candidate's guest while nobody asks it."""
        if self._left is None or not self._rules.has(Defence.COMPANIONS):
            return
        used, gap_ms = cpu_ms - self._left[0], (time.monotonic() - self._left[1]) * 1e3
        if used > _IDLE_SHARE * gap_ms + _IDLE_MS:
            raise RejectedError(
                Verdict.CHEATING,
                f"between timed calls, when nothing was asked of it, the guest used {used:.0f} ms "
                f"of processor time within {gap_ms:.0f} ms",
            )

    def _afterwards(self, current: Round) -> None:
        """The answers are right, the same as at the end of the clock, and the inputs intact."""
        for call, draw, values in zip(current.calls, current.draws, current.values, strict=True):
            if self._rules.has(Defence.TIMED_RESULTS):
                self._verify(draw, values, self._ours.taken(call))
            if self._rules.has(Defence.LATE_CHANGES):
                self._in_time(call)
                unchanged(self._ours.outputs[call.outputs], self._ours.taken(call))
            if self._rules.has(Defence.INPUTS_UNCHANGED):
                self._intact(values, self._ours.arguments[call.arguments])

    def _in_time(self, call: Call) -> None:
        if not self._ours.was_there(call):
            raise RejectedError(
                Verdict.CHEATING,
                "a timed answer changed after it was returned, while the judge took it: the work "
                "was still going on when the candidate said that it was done",
            )

    def _intact(self, values: Sequence[Argument], placed: Sequence[Argument]) -> None:
        for number, (then, now) in enumerate(zip(tensors(values), tensors(placed), strict=True)):
            if not same_bits(now, then):
                raise RejectedError(
                    Verdict.INPUT_MUTATED, f"input {number} was changed by a timed call"
                )
