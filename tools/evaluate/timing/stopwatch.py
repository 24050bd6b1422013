"""Times one call: with device events on a GPU, with the monotonic clock on a CPU.

The caller makes the caches cold and chooses the inputs; a stopwatch only measures. On a GPU the
device is idle before the first event is recorded, so the span includes the host's time to issue
the launches, as a user who calls the module would see it; `graph` takes that away.
Not covered: work on other streams, which a plan cannot create.
"""

import time
from collections.abc import Callable
from typing import Protocol

import torch

Call = Callable[[], object]


class Stopwatch(Protocol):
    """Measures calls on one device."""

    def time_ms(self, call: Call, *, queued: bool = False) -> float:
        """How long one call took, in milliseconds; `queued`: behind what the device still does."""
        ...

    def drain(self) -> None:
        """Wait until the device has nothing left to do."""
        ...


class CpuStopwatch:
    """The monotonic clock around a call that returns when its work is done."""

    def time_ms(self, call: Call, *, queued: bool = False) -> float:
        """How long one call took; its result is dropped after the clock stopped."""
        start = time.perf_counter_ns()
        kept = call()
        stop = time.perf_counter_ns()
        del kept
        return max(stop - start, 1) / 1e6

    def drain(self) -> None:
        """Nothing runs behind a CPU's back."""


class CudaStopwatch:
    """Two events around a call on the current stream, which the harness owns."""

    def __init__(self) -> None:
        self._start = torch.Event("cuda", enable_timing=True)
        self._stop = torch.Event("cuda", enable_timing=True)

    def time_ms(self, call: Call, *, queued: bool = False) -> float:
        """Device time between the events; the device is drained after, and before.

        `queued` leaves out the draining before: the call is issued while the device is still
        busy flushing its cache, so that the host's time to issue it does not count.
        """
        if not queued:
            torch.cuda.synchronize()
        self._start.record()
        kept = call()
        self._stop.record()
        torch.cuda.synchronize()
        del kept
        return max(float(self._start.elapsed_time(self._stop)), 1e-6)

    def drain(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize()


def stopwatch(device: str) -> Stopwatch:
    """The stopwatch for `cuda` or `cpu`."""
    return CudaStopwatch() if device.startswith("cuda") else CpuStopwatch()


def graph(call: Call) -> Call:
    """The call as a replay of a CUDA graph, without the host's cost of each launch.

    Raises:
        RuntimeError: the call cannot be captured (it synchronises, or moves data to the host).
    """
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        kept = call()

    def replay() -> object:
        recorded.replay()
        return kept

    return replay
