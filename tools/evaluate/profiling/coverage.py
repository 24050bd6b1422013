"""Which kernels and library operators run, and how much of the work a candidate's own kernels do.

`dispatched` lists what PyTorch really runs: torch.profiler watches several forwards, one by one,
after others have warmed the caches. On a GPU its activity records name the kernels; on the host the
operators are listed by the time they take themselves, and those that only make views or memory are
left out.

`coverage` tells who does a candidate's work, its own kernels or the library's operators, with a
label for it. Every launch of the candidate's and every torch operator that its plan causes is timed
by itself, in a run of its own. On a GPU only the device's time counts: each span waits behind a
pause, so that the host's time to issue it is not taken for work. Allocations and views are free,
and filling memory is counted for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Protocol

import torch
from torch._C._autograd import DeviceType
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.types import Dispatched
from kernelwright.tools.types.graph import words

_LEAST_SHARE = 0.005
_MOST = 40
_US_PER_MS = 1e3
# They make room or another view of it; no element is computed.
_NO_WORK = words(
    "empty empty_like empty_strided as_strided view t transpose permute reshape expand unsqueeze "
    "squeeze resize_ detach alias to slice select contiguous result_type narrow _unsafe_view "
    "view_as new_empty set_ numpy_T lift_fresh detach_"
)


# Forwards that are watched are no more than this, nor begun after so many seconds.
_RUNS_MAX, _RUNS_S = 9, 2.0
# Forwards before them; of one that takes longer than all of that time the first is enough.
_WARM_UPS = 3


def dispatched(
    forward: Callable[[], object], device: str, *, seconds: float = _RUNS_S
) -> tuple[tuple[Dispatched, ...], int]:
    """What one forward runs on the device, the slowest first; medians of so many forwards.

    They are warmed up, by one forward at least, and begun for no longer than `seconds`.
    """
    drain: Callable[[], object] = (
        torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    )
    start = time.monotonic()
    for _ in range(_WARM_UPS):
        forward()
        drain()
        if time.monotonic() - start > seconds:
            break
    runs, start = [_watched(forward, device, drain)], time.monotonic()
    while len(runs) < _RUNS_MAX and time.monotonic() - start < seconds:
        runs.append(_watched(forward, device, drain))
    return _largest(_medians(runs)), len(runs)


def _watched(
    forward: Callable[[], object], device: str, drain: Callable[[], object]
) -> list[Dispatched]:
    """What a single forward runs."""
    on_gpu = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as watched:
        forward()
        drain()
    events = watched.key_averages()
    return _on_gpu(events) if on_gpu else _on_host(events)


def _medians(runs: Sequence[Sequence[Dispatched]]) -> list[Dispatched]:
    """What most forwards ran, each with its middle time and count."""
    by_name: dict[str, list[Dispatched]] = {}
    for item in (item for run in runs for item in run):
        by_name.setdefault(item.name, []).append(item)
    return [
        Dispatched(
            name=name,
            calls=round(median(item.calls for item in found)),
            time_ms=median(item.time_ms for item in found),
        )
        for name, found in by_name.items()
        if 2 * len(found) > len(runs)
    ]


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


_FREE = ("aten.empty", "aten.new_empty", "aten.detach", "aten.lift_fresh", "aten.alias")
_FILLS = ("aten.zero", "aten.fill", "aten.full", "aten.ones", "aten.new_zeros")
_OWN, _SOME = 0.95, 0.05
_RUNS = 3
_PAUSE_CYCLES = 400_000  # some 200 us, longer than the host takes to issue anything


class Watched(Protocol):
    """A runner whose launches can be watched."""

    def watch(self, around: Callable[[Callable[[], None]], None]) -> None:
        """Have every launch made by `around`."""
        ...


def in_every_thread(forward: Callable[[], object]) -> tuple[float, tuple[str, ...]]:
    """The share of a forward's time within library operators on the host, and their names.

    A dispatch mode sees its own thread's operators, and none where modes are switched off. The
    profiler sees those too; it cannot wait for a device, so it says nothing about one.
    """
    everywhere = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=everywhere) as watched:
        start = time.perf_counter_ns()
        forward()
        whole_ms = (time.perf_counter_ns() - start) / 1e6
    found = [
        (item.name.rpartition("::")[2], item.time_ms)
        for item in _largest(_on_host(watched.key_averages()))
    ]
    work = [(name, spent) for name, spent in found if not f"aten.{name}".startswith(_FILLS)]
    share = sum(spent for _, spent in work) / max(whole_ms, 1e-6)
    # An operator and the one that it consists of, as softmax and _softmax, are one.
    names = {name.lstrip("_"): name for name, _ in reversed(work)}
    return min(share, 1.0), tuple(names.values())


class LibraryClock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the time of library operators while it is active.

    Args:
        drain: waits until the device has nothing left to do.
    """

    def __init__(self, drain: Callable[[], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drain = drain
        self.spent_ms = 0.0
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator, timed unless it does no work."""
        name = str(func)
        if func.is_view or name.startswith((*_FREE, *_FILLS)):
            return func(*args, **(kwargs or {}))
        results: list[object] = []
        self.spent_ms += self._span(lambda: results.append(func(*args, **(kwargs or {}))))
        self.names.add(name.removeprefix("aten.").split(".")[0])
        return results[0]

    def _span(self, call: Callable[[], object]) -> float:
        self._drain()
        start = time.perf_counter_ns()
        call()
        self._drain()
        return max(1, time.perf_counter_ns() - start) / 1e6


class Shares(LibraryClock):
    """The time of a candidate's launches as well, each given to `launch`."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device.startswith("cuda")
        super().__init__(torch.cuda.synchronize if self._on_gpu else lambda: None)
        self.own_ms = 0.0

    @property
    def share(self) -> float:
        """The candidate's own part of all the work; 0 when there was none."""
        total = self.own_ms + self.spent_ms
        return self.own_ms / total if total else 0.0

    def launch(self, call: Callable[[], None]) -> None:
        """Carry out a launch of the candidate's, timed."""
        self.own_ms += self._span(call)

    def _span(self, call: Callable[[], object]) -> float:
        if not self._on_gpu:
            return super()._span(call)
        first, last = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_PAUSE_CYCLES)  # type: ignore[no-untyped-call]
        first.record()
        call()
        last.record()
        torch.cuda.synchronize()
        return max(float(first.elapsed_time(last)), 1e-6)


def coverage(call: Callable[[], object], runner: Watched, device: str) -> tuple[float, str]:
    """The share of a call's work that the candidate's own kernels do, and a method label.

    The middle one of a few runs: a single one may be interrupted at the wrong moment.

    Args:
        call: one forward of the runner.
        runner: watched from now on.
        device: as torch names it.
    """
    runs: list[Shares] = []
    runner.watch(lambda launch: runs[-1].launch(launch))
    for _ in range(_RUNS):
        runs.append(Shares(device))
        with runs[-1]:
            call()
    share = sorted(run.share for run in runs)[_RUNS // 2]
    return share, label(share, runs[0].names)


def label(share: float, operators: set[str]) -> str:
    """How a result came about, in a few words."""
    listed = ", ".join(sorted(operators)[:4])
    if share >= _OWN or not operators:
        return "own kernels" if share else "no work at all"
    if share >= _SOME:
        return f"own kernels with library operators ({listed})"
    return f"library rearrangement ({listed})"
