"""Times calls on one task's inputs: cold caches, warm clocks, alternating order.

Outputs are allocated by whoever runs, baseline and candidate alike, with torch's allocator; on a
CPU that counts the page faults of fresh memory on both sides. On a GPU, calls so short that the
host's launching would dominate are timed as graph replays, again on both sides.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, inf

import torch

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.timing.conditions import NOTHING, conditions, sm_clock_share
from kernelwright.tools.evaluate.timing.statistics import (
    Pairs,
    Sample,
    median,
    percentile,
    take_pairs,
)
from kernelwright.tools.evaluate.timing.stopwatch import Flush, graph, input_sets, stopwatch
from kernelwright.tools.evaluate.verify.inspection import Inspection
from kernelwright.tools.evaluate.verify.memory import available_bytes, io_bytes
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import Comparison, Conditions, Measurement
from kernelwright.tools.types.measurement import Mode

Timed = Callable[[Sequence[Argument]], object]

_IDLE_S = 1.0  # a GPU's clocks fall when nothing runs for about this long
_CLOCK_SHARE = 0.9
_ROOM_SHARE = 0.25


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
        self._gaps = random.Random(fresh_seed(runtime.seed, "gaps"))
        self._worked_at = float("-inf")

    def warm(self, call: Timed) -> None:
        """Run until caches of code, allocator and clocks have settled."""
        idle = time.monotonic() - self._worked_at > _IDLE_S
        on_gpu = self._device == "cuda"
        budget = self._rules.cold_warm_up_s if idle and on_gpu else self._rules.warm_up_s
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
        queued: bool = False,
        taken: Sequence[float] = (),
    ) -> Measurement:
        """Time one implementation on its own.

        Args:
            call: what is timed.
            seconds: stop after this long, flushes included.
            least: samples at least.
            most: samples at most.
            hopeless_ms: after two samples, a median above this ends it.
            notes: for the conditions.
            queued: see `Stopwatch.time_ms`.
            taken: samples of it under the same conditions that there are already; they count.
        """
        self.warm(call)
        samples = list(taken)
        start = time.monotonic()
        while len(samples) < most:
            samples.append(self._sample(call, queued))
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
        queued: bool = False,
        noise: float = 0.0,
        mode: Mode | None = None,
        beyond: float = inf,
    ) -> Comparison:
        """Time two implementations in turns, A B B A, so that drift meets both alike.

        Taken once more when other processes kept the processors busy; the quieter one counts.

        Args:
            name: of the baseline.
            baseline: a call of it.
            candidate: a call of what is compared with it.
            seconds: no further pair is begun after this long.
            notes: for the conditions.
            queued: see `Stopwatch.time_ms`.
            noise: see `Comparison.noise`.
            mode: another load than single calls with cold caches and warm clocks.
            beyond: see `Sequence95`.
        """
        self.warm(baseline)
        self.warm(candidate)
        noise = max(noise, self._twins_noise(baseline))
        top = self._sampler(baseline, queued, mode)
        bottom = self._sampler(candidate, queued, mode)
        pairs = self._pairs(top, bottom, seconds, noise, beyond)
        if (pairs.others_share or 0.0) > self._rules.busy_share:
            again = self._pairs(top, bottom, seconds, noise, beyond)
            pairs = min(pairs, again, key=lambda item: item.others_share or 0.0)
            notes = (*notes, "other processes kept the machine busy; taken twice")
        seen = {
            "others_share": pairs.others_share,
            "pairs_retaken": pairs.retaken,
            "pairs_unsteady": pairs.unsteady,
        }
        return Comparison(
            baseline=name,
            candidate_ms=median(pairs.candidate_ms),
            baseline_ms=median(pairs.baseline_ms),
            ratio=pairs.interval.median,
            ci95_low=pairs.interval.low,
            ci95_high=pairs.interval.high,
            pairs=len(pairs.candidate_ms),
            candidate_samples_ms=pairs.candidate_ms,
            baseline_samples_ms=pairs.baseline_ms,
            conditions=self._conditions((*notes, *pairs.notes), seen),
            noise=noise,
        )

    def _twins_noise(self, call: Timed) -> float:
        """By what share two of the same would differ, as no comparison of one with itself shows."""
        share = self._rules.twin_share
        if self._device != "cuda":
            return share
        few = sorted(self._sample(call, queued=True) for _ in range(3))
        return max(share, self._rules.twin_cuda_ms / few[1])

    def _sampler(self, call: Timed, queued: bool, mode: Mode | None) -> Sample:
        """What times one call under that load."""
        if mode == "server":
            return partial(self._after_a_gap, call)
        if mode == "offline":
            warm_ms = self._stopwatch.time_ms(lambda: call(self.sets[0]))
            wanted = ceil(self._rules.offline_ms / warm_ms)
            count = max(2, min(self._rules.offline_calls_max, wanted))
            return partial(self._back_to_back, call, count)
        return partial(self._sample, call, queued)

    def _after_a_gap(self, call: Timed) -> float:
        time.sleep(self._gaps.expovariate(1.0 / self._rules.server_gap_s))
        return self._sample(call, queued=False)

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
        self, baseline: Sample, candidate: Sample, seconds: float, noise: float, beyond: float
    ) -> Pairs:
        return take_pairs(
            baseline,
            candidate,
            device=self._device,
            rules=self._rules,
            seconds=seconds,
            noise=noise,
            beyond=beyond,
        )

    def as_graph(self, call: Timed) -> Timed | None:
        """The call as graph replays, one graph a set of inputs; None where it cannot be one."""
        try:
            replays: dict[int, Callable[[], object]] = {
                id(inputs): graph(partial(call, inputs)) for inputs in self.sets
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
        self._sample(call, False, look=True)

    def _sample(self, call: Timed, queued: bool, *, look: bool = False) -> float:
        inputs = self.sets[self._turn % len(self.sets)]
        self._turn += 1
        if self.inspection is not None:
            self.inspection.before(call, inputs, look=look)
        self._flush()
        elapsed = self._stopwatch.time_ms(lambda: call(inputs), queued=queued)
        if self.inspection is not None:
            self.inspection.after(inputs)
        self._worked_at = time.monotonic()
        return elapsed

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
