"""One walk over an output's truth, PyTorch's own result and answers to be held against them.

Works through the tensors in chunks, so that it needs no memory of their size, and reads the truth
once however many answers there are.
"""

from collections.abc import Iterator, Sequence
from math import isfinite

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.bits import unravel
from kernelwright.tools.types.value import Value


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
