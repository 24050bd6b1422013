"""How far a result is from the truth, next to how far PyTorch's own result is.

The truth is float64. Two errors are taken of each result: the norm of the difference over the
norm of the truth, and the worst element's difference over its own size plus the mean size (so
that an element near zero is not asked for more digits than the computation carries). Both are
floored at one rounding of the output's type before candidate and reference are compared.
Works through the tensors in chunks, so that it needs no memory of their size.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tools.evaluate.judge.bits import unravel
from tools.nouns.value import Value


class Distance(Value):
    """The comparison of one output. Infinite errors mean that NaN or infinity are misplaced."""

    norm: float
    own_norm: float
    worst: float
    own_worst: float
    rounding: float
    scale: float
    worst_index: tuple[int, ...] = ()
    worst_got: float | None = None
    worst_expected: float | None = None
    misplaced: int = 0

    @property
    def ratio(self) -> float:
        """Candidate's error over PyTorch's, the larger of norm-wise and worst-element."""
        if self.misplaced:
            return float("inf")
        by_norm = max(self.norm, self.rounding) / max(self.own_norm, self.rounding)
        by_worst = max(self.worst, self.rounding) / max(self.own_worst, self.rounding)
        return max(by_norm, by_worst)


class _Sums:
    """Running totals of one result's distance from the truth."""

    def __init__(self, device: torch.device) -> None:
        self.squares = torch.zeros((), dtype=torch.float64, device=device)
        self.worst = torch.zeros((), dtype=torch.float64, device=device)
        self.where = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, difference: Tensor, weight: Tensor, offset: int) -> None:
        """`difference` is absolute and in float64; `weight` what an element is measured by."""
        self.squares += torch.dot(difference, difference)
        worst, where = torch.max(difference.div_(weight), dim=0)
        better = worst > self.worst
        self.worst = torch.where(better, worst, self.worst)
        self.where = torch.where(better, where + offset, self.where)


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
    rounding = max(rounding, torch.finfo(got.dtype).eps)
    if got.numel() == 0:
        return Distance(norm=0, own_norm=0, worst=0, own_worst=0, rounding=rounding, scale=1.0)
    flat = (got.reshape(-1), own.reshape(-1), truth.reshape(-1))
    total, finite = _size(flat, chunk_elements)
    scale = _scale(total / got.numel(), got.dtype)
    candidate, reference = _Sums(got.device), _Sums(got.device)
    squares = torch.zeros((), dtype=torch.float64, device=got.device)
    misplaced = torch.zeros((), dtype=torch.int64, device=got.device)
    first_misplaced = -1
    for offset, (g, o, t) in _chunks(flat, chunk_elements):
        g64, o64 = g.double(), o.double()
        if not finite:
            wrong, usable = _placement(g, o, t)
            if first_misplaced < 0 and bool(wrong.any()):
                first_misplaced = offset + int(wrong.to(torch.uint8).argmax())
            misplaced += wrong.sum()
            zero = torch.zeros((), dtype=torch.float64, device=t.device)
            g64, o64, t = (torch.where(usable, x, zero) for x in (g64, o64, t))
        weight = t.abs() + scale
        squares += torch.dot(t, t)
        candidate.add(g64.sub_(t).abs_(), weight, offset)
        reference.add(o64.sub_(t).abs_(), weight, offset)
    norm = max(float(squares) ** 0.5, scale)
    where = first_misplaced if first_misplaced >= 0 else int(candidate.where)
    return Distance(
        norm=float(candidate.squares) ** 0.5 / norm,
        own_norm=float(reference.squares) ** 0.5 / norm,
        worst=float(candidate.worst),
        own_worst=float(reference.worst),
        rounding=rounding,
        scale=scale,
        worst_index=unravel(where, tuple(got.shape)),
        worst_got=float(flat[0][where]),
        worst_expected=float(flat[2][where]),
        misplaced=int(misplaced),
    )


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
    for _, (_, o) in _chunks(flat, chunk_elements):
        total += torch.linalg.vector_norm(o, 1, dtype=torch.float64)
    scale = _scale(float(total) / flat[0].numel(), got.dtype)
    worst = torch.zeros((), dtype=wide, device=got.device)
    for _, (g, o) in _chunks(flat, chunk_elements):
        difference = (g.to(wide) - o.to(wide)).abs_()
        # Half of it, as the largest numbers have no double. `maximum` keeps a NaN, as `max` does.
        weight = o.to(wide).abs().mul_(0.5).add_(scale / 2)
        worst = torch.maximum(worst, difference.div_(weight).max())
    return float(worst) / 2


def allclose(got: Tensor, own: Tensor, tolerance: float, chunk_elements: int) -> bool:
    """KernelBench's test, `torch.allclose(own, got)`: |own - got| <= tolerance * (1 + |got|).

    The relative part is of the candidate's value, and NaN is close to nothing, as there.
    """
    if not got.dtype.is_floating_point:
        return torch.equal(got, own.to(got.device))
    worst = torch.full((), -float("inf"), dtype=torch.float64, device=got.device)
    for _, (g, o) in _chunks((got.reshape(-1), own.reshape(-1)), chunk_elements):
        excess = (g - o).abs_().sub_(g.abs().mul_(tolerance)).double()
        same = g == o
        worst = torch.maximum(
            worst, torch.where(same, -1.0, excess.nan_to_num(nan=torch.inf)).max()
        )
    return float(worst) <= tolerance


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
    for offset, (g, o, t) in _chunks(flat, chunk_elements):
        wrong, usable = _placement(g, o, t)
        off = (g.double() - t).abs() > allowed * (t.abs() + found.scale)
        mask[offset : offset + g.numel()] = wrong | (usable & off)
    return mask.view(got.shape)


def _size(flat: tuple[Tensor, ...], chunk_elements: int) -> tuple[float, bool]:
    """Sum of the truth's finite sizes, and whether all three tensors are finite throughout."""
    device = flat[0].device
    total = torch.zeros((), dtype=torch.float64, device=device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    for _, (g, o, t) in _chunks(flat, chunk_elements):
        # A sum is finite only if every term is; one that overflows takes the careful path.
        for part in (g, o):
            finite &= torch.isfinite(part.sum())
        size = t.abs().sum()
        finite &= torch.isfinite(size)
        total += size if bool(torch.isfinite(size)) else t[torch.isfinite(t)].abs().sum()
    return float(total), bool(finite)


def _scale(mean: float, dtype: torch.dtype) -> float:
    """The mean size, but no smaller than where the type itself loses digits."""
    if mean == 0.0:
        return 1.0  # the truth is all zeros: errors are then absolute
    info = torch.finfo(dtype)
    smallest = 2.0**-24 if dtype == torch.float16 else info.tiny
    return max(mean, smallest / info.eps)


def _placement(got: Tensor, own: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Elements whose NaN or infinity is misplaced, and elements finite in all three."""
    rounded = truth.to(got.dtype)
    finite = torch.isfinite(got) & torch.isfinite(own) & torch.isfinite(rounded)
    agrees = _same_kind(got, own) | _same_kind(got, rounded)
    return ~agrees, finite


def _same_kind(left: Tensor, right: Tensor) -> Tensor:
    both_finite = torch.isfinite(left) & torch.isfinite(right)
    return both_finite | (left.isnan() & right.isnan()) | (left == right)


def _chunks(flat: tuple[Tensor, ...], size: int) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """Slices of all, on the first one's device: the others may be shelved on the host."""
    device = flat[0].device
    for offset in range(0, flat[0].numel(), size):
        yield offset, tuple(part[offset : offset + size].to(device) for part in flat)
