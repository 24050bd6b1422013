"""The clocks that a guest reports, neither of which is believed by itself, and the judge's memory.

`guest_clock` times calls as a program itself would: device events, or the monotonic clock.
`profiled` adds up durations of kernels, by CUPTI through torch's profiler. `opened` makes the
shared bytes a tensor in the guest.
"""

import time
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch._C._autograd import DeviceType

from kernelwright.tools.evaluate.foreign.messages import Memory
from kernelwright.tools.evaluate.foreign.shared_memory import HostMemory


def opened(memory: Memory, descriptor: int) -> Tensor:
    """The shared bytes as a tensor on the device."""
    if memory.device == "cpu":
        return HostMemory(descriptor, memory.size_bytes).raw
    from kernelwright.tools.evaluate.foreign.shared_memory import DeviceMemory

    return DeviceMemory.opened(descriptor, memory.size_bytes).raw


class GuestClock(Protocol):
    """Times calls on one device."""

    def time_ms(self, call: Callable[[], None]) -> float:
        """The call's duration; the device is idle before and after."""
        ...

    def drain(self) -> None:
        """Wait for everything that was issued."""
        ...


class HostClock:
    """The monotonic clock."""

    def __init__(self) -> None:
        self._now = time.perf_counter_ns  # as it was before foreign code came

    def time_ms(self, call: Callable[[], None]) -> float:
        """How long a call took that returns when its work is done."""
        start = self._now()
        call()
        return (self._now() - start) / 1e6

    def drain(self) -> None:
        """Nothing runs behind a CPU's back."""


class DeviceClock:
    """Events on the current stream, and the device drained by the driver itself."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        torch.zeros(1, device="cuda")  # torch makes its context current
        self._synchronise = driver.cuCtxSynchronize
        self._events = [torch.Event("cuda", enable_timing=True) for _ in range(2)]

    def time_ms(self, call: Callable[[], None]) -> float:
        """Between two events around the call; the whole device is drained after."""
        self.drain()
        start, stop = self._events
        start.record()
        call()
        stop.record()
        self.drain()
        return float(start.elapsed_time(stop))

    def drain(self) -> None:
        """Every stream of the context, not by torch's function, which code may replace."""
        (status,) = self._synchronise()
        if int(status) != 0:
            raise RuntimeError(f"CUDA error {int(status)}: {status.name}")


def guest_clock(device: str) -> GuestClock:
    """The clock for `cpu` or `cuda`."""
    return DeviceClock() if device == "cuda" else HostClock()


def profiled(
    call: Callable[[], None], drain: Callable[[], None]
) -> tuple[float | None, tuple[str, ...]]:
    """Summed device time of one run in milliseconds, and the kernels' names.

    None where the profiler sees no device, as on a CPU.
    """
    if not torch.cuda.is_available():
        call()
        return None, ()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        drain()
    events = [e for e in profile.events() if e.device_type == DeviceType.CUDA]
    spent_us = sum(event.self_device_time_total for event in events)
    return spent_us / 1e3, tuple(sorted({event.name for event in events}))
