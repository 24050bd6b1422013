"""What foreign code left changed in its own process, as far as that can be seen from within."""

import sys
import threading
from collections.abc import Callable, Mapping
from time import sleep  # as it was before foreign code came

import torch

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
