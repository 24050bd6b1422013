"""PyTorch's baselines in a guest, and what foreign code left changed in its own process.

The reference is timed by the same protocol as foreign code, in a guest of its own. Settings and
threads are observed as far as that can be done from within.
"""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from time import sleep  # as it was before foreign code came

import torch
from torch import Tensor, nn

from kernelwright.tools.evaluate.foreign.messages import Constant, MakeReference
from kernelwright.tools.evaluate.timing.stopwatch import graph
from kernelwright.tools.tasks import Reference

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
    if order.way == "eager":
        return module, module
    if order.way in _MODES:
        if order.way not in _COMPILED:
            _COMPILED[order.way] = torch.compile(module, mode=_MODES[order.way])
        return module, _COMPILED[order.way]
    if order.way == "graph":
        return module, Replays(module, arguments)
    raise ValueError(f"unknown baseline {order.way!r}")


class Replays:
    """Eager as CUDA graphs, one for each set of arguments that stands ready."""

    def __init__(self, module: nn.Module, arguments: Sequence[list[Tensor | Constant]]) -> None:
        self._module, self._arguments = module, arguments

    def __call__(self, *arguments: Tensor | Constant) -> object:
        """Replay what was captured on these very tensors."""
        return self._replays[_key(arguments)]()

    @cached_property
    def _replays(self) -> dict[tuple[int, ...], Callable[[], object]]:
        def captured(given: list[Tensor | Constant]) -> Callable[[], object]:
            with torch.no_grad():
                return graph(lambda: self._module(*given))

        return {_key(given): captured(given) for given in self._arguments}


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
