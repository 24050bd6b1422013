"""The third clock: durations of kernels, summed by CUPTI through torch's profiler."""

from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType


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
