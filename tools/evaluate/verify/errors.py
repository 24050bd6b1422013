"""How far a result is from the truth, next to how far PyTorch's own result is.

The truth is float64. Two errors are taken of each result: the norm of the difference over the
norm of the truth, and the worst element's difference over its own size plus the mean size (so
that an element near zero is not asked for more digits than the computation carries). Both are
floored at one rounding of the output's type before candidate and reference are compared.

`Walk` goes through truth, PyTorch's own result and answers in chunks, so that it needs no memory of
their size, and reads the truth once however many answers there are.

`Nulls` are answers that took no work, and must therefore not pass: zeros, ones, the mean and an
input itself are held against the truth of a task's own values. Where one of them comes near to
passing, the bound for candidates tightens to the geometric middle between PyTorch's own error and
the null's. Where even that does not tell them apart, being correct proves little, and the task is
badged. The reference with one term left out: `audit.terms`.
"""

from collections.abc import Iterator, Sequence
from math import isfinite, sqrt

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.bits import unravel
from kernelwright.tools.types.value import Value

__all__ = [
    "Distance",
    "Nulls",
    "allclose",
    "apart",
    "distance",
    "distances",
    "finite",
    "passing_nulls",
    "wrong_elements",
]


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


class _Far:
    """Running totals of one result's distance from the truth."""

    def __init__(self, device: torch.device) -> None:
        self.squares = torch.zeros((), dtype=torch.float64, device=device)
        self.worst: list[Tensor] = []  # of every chunk

    def add(self, difference: Tensor, weight: Tensor) -> None:
        """`difference` is written over; `weight` is what an element is measured by."""
        self.squares += torch.dot(difference, difference)
        low, high = torch.aminmax(difference.div_(weight))
        self.worst.append(torch.maximum(-low, high))

    @property
    def furthest(self) -> Tensor:
        """The worst of all chunks."""
        return torch.stack(self.worst).max()


class Walk:
    """Goes once over the truth, PyTorch's own result and answers, and measures all of them.

    Args:
        answers: flat, on the device where the work is done; the others may lie elsewhere.
        own: flat.
        truth: flat, in float64.
        scale: the mean size, that an element near zero is measured by.
        chunk_elements: how many elements are worked on at a time.
        careful: leave out, and count, what is not finite in all three; for one answer.
    """

    def __init__(
        self,
        answers: Sequence[Tensor],
        own: Tensor,
        truth: Tensor,
        scale: float,
        chunk_elements: int,
        *,
        careful: bool = False,
    ) -> None:
        device = answers[0].device
        self._flat, self._scale, self._step = (*answers, own, truth), scale, chunk_elements
        self._careful = careful
        self.squares = torch.zeros((), dtype=torch.float64, device=device)
        self.misplaced = torch.zeros((), dtype=torch.int64, device=device)
        self.first_misplaced = -1
        self.far = [_Far(device) for _ in (*answers, own)]
        for offset, parts in chunks(self._flat, chunk_elements):
            if careful:
                self._count(offset, *parts)
            *results, t = self._usable(parts)
            self.squares += torch.dot(t, t)
            weight = t.abs().add_(scale)
            for far, result in zip(self.far, results, strict=True):
                far.add(torch.sub(result, t), weight)

    def is_finite(self, number: int) -> bool:
        """Whether that answer, PyTorch's own result and the truth are finite throughout."""
        sums = torch.stack((self.squares, self.far[-1].squares, self.far[number].squares))
        return bool(torch.isfinite(sums).all())

    def distance(self, number: int, shape: tuple[int, ...], rounding: float) -> Distance:
        """How far that answer is off."""
        candidate, reference = self.far[number], self.far[-1]
        where = self.first_misplaced if self.first_misplaced >= 0 else self._where(number)
        return Distance(
            norm=self._norm(candidate),
            own_norm=self._norm(reference),
            worst=float(candidate.furthest),
            own_worst=float(reference.furthest),
            rounding=rounding,
            scale=self._scale,
            worst_index=unravel(where, shape),
            worst_got=float(self._flat[number][where]),
            worst_expected=float(self._flat[-1][where]),
            misplaced=int(self.misplaced),
        )

    def _norm(self, far: _Far) -> float:
        """Over the truth's; where squares are beyond float64 the worst element says it all."""
        off, size = float(far.squares) ** 0.5, float(self.squares) ** 0.5
        return off / max(size, self._scale) if isfinite(off + size) else float(far.furthest)

    def _where(self, number: int) -> int:
        """The worst element's place: its chunk is looked at once more."""
        start = int(torch.stack(self.far[number].worst).argmax()) * self._step
        _, parts = next(chunks(tuple(part[start:] for part in self._flat), self._step))
        parts = self._usable(parts)
        off = torch.sub(parts[number], parts[-1]).abs_().div_(parts[-1].abs().add_(self._scale))
        return start + int(off.argmax())

    def _count(self, offset: int, got: Tensor, own: Tensor, truth: Tensor) -> None:
        wrong, _ = placement(got, own, truth)
        if self.first_misplaced < 0 and bool(wrong.any()):
            self.first_misplaced = offset + int(wrong.to(torch.uint8).argmax())
        self.misplaced += wrong.sum()

    def _usable(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Slices of all, as 0 where one of three is not finite."""
        if not self._careful:
            return parts
        got, own, truth = parts
        _, usable = placement(got, own, truth)
        return tuple(torch.where(usable, part.double(), 0.0) for part in parts)


def placement(got: Tensor, own: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Elements whose NaN or infinity is misplaced, and elements finite in all three."""
    rounded = truth.to(got.dtype)
    finite = torch.isfinite(got) & torch.isfinite(own) & torch.isfinite(rounded)
    agrees = _same_kind(got, own) | _same_kind(got, rounded)
    return ~agrees, finite


def _same_kind(left: Tensor, right: Tensor) -> Tensor:
    both_finite = torch.isfinite(left) & torch.isfinite(right)
    return both_finite | (left.isnan() & right.isnan()) | (left == right)


def chunks(flat: tuple[Tensor, ...], size: int) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """Slices of all, on the first one's device: the others may be shelved on the host."""
    device = flat[0].device
    for offset in range(0, flat[0].numel(), size):
        yield offset, tuple(part[offset : offset + size].to(device) for part in flat)


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
    """Mask of the elements that are further from the truth than the bound allows.

    Where there is no distance, of integers, those that are neither PyTorch's nor the truth's.
    """
    if found is None:
        return (got != own.to(got.device)) & (got != truth.to(got.device))
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


# Times PyTorch's own error. An honest kernel may be off by half as much again (the root of it), by
# another order of adding alone; what is nearer than this cannot be told from one.
TOLD_APART = 2.25


class Nulls:
    """How far null answers are off, for each output of one draw.

    Args:
        own: PyTorch's outputs.
        truth: in float64.
        inputs: of that draw; one that has an output's shape and type is tried as its answer.
        chunk_elements: how many are compared at a time.
    """

    def __init__(
        self,
        own: Sequence[Tensor],
        truth: Sequence[Tensor],
        inputs: Sequence[Tensor],
        chunk_elements: int,
    ) -> None:
        self._off: list[dict[str, Distance]] = []
        self._same: list[tuple[str, ...]] = []
        for ours, right in zip(own, truth, strict=True):
            tried = dict(_nulls(ours, right, inputs))
            if ours.dtype.is_floating_point:
                far = distances(list(tried.values()), ours, right, chunk_elements)
                self._off.append(dict(zip(tried, far, strict=True)))
                self._same.append(())
            else:
                self._off.append({})
                self._same.append(tuple(n for n, t in tried.items() if torch.equal(t, ours)))

    def bound(self, output: int, yardstick: Distance, usual: float) -> float:
        """How many times the yardstick's own error a candidate may be off by.

        Args:
            output: its number.
            yardstick: of a candidate's answer to other values from the same distribution.
            usual: the bound where no null answer is near.
        """
        near = [_ratio(null, yardstick) for null in self._off[output].values()]
        told_apart = [ratio for ratio in near if ratio > TOLD_APART]
        return min([usual, *(sqrt(ratio) for ratio in told_apart)])

    def words(self) -> tuple[str, ...]:
        """Which null answers cannot be told from the right one for which output."""
        return tuple(
            f"output {number} cannot be told from {name}: being correct proves little here"
            for number, (off, same) in enumerate(zip(self._off, self._same, strict=True))
            for name in (*(n for n, found in off.items() if found.ratio <= TOLD_APART), *same)
        )


def passing_nulls(
    own: Sequence[Tensor], truth: Sequence[Tensor], inputs: Sequence[Tensor], chunk_elements: int
) -> tuple[str, ...]:
    """Warnings: which null answers pass for which output. Empty when all fail, as they must."""
    return Nulls(own, truth, inputs, chunk_elements).words()


def _nulls(own: Tensor, truth: Tensor, inputs: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield "zeros", own.new_zeros(()).expand(own.shape)
    yield "ones", own.new_ones(()).expand(own.shape)
    if own.dtype.is_floating_point and own.numel() > 1:
        yield "its own mean", own.new_full((), float(truth.mean())).expand(own.shape)
    for number, tensor in enumerate(inputs):
        if tensor.shape == own.shape and tensor.dtype == own.dtype:
            yield f"input {number}", tensor


def _ratio(null: Distance, yardstick: Distance) -> float:
    """The null's error over PyTorch's own by that yardstick."""
    update = {"norm": null.norm, "worst": null.worst, "misplaced": null.misplaced}
    return yardstick.model_copy(update=update).ratio
