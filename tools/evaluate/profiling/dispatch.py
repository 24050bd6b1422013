"""What PyTorch really runs: kernels on a GPU, library operators on the host, with their times.

torch.profiler watches a forward after others have warmed the caches. On a GPU its activity records
name the kernels; on the host the operators are listed by the time they take themselves, and those
that only make views or memory are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import ProfilerActivity, profile

from kernelwright.tools.types import Dispatched
from kernelwright.tools.types.operators import words

_LEAST_SHARE = 0.005
_MOST = 40
_US_PER_MS = 1e3
# They make room or another view of it; no element is computed.
_NO_WORK = words(
    "empty empty_like empty_strided as_strided view t transpose permute reshape expand unsqueeze "
    "squeeze resize_ detach alias to slice select contiguous result_type narrow _unsafe_view "
    "view_as new_empty set_ numpy_T lift_fresh detach_"
)


def dispatched(
    forward: Callable[[], object], device: str, *, warm_ups: int = 2
) -> tuple[Dispatched, ...]:
    """What one forward runs on the device, the slowest first."""
    for _ in range(warm_ups):
        forward()
    on_gpu = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    if on_gpu:
        torch.cuda.synchronize()
    with profile(activities=activities) as watched:
        forward()
        if on_gpu:
            torch.cuda.synchronize()
    events = watched.key_averages()
    return _largest(_on_gpu(events) if on_gpu else _on_host(events))


def _on_gpu(events: Iterable[FunctionEventAvg]) -> list[Dispatched]:
    return [
        Dispatched(name=str(e.key), calls=e.count, time_ms=e.self_device_time_total / _US_PER_MS)
        for e in events
        if e.device_type == DeviceType.CUDA
    ]


def _on_host(events: Iterable[FunctionEventAvg]) -> list[Dispatched]:
    """Library calls have a namespace; ours around them, and torch's own frames, have none."""
    return [
        Dispatched(name=str(e.key), calls=e.count, time_ms=e.self_cpu_time_total / _US_PER_MS)
        for e in events
        if "::" in str(e.key) and str(e.key).removeprefix("aten::") not in _NO_WORK
    ]


def _largest(found: list[Dispatched]) -> tuple[Dispatched, ...]:
    """Without what hardly shows: a thousandth of the time explains nothing."""
    found = sorted(found, key=lambda item: -item.time_ms)
    total = sum(item.time_ms for item in found)
    return tuple(item for item in found[:_MOST] if item.time_ms >= _LEAST_SHARE * total)
