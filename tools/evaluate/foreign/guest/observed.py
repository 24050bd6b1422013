"""The clocks that a guest reports, neither of which is believed by itself, and the judge's memory.

`guest_clock` times calls as a program itself would: device events, or the monotonic clock.
`profiled` adds up durations of kernels, by CUPTI through torch's profiler. `opened` makes the
shared bytes a tensor in the guest.

PyTorch's baselines in a guest, and what foreign code left changed in its own process.

The reference is timed by the same protocol as foreign code, in a guest of its own. Settings and
threads are observed as far as that can be done from within.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from time import sleep  # as it was before foreign code came
from typing import Protocol

import torch
from torch import Tensor, nn
from torch._C._autograd import DeviceType

from kernelwright.tools.candidates.run.modes import captured
from kernelwright.tools.evaluate.foreign.messages import Constant, MakeReference, Memory
from kernelwright.tools.evaluate.foreign.shared_memory import HostMemory
from kernelwright.tools.evaluate.rules import GRAPHS
from kernelwright.tools.tasks import Reference


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


Forward = Callable[..., object]
_MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
_MADE: list[nn.Module] = []
_COMPILED: dict[str, Forward] = {}


def reference_forward(
    order: MakeReference, device: str, arguments: Sequence[list[Tensor | Constant]]
) -> tuple[nn.Module, Forward]:
    """The reference's module, and the way to call it.

    A guest serves one task only: the module is made once, under the first seed, and so is what a
    compiler made of it.

    Raises:
        ValueError: there is no such way.
        Exception: it cannot be made in that way.
    """
    if not _MADE:
        _MADE.append(Reference.build(order.task, device, seed=order.seed).module)
    module = _MADE[0]
    plain = _plain(module, GRAPHS.get(order.way, order.way))
    return module, Replays(plain, arguments) if order.way in GRAPHS else plain


def _plain(module: nn.Module, way: str) -> Forward:
    """The module, or what a compiler made of it."""
    if way == "eager":
        return module
    if way not in _MODES:
        raise ValueError(f"unknown baseline {way!r}")
    if way not in _COMPILED:
        _COMPILED[way] = torch.compile(module, mode=_MODES[way])
    return _COMPILED[way]


class Replays:
    """A forward as CUDA graphs, one for each set of arguments that stands ready."""

    def __init__(self, forward: Forward, arguments: Sequence[list[Tensor | Constant]]) -> None:
        self._forward, self._arguments = forward, arguments

    def __call__(self, *arguments: Tensor | Constant) -> object:
        """Replay what was captured on these very tensors."""
        return self._replays[_key(arguments)]()

    @cached_property
    def _replays(self) -> dict[tuple[int, ...], Callable[[], object]]:
        def replay(given: list[Tensor | Constant]) -> Callable[[], object]:
            with torch.no_grad():
                return captured(lambda: self._forward(*given))

        return {_key(given): replay(given) for given in self._arguments}


def _key(arguments: Sequence[Tensor | Constant]) -> tuple[int, ...]:
    return tuple(id(value) for value in arguments if isinstance(value, Tensor))


# Settings that trade digits for speed, each with the value that keeps them.
_PRECISION = ("matmul precision", "cuda tf32", "cudnn tf32", "fp16 reduction", "bf16 reduction")
# What torch's newer names of precisions for products are in the older words.
_NEWER = {"tf32": "high", "bf16": "medium"}
_LOOKS, _BETWEEN_S = 5, 2e-4


def settings() -> Mapping[str, object]:
    """Torch's global settings of precision, and the type of new tensors, as they are now."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    values = (
        _told(torch.get_float32_matmul_precision, _newer_precision),
        _told(lambda: matmul.allow_tf32, lambda: matmul.fp32_precision == "tf32"),
        _told(lambda: cudnn.allow_tf32, _newer_cudnn),
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    )
    return {**dict(zip(_PRECISION, values, strict=True)), "type": torch.get_default_dtype()}


def observations(usual: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Python's threads besides the main one, and settings that are not what they were."""
    now = settings()
    changed = tuple(f"{name}: {now[name]}" for name in now if now[name] != usual[name])
    return companions(), changed


def companions() -> tuple[str, ...]:
    """Python's threads besides the main one that do not end within a moment.

    One that is just ending has a frame and no name any more. The judge's clock still runs, so
    whoever ends by then had no time that is not counted.
    """
    names = _threads()
    for _ in range(_LOOKS):
        if not names:
            break
        sleep(_BETWEEN_S)
        names = _threads()
    return names


def _threads() -> tuple[str, ...]:
    known = threading.enumerate()
    # What a callback of C or the bare _thread started has a frame, and no name.
    nameless = ("one without a name",) * (len(sys._current_frames()) - len(known))
    return (*(thread.name for thread in known if not _usual(thread)), *nameless)


def _told(older: Callable[[], object], newer: Callable[[], object]) -> object:
    """A setting by its older name, which torch refuses to read where code used the newer one."""
    try:
        return older()
    except RuntimeError:
        return newer()


def _newer_precision() -> str:
    places = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    told = (place.fp32_precision for place in places)
    return next((_NEWER[name] for name in told if name in _NEWER), "highest")


def _newer_cudnn() -> bool:
    return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


def _usual(thread: threading.Thread) -> bool:
    """Whether it is the main one, or the one that looks after PyTorch's own progress bars.

    torch.compile's tuning draws such bars. What the guest says here could be a lie anyway, and is
    held against the kernel's books.
    """
    kind = type(thread)
    bars = (kind.__module__, kind.__qualname__) == ("tqdm._monitor", "TMonitor")
    return bars or thread is threading.main_thread()
