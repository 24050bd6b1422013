"""The clocks by which `verify.py` times this export, pairs of calls, and what they show.

Not covered: what is compared, and in which words it is said.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence

import torch

# How long a GPU is held before a call, so that the host is ahead; the kernel that waits counts
# these cycles in a millisecond at 2 GHz.
LEAST_HOLD_MS, MOST_HOLD_MS, CYCLES_A_MS = 0.5, 32.0, 2_000_000
SHORTEST_HOLD_MS, HELD_AGAIN = 0.02, 0.98  # a stall is forgotten
WARM_UP_S = 0.3  # until a GPU's clocks have risen


class Clock:
    """Times one call in milliseconds; on a GPU with events and a flushed cache.

    `queued`: the device is held until the host has issued the whole call; `late` counts the
    samples in which it had not, though it was held as long as that may take.
    Otherwise the device is idle when the call is issued, and the call is the second of two, as of a
    program that makes it again and again.
    """

    def __init__(self, device: str, *, queued: bool) -> None:
        self.device = device
        self.gpu = device.startswith("cuda")
        self.queued, self.hold_ms, self.late = queued, 0.0, 0
        if self.gpu:
            size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
            self.flush = torch.empty(max(size, 1 << 20), dtype=torch.int8, device=device)

    def __call__(self, call: Callable[[], object], repeats: int) -> float:
        """The mean time of a call."""
        if not self.gpu:
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            return (time.perf_counter() - start) * 1e3 / repeats
        while True:
            taken_ms, ahead = self._taken(call)
            if ahead or not self.queued:
                shorter_ms = self.hold_ms * HELD_AGAIN
                self.hold_ms = shorter_ms if shorter_ms > SHORTEST_HOLD_MS else 0.0
                return taken_ms
            if self.hold_ms >= MOST_HOLD_MS:
                self.late += 1
                return taken_ms
            self.hold_ms = max(2 * self.hold_ms, LEAST_HOLD_MS)

    def _taken(self, call: Callable[[], object]) -> tuple[float, bool]:
        """Milliseconds between two events, and whether both were issued before the first came."""
        if not self.queued:
            call()
        if self.hold_ms:
            torch.cuda._sleep(round(self.hold_ms * CYCLES_A_MS))  # type: ignore[no-untyped-call]
        self.flush.zero_()
        begin, end = (torch.Event(self.device, enable_timing=True) for _ in range(2))
        if not self.queued:
            torch.cuda.synchronize()
        begin.record()
        kept = call()
        end.record()
        ahead = not begin.query()
        end.synchronize()
        del kept  # freeing the result is not part of the call
        return float(begin.elapsed_time(end)), ahead


def compare(
    mine: Callable[[], object],
    theirs: Callable[[], object],
    clock: Clock,
    seconds: float,
    least: int = 20,
) -> list[float]:
    """Ratios of the reference's time to the module's, pair by pair, in alternating order.

    At least that many pairs, however long they take.
    """
    warm_until = time.perf_counter() + (WARM_UP_S if clock.gpu else 0.0)
    for number in itertools.count():  # a GPU's clocks fell while torch.compile was at work
        if number >= 5 and time.perf_counter() >= warm_until:
            break
        theirs()
        mine()
        if clock.gpu:
            torch.cuda.synchronize()
    once_ms = clock(theirs, 1)
    repeats = 1 if clock.gpu else max(1, min(1000, round(0.5 / max(once_ms, 1e-4))))
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while len(ratios) < least or (time.perf_counter() < end and len(ratios) < 2000):
        first_mine = len(ratios) % 2 == 0
        a = clock(mine if first_mine else theirs, repeats)
        b = clock(theirs if first_mine else mine, repeats)
        ratios.append(b / a if first_mine else a / b)
    return ratios


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """A bootstrap 95 % interval of the median."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(1000))
    return medians[25], medians[974]
