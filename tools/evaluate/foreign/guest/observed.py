"""What foreign code left changed in its own process, as far as that can be seen from within."""

import sys
import threading
from collections.abc import Mapping

import torch

# Settings that trade digits for speed, each with the value that keeps them.
_PRECISION = ("matmul precision", "cuda tf32", "cudnn tf32", "fp16 reduction", "bf16 reduction")


def settings() -> Mapping[str, object]:
    """Torch's global settings of precision, and the type of new tensors, as they are now."""
    values = (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    )
    return {**dict(zip(_PRECISION, values, strict=True)), "type": torch.get_default_dtype()}


def observations(usual: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Python's threads besides the main one, and settings that are not what they were."""
    known = threading.enumerate()
    # What a callback of C or the bare _thread started has a frame, and no name.
    nameless = ("one without a name",) * (len(sys._current_frames()) - len(known))
    names = (*(thread.name for thread in known if not _usual(thread)), *nameless)
    now = settings()
    changed = tuple(f"{name}: {now[name]}" for name in now if now[name] != usual[name])
    return names, changed


def _usual(thread: threading.Thread) -> bool:
    """Whether it is the main one, or the one that looks after PyTorch's own progress bars.

    torch.compile's tuning draws such bars. What the guest says here could be a lie anyway, and is
    held against the kernel's books.
    """
    kind = type(thread)
    bars = (kind.__module__, kind.__qualname__) == ("tqdm._monitor", "TMonitor")
    return bars or thread is threading.main_thread()
