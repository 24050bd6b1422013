"""Other values in the same memory, cheaply: a tensor is turned round, and part of it lost.

What a tensor holds stays valid (indices in range, probabilities in theirs), as only values that
were there before are written. Every value moves, so that whoever keeps answers for rows or blocks
that did not change finds none. Not for tensors whose order means something.
"""

import random

import torch
from torch import Tensor, nn

from kernelwright.tools.evaluate.verify.bits import flat_memory
from kernelwright.tools.types import Domain

_PART = 64  # one part in so many changes
_SPREAD = 0.3
_STATISTICS = ("running_mean", "running_var")


def renew(tensor: Tensor, domain: Domain, source: random.Random) -> None:
    """Move all values on, and write a stretch of them over another one.

    Nothing changes where the order means something.
    """
    if domain in ("sorted", "permutation"):
        return
    flat = flat_memory(tensor)
    size = flat.numel()
    if size < 2:
        return
    _turn(flat, source.randrange(1, size))
    count = max(1, size // _PART)
    start = source.randrange(count, size - count + 1) if size > 2 * count else size - count
    shift = source.randrange(start - count + 1) if start >= count else 0
    flat[start : start + count].copy_(flat[shift : shift + count].clone())


def _turn(flat: Tensor, steps: int) -> None:
    """Move every value on; a device without room for one more copy keeps them where they are."""
    try:
        moved = flat.roll(steps)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return
    flat.copy_(moved)


def redraw(module: nn.Module, generator: torch.Generator) -> None:
    """Move every floating parameter, and the statistics of normalisations, by up to a third.

    A module's own first values are often ones and zeros, which hide whether they are used at all.
    Signs are kept, so that variances stay variances.
    """
    statistics = (
        (name, value) for name, value in module.named_buffers() if name.endswith(_STATISTICS)
    )
    for _, tensor in (*module.named_parameters(), *statistics):
        if tensor.is_floating_point():
            _move(tensor, generator)


def _move(tensor: Tensor, generator: torch.Generator) -> None:
    unit = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    noise = unit.mul_(2 * _SPREAD).sub_(_SPREAD)
    with torch.no_grad():
        if not bool(tensor.any()):
            tensor.copy_(noise.to(tensor.dtype))
        else:
            tensor.mul_(noise.add_(1.0).to(tensor.dtype))
