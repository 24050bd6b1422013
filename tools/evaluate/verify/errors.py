"""How far a result is from the truth, next to how far PyTorch's own result is.

The truth is float64. Two errors are taken of each result: the norm of the difference over the
norm of the truth, and the worst element's difference over its own size plus the mean size (so
that an element near zero is not asked for more digits than the computation carries). Both are
floored at one rounding of the output's type before candidate and reference are compared.
Works through the tensors in chunks, so that it needs no memory of their size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.distances import Distance, Walk, chunks, placement

__all__ = ["Distance", "allclose", "apart", "distance", "distances", "finite", "wrong_elements"]


def distance(
    got: Tensor, own: Tensor, truth: Tensor, chunk_elements: int, rounding: float = 0.0
) -> Distance:
    """Compare a floating output with the truth, and PyTorch's own with it.

    Args:
        got: the candidate's output.
        own: PyTorch's output in the task's type; same shape.
        truth: float64; same shape.
        chunk_elements: how many elements are worked on at a time.
        rounding: of a coarser type that was allowed; the output's own where that is larger.
    """
    return distances((got,), own, truth, chunk_elements, rounding)[0]


def distances(
    answers: Sequence[Tensor],
    own: Tensor,
    truth: Tensor,
    chunk_elements: int,
    rounding: float = 0.0,
) -> list[Distance]:
    """Compare several answers with one truth; what all of them need is worked out once.

    Args:
        answers: of the same shape and type; one that is the same everywhere may be expanded.
        own: see `distance`.
        truth: see `distance`.
        chunk_elements: see `distance`.
        rounding: see `distance`.
    """
    if not answers:
        return []
    shape, rounding = tuple(own.shape), max(rounding, torch.finfo(own.dtype).eps)
    if own.numel() == 0:
        nothing = Distance(norm=0, own_norm=0, worst=0, own_worst=0, rounding=rounding, scale=1.0)
        return [nothing for _ in answers]
    flat, mine, right = [got.reshape(-1) for got in answers], own.reshape(-1), truth.reshape(-1)
    scale = _scale(_total(right, flat[0].device, chunk_elements) / own.numel(), own.dtype)
    walk = Walk(flat, mine, right, scale, chunk_elements)
    found = []
    for number, got in enumerate(flat):
        if walk.is_finite(number):
            found.append(walk.distance(number, shape, rounding))
        else:
            again = Walk([got], mine, right, scale, chunk_elements, careful=True)
            found.append(again.distance(0, shape, rounding))
    return found


def apart(got: Tensor, own: Tensor, chunk_elements: int) -> float:
    """The worst element's difference between two results, as `Distance.worst` takes it.

    In the type that kernels compute in, in a few passes: the difference of near numbers is exact.
    NaN where anything is not finite, so that it compares as nothing.
    """
    wide = torch.promote_types(got.dtype, torch.float32)
    flat = (got.reshape(-1), own.reshape(-1))
    if not flat[0].numel():
        return 0.0
    total = torch.zeros((), dtype=torch.float64, device=got.device)
    for _, (_, o) in chunks(flat, chunk_elements):
        total += torch.linalg.vector_norm(o, 1, dtype=torch.float64)
    scale = _scale(float(total) / flat[0].numel(), got.dtype)
    worst = torch.zeros((), dtype=wide, device=got.device)
    half = torch.full((), scale / 2, dtype=wide, device=got.device)
    for _, (g, o) in chunks(flat, chunk_elements):
        difference = g.to(wide) - o.to(wide)
        # Half of it, as the largest numbers have no double. `maximum` and `aminmax` keep a NaN.
        weight = torch.add(half, o.to(wide).abs(), alpha=0.5)
        low, high = torch.aminmax(difference.div_(weight))
        worst = torch.maximum(worst, torch.maximum(-low, high))
    return float(worst) / 2


def allclose(got: Tensor, own: Tensor, tolerance: float, chunk_elements: int) -> bool:
    """KernelBench's test, `torch.allclose(own, got)`: |own - got| <= tolerance * (1 + |got|).

    The relative part is of the candidate's value, and NaN is close to nothing, as there.
    """
    if not got.dtype.is_floating_point:
        return torch.equal(got, own.to(got.device))
    worst = torch.full((), -float("inf"), dtype=torch.float64, device=got.device)
    for _, (g, o) in chunks((got.reshape(-1), own.reshape(-1)), chunk_elements):
        worst = torch.maximum(worst, _excess(g, o, tolerance).max().double())
    if not bool(worst.isnan()):
        return float(worst) <= tolerance
    return all(
        bool(((g == o) | (_excess(g, o, tolerance) <= tolerance)).all())
        for _, (g, o) in chunks((got.reshape(-1), own.reshape(-1)), chunk_elements)
    )


def _excess(got: Tensor, own: Tensor, tolerance: float) -> Tensor:
    """By how much they are further apart than the relative part allows; NaN where one is one."""
    return (got - own).abs_().sub_(got.abs().mul_(tolerance))


def wrong_elements(
    got: Tensor,
    own: Tensor,
    truth: Tensor,
    found: Distance | None,
    bound: float,
    chunk_elements: int,
) -> Tensor:
    """Mask of the elements that are further from the truth than the bound allows."""
    if found is None:
        return got != own.to(got.device)
    allowed = bound * max(found.own_worst, found.rounding)
    mask = torch.empty(got.numel(), dtype=torch.bool, device=got.device)
    flat = (got.reshape(-1), own.reshape(-1), truth.reshape(-1))
    for offset, (g, o, t) in chunks(flat, chunk_elements):
        wrong, usable = placement(g, o, t)
        off = (g.double() - t).abs() > allowed * (t.abs() + found.scale)
        mask[offset : offset + g.numel()] = wrong | (usable & off)
    return mask.view(got.shape)


def _total(truth: Tensor, device: torch.device, chunk_elements: int) -> float:
    """Sum of the truth's finite sizes."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for start in range(0, truth.numel(), chunk_elements):
        part = truth[start : start + chunk_elements].to(device)
        total += torch.linalg.vector_norm(part, 1)
    if bool(torch.isfinite(total)):
        return float(total)
    total.zero_()
    for start in range(0, truth.numel(), chunk_elements):
        part = truth[start : start + chunk_elements].to(device)
        total += part[torch.isfinite(part)].abs().sum()
    return float(total)


def _scale(mean: float, dtype: torch.dtype) -> float:
    """The mean size, but no smaller than where the type itself loses digits."""
    if mean == 0.0:
        return 1.0  # the truth is all zeros: errors are then absolute
    info = torch.finfo(dtype)
    smallest = 2.0**-24 if dtype == torch.float16 else info.tiny
    return max(mean, smallest / info.eps)


def finite(output: Tensor) -> bool:
    """Whether an output holds neither infinity nor NaN."""
    if not output.is_floating_point():
        return True
    # A sum is finite only if every term is; one that overflows says nothing.
    total = output.sum(dtype=torch.promote_types(output.dtype, torch.float32))
    return bool(torch.isfinite(total)) or bool(torch.isfinite(output).all())
