"""Times one call, and makes every timed call meet cold caches.

A `Stopwatch` only measures: with device events on a GPU, with the monotonic clock on a CPU. Whoever
calls it makes the caches cold and chooses the inputs. A GPU has two clocks. `queued_ms` issues the
call while the device is still busy with what was queued before it, so that the host is ahead and
the span between the events is the device's alone: what a model full of such calls would feel, and
what the field publishes (Triton's `do_bench`, KernelBench). Whether the host was ahead is checked
for every sample, not hoped for; where a flush is over too soon, the device is held before it by
a kernel that only waits. `time_ms` begins on an idle device: the span holds the host's time
to issue the call, guards of a compiled module included. On a CPU the two are one. Not covered: work
on other streams, which a plan cannot create.

Caches are cold in the same way for baseline and candidate. Inputs rotate among several sets
(`input_sets`), so that a call does not find the last one's data. Where all the sets together do not
exceed twice the last-level cache, a buffer of twice its size is written through outside the timed
span as well (`Flush`); on a GPU that is always done. On a CPU the harness then waits a moment, so
that the threads which wrote the buffer stop spinning for more work. Not covered: set-associativity,
and lines that a kernel asked the L2 to persist (a plan cannot).
"""

import time
from collections.abc import Callable
from math import ceil
from typing import Protocol

import torch

_FLUSH_CACHES = 2
# What the waiting kernel counts in a millisecond at 2 GHz; cards of today run at 1.3 to 2.6, and
# whoever holds one learns from the host whether it was long enough.
_CYCLES_A_MS = 2_000_000


def input_sets(call_bytes: int, cache_bytes: int, most: int) -> int:
    """How many sets of inputs rotate: enough to pass through the cache, but no more than fit.

    Args:
        call_bytes: what one call reads and writes.
        cache_bytes: the last-level cache.
        most: never more than this, but always one, and never a multiple of 4.
    """
    wanted = ceil(_FLUSH_CACHES * cache_bytes / max(call_bytes, 1)) + 1
    count = max(1, min(most, wanted))
    # In turns of A B B A, with 4 or 8 sets each would keep to its own half of them for good, and
    # what differs between the sets' memory would be taken for a difference between A and B.
    return count - 1 if count % 4 == 0 else count


class Flush:
    """Writes through twice the last-level cache, when it has to."""

    def __init__(self, device: str, cache_bytes: int, *, needed: bool, settle_s: float) -> None:
        self._on_cpu = not device.startswith("cuda")
        self._settle_s = settle_s
        self._buffer = (
            torch.zeros(_FLUSH_CACHES * cache_bytes // 4, dtype=torch.int32, device=device)
            if needed or not self._on_cpu
            else None
        )

    @property
    def flushes(self) -> bool:
        """Whether a buffer is written, rather than the inputs' rotation being enough."""
        return self._buffer is not None

    def __call__(self, hold_ms: float = 0.0) -> None:
        """Evict what the last call left behind, then let the runtime's threads go to sleep.

        Args:
            hold_ms: about as long a GPU is kept waiting first, while the host issues this and what
                comes next. More flushes would do so too, but the host must issue those as well.
        """
        if hold_ms > 0 and not self._on_cpu:
            # As PyTorch's own tests hold a stream; it has no types.
            torch.cuda._sleep(round(hold_ms * _CYCLES_A_MS))  # type: ignore[no-untyped-call]
        if self._buffer is not None:
            self._buffer.add_(1)
        if self._on_cpu:
            time.sleep(self._settle_s)


Call = Callable[[], object]


class Stopwatch(Protocol):
    """Measures calls on one device."""

    def time_ms(self, call: Call) -> float:
        """How long a single call took, in milliseconds, the host's part included."""
        ...

    def queued_ms(self, call: Call) -> tuple[float, bool]:
        """How long the device took, in milliseconds, and whether the host was ahead all along."""
        ...

    def drain(self) -> None:
        """Wait until the device has nothing left to do."""
        ...


class CpuStopwatch:
    """The monotonic clock around a call that returns when its work is done."""

    def time_ms(self, call: Call) -> float:
        """How long one call took; its result is dropped after the clock stopped."""
        start = time.perf_counter_ns()
        kept = call()
        stop = time.perf_counter_ns()
        del kept
        return max(stop - start, 1) / 1e6

    def queued_ms(self, call: Call) -> tuple[float, bool]:
        """The same, as the host is the device."""
        return self.time_ms(call), True

    def drain(self) -> None:
        """Nothing runs behind a CPU's back."""


class CudaStopwatch:
    """Two events around a call on the current stream, which the harness owns."""

    def __init__(self) -> None:
        self._start = torch.Event("cuda", enable_timing=True)
        self._stop = torch.Event("cuda", enable_timing=True)

    def time_ms(self, call: Call) -> float:
        """The time between the events; the device is drained before and after."""
        torch.cuda.synchronize()
        return self.queued_ms(call)[0]

    def queued_ms(self, call: Call) -> tuple[float, bool]:
        """The time between the events, behind what the device was given before.

        The host was ahead where the device had not come to the first event when the last one had
        been issued: then it found everything between the two in its queue.
        """
        self._start.record()
        kept = call()
        self._stop.record()
        ahead = not self._start.query()
        torch.cuda.synchronize()
        del kept
        return max(float(self._start.elapsed_time(self._stop)), 1e-6), ahead

    def drain(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize()


def stopwatch(device: str) -> Stopwatch:
    """The stopwatch for `cuda` or `cpu`."""
    return CudaStopwatch() if device.startswith("cuda") else CpuStopwatch()
