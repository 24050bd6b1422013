"""Times calls on one task's inputs: cold caches, warm clocks, alternating order.

Outputs are allocated by whoever runs, baseline and candidate alike, with torch's allocator; on a
CPU that counts the page faults of fresh memory on both sides. On a GPU a time is the device's, with
the call queued behind the flush of the caches; single calls on an idle device stand beside it.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil, inf

import torch

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.candidates.run.modes import captured
from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.timing.conditions import NOTHING, conditions, sm_clock_share
from kernelwright.tools.evaluate.timing.statistics import (
    Pairs,
    Sample,
    median,
    percentile,
    take_pairs,
)
from kernelwright.tools.evaluate.timing.stopwatch import Flush, input_sets, stopwatch
from kernelwright.tools.evaluate.verify.inspection import Inspection
from kernelwright.tools.evaluate.verify.memory import available_bytes, io_bytes
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import Clock, Comparison, Conditions, Measurement
from kernelwright.tools.types.measurement import Mode, Paired

Timed = Callable[[Sequence[Argument]], object]

_IDLE_S = 1.0  # a GPU's clocks fall when nothing runs for about this long
_CLOCK_SHARE = 0.9
_ROOM_SHARE = 0.25
# A hold begins with the first and, after a stall, ends below the second: a launch takes as long.
_LEAST_HOLD_MS, _SHORTEST_HOLD_MS, _HELD_AGAIN = 0.5, 0.02, 0.98


class Harness:
    """The inputs, the cold caches and the stopwatch for one task on one device."""

    def __init__(self, runtime: ReferenceRuntime) -> None:
        rules, self._device = runtime.rules, runtime.device
        self._rules = rules
        self._stopwatch = stopwatch(self._device)
        cache = int(runtime.hardware.cache_mib * 2**20)
        moved = max(runtime.task.bytes_moved, 1)
        room = int(available_bytes(self._device, rules.memory_fraction) * _ROOM_SHARE)
        most = room // max(io_bytes(runtime.task)[0], 1)
        count = input_sets(moved, cache, min(most, rules.input_sets_max))
        self.sets = [
            runtime.draw(Draw("task", fresh_seed(runtime.seed, "timing", i))) for i in range(count)
        ]
        needed = count * moved < 2 * cache
        self._flush = Flush(self._device, cache, needed=needed, settle_s=rules.settle_s)
        self.inspection: Inspection | None = None  # of the candidate that is timed
        self._turn = 0
        self._hold_ms = 0.0
        self._waiting = 0
        self._gaps = random.Random(fresh_seed(runtime.seed, "gaps"))
        self._worked_at = float("-inf")

    @property
    def on_gpu(self) -> bool:
        """Whether there are two clocks."""
        return self._device == "cuda"

    @property
    def clock(self) -> Clock:
        """The headline's."""
        return "device" if self.on_gpu else "wall"

    def warm(self, call: Timed) -> None:
        """Run until caches of code, allocator and clocks have settled."""
        idle = time.monotonic() - self._worked_at > _IDLE_S
        budget = self._rules.cold_warm_up_s if idle and self.on_gpu else self._rules.warm_up_s
        start, runs = time.monotonic(), 0
        while runs < 2 or time.monotonic() - start < budget:
            call(self.sets[runs % len(self.sets)])
            self._stopwatch.drain()
            runs += 1
            if idle and runs >= 2 and (sm_clock_share() or 0.0) >= _CLOCK_SHARE:
                break
        self._worked_at = time.monotonic()

    def measure(
        self,
        call: Timed,
        *,
        seconds: float,
        least: int,
        most: int,
        hopeless_ms: float = float("inf"),
        notes: tuple[str, ...] = (),
        taken: Sequence[float] = (),
    ) -> Measurement:
        """Time one implementation on its own, by the headline's clock.

        Args:
            call: what is timed.
            seconds: stop after this long, flushes included.
            least: samples at least.
            most: samples at most.
            hopeless_ms: after two samples, a median above this ends it.
            notes: for the conditions.
            taken: samples of it under the same conditions that there are already; they count.
        """
        self.warm(call)
        samples = list(taken)
        start = time.monotonic()
        while len(samples) < most:
            samples.append(self._sample(call))
            if len(samples) >= 2 and median(samples) > hopeless_ms:
                notes = (*notes, "stopped early: too slow to matter")
                break
            if len(samples) >= least and time.monotonic() - start > seconds:
                break
        return self._measurement(samples, notes)

    def compare(
        self,
        name: str,
        baseline: Timed,
        candidate: Timed,
        *,
        seconds: float,
        notes: tuple[str, ...] = (),
        noise: float = 0.0,
        mode: Mode | None = None,
        beyond: float = inf,
        patience_s: float = 0.0,
    ) -> Comparison:
        """Time two implementations in turns, A B B A, so that drift meets both alike.

        By the headline's clock, or under another load by that of single calls. Where other
        processes kept the processors busy it goes on as far as there is patience; without any it is
        taken once more, and the quieter one counts.

        Args:
            name: of the baseline.
            baseline: a call of it.
            candidate: a call of what is compared with it.
            seconds: no further pair is begun after this long.
            notes: for the conditions.
            noise: see `Paired.noise`.
            mode: another load than the headline's, see `ModeTiming`.
            beyond: see `Sequence95`.
            patience_s: see `take_pairs`.
        """
        self.warm(baseline)
        self.warm(candidate)
        noise = max(noise, self._twins_noise(baseline))
        top, bottom = self._sampler(baseline, mode), self._sampler(candidate, mode)
        pairs = self._pairs(top, bottom, seconds, noise, beyond, patience_s)
        if (pairs.others_share or 0.0) > self._rules.busy_share and not patience_s:
            again = self._pairs(top, bottom, seconds, noise, beyond, patience_s)
            pairs = min(pairs, again, key=lambda item: item.others_share or 0.0)
            notes = (*notes, "other processes kept the machine busy; taken twice")
        seen = {
            "others_share": pairs.others_share,
            "pairs_retaken": pairs.retaken,
            "pairs_unsteady": pairs.unsteady,
        }
        return pairs.beside(
            name,
            self._conditions((*notes, *self._waits(), *pairs.notes), seen),
            self.clock if mode is None else ("call" if self.on_gpu else "wall"),
            noise,
        )

    def latency(self, baseline: Timed, candidate: Timed, *, seconds: float, noise: float) -> Paired:
        """Single calls of two implementations on an idle device, in turns.

        Each is the second of two, as of a program that makes the same call again and again: what
        was done in between by whoever times has left the host's caches. Nothing is inspected, which
        would be done in between too; the same calls are, by the headline's clock.

        Args:
            baseline: a call of it.
            candidate: issued in the same way.
            seconds: no further pair is begun after this long.
            noise: see `Paired.noise`.
        """
        self.warm(baseline)
        self.warm(candidate)
        top, bottom = partial(self._again, baseline), partial(self._again, candidate)
        with self._unwatched():
            return self._pairs(top, bottom, seconds, noise, inf, 0.0).paired(noise)

    def alone_ms(self, call: Timed, samples: int) -> float:
        """The median of that many single calls on an idle device, in milliseconds."""
        with self._unwatched():
            return median([self._again(call) for _ in range(samples)])

    def quick_ms(self, call: Timed, samples: int) -> float:
        """The median of that many calls by the headline's clock, with nothing warmed up."""
        with self._unwatched():
            return median([self._sample(call) for _ in range(samples)])

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Nothing is inspected meanwhile."""
        watching, self.inspection = self.inspection, None
        try:
            yield
        finally:
            self.inspection = watching

    def _again(self, call: Timed) -> float:
        """A single call that was just made on other inputs."""
        call(self.sets[self._turn % len(self.sets)])
        return self._alone(call)

    def _twins_noise(self, call: Timed) -> float:
        """By what share two of the same would differ, as no comparison of one with itself shows."""
        share = self._rules.twin_share
        if not self.on_gpu:
            return share
        few = sorted(self._sample(call) for _ in range(3))
        return max(share, self._rules.twin_cuda_ms / few[1])

    def _sampler(self, call: Timed, mode: Mode | None) -> Sample:
        """What times one call under that load."""
        if mode == "server":
            return partial(self._after_a_gap, call)
        if mode == "offline":
            warm_ms = self._stopwatch.time_ms(lambda: call(self.sets[0]))
            wanted = ceil(self._rules.offline_ms / warm_ms)
            count = max(2, min(self._rules.offline_calls_max, wanted))
            return partial(self._back_to_back, call, count)
        return partial(self._sample, call)

    def _after_a_gap(self, call: Timed) -> float:
        time.sleep(self._gaps.expovariate(1.0 / self._rules.server_gap_s))
        return self._alone(call)

    def _back_to_back(self, call: Timed, count: int) -> float:
        """One call's share of many on the same inputs, which stay in the caches."""
        inputs = self.sets[0]

        def many() -> None:
            for _ in range(count):
                call(inputs)

        if self.inspection is not None:
            self.inspection.before(call, inputs)
        elapsed = self._stopwatch.time_ms(many)
        if self.inspection is not None:
            self.inspection.after(inputs)
        self._worked_at = time.monotonic()
        return elapsed / count

    def _pairs(
        self,
        baseline: Sample,
        candidate: Sample,
        seconds: float,
        noise: float,
        beyond: float,
        patience_s: float,
    ) -> Pairs:
        return take_pairs(
            baseline,
            candidate,
            device=self._device,
            rules=self._rules,
            seconds=seconds,
            noise=noise,
            beyond=beyond,
            patience_s=patience_s,
        )

    def as_graph(self, call: Timed) -> Timed | None:
        """The call as graph replays, one graph a set of inputs; None where it cannot be one."""
        try:
            replays: dict[int, Callable[[], object]] = {
                id(inputs): captured(partial(call, inputs)) for inputs in self.sets
            }
        except (RuntimeError, LaunchRefused):
            torch.cuda.synchronize()
            return None
        return lambda inputs: replays[id(inputs)]()

    def once_ms(self, call: Callable[[], object]) -> float:
        """One call without preparation, such as a plan's set-up."""
        return self._stopwatch.time_ms(call)

    def look(self, call: Timed) -> None:
        """One more call that is timed and verified, and does not count."""
        self._sample(call, look=True)

    def _sample(self, call: Timed, *, look: bool = False) -> float:
        """One call by the headline's clock, in milliseconds; taken again until the host is ahead.

        The device is held for as long as that takes, baseline and candidate alike; a little less
        each time, as one stall of a busy host is no reason to hold it as long ever after.
        """
        most = self._rules.hold_max_ms
        while True:
            elapsed, ahead = self._taken(call, self._stopwatch.queued_ms, self._hold_ms, look)
            if ahead:
                shorter_ms = self._hold_ms * _HELD_AGAIN
                self._hold_ms = shorter_ms if shorter_ms > _SHORTEST_HOLD_MS else 0.0
                return elapsed
            if self._hold_ms >= most:
                self._waiting += 1
                return elapsed
            self._hold_ms = min(max(2 * self._hold_ms, _LEAST_HOLD_MS), most)

    def _alone(self, call: Timed) -> float:
        """A single call on an idle device, in milliseconds."""

        def taken(work: Callable[[], object]) -> tuple[float, bool]:
            return self._stopwatch.time_ms(work), True

        return self._taken(call, taken, 0.0, look=False)[0]

    def _taken(
        self,
        call: Timed,
        watch: Callable[[Callable[[], object]], tuple[float, bool]],
        hold_ms: float,
        look: bool,
    ) -> tuple[float, bool]:
        inputs = self.sets[self._turn % len(self.sets)]
        self._turn += 1
        if self.inspection is not None:
            self.inspection.before(call, inputs, look=look)
        self._flush(hold_ms)
        found = watch(lambda: call(inputs))
        if self.inspection is not None:
            self.inspection.after(inputs)
        self._worked_at = time.monotonic()
        return found

    def _waits(self) -> tuple[str, ...]:
        """That some samples hold the host's time all the same, as a call waits for the device."""
        if not self._waiting:
            return ()
        count, self._waiting = self._waiting, 0
        return (f"in {count} samples the device waited for the host, though it was held before",)

    def _measurement(self, samples: Sequence[float], notes: tuple[str, ...]) -> Measurement:
        return Measurement(
            median_ms=median(samples),
            p10_ms=percentile(samples, 10),
            p90_ms=percentile(samples, 90),
            samples_ms=tuple(samples),
            conditions=self._conditions(notes),
        )

    def _conditions(
        self, notes: tuple[str, ...], seen: Mapping[str, float | int | None] = NOTHING
    ) -> Conditions:
        return conditions(
            self._device, flushed=self._flush.flushes, sets=len(self.sets), notes=notes, seen=seen
        )
