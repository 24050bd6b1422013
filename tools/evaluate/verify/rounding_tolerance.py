"""Widens what a result may be off by where PyTorch's own error says too little.

Where PyTorch's own error is there by chance next to nothing (the mean of equal numbers may come out
exact in one order of adding and not in another), it counts as well how far the truth moves when
every step to it is rounded, and for a few elements every input. What PyTorch's own result with
channels last is off by counts too, where the library may be coarser there (see `precision`).

A few elements may be decided by roundings alone: where an attention's two best scores are within
their rounding of each other, one honest kernel answers with one value and another with the other.
Such an element is excused only where it lies within what roundings do to that very element: one
that is wrong in the same row of every call, or where values are rare, is not moved by them.

All of it is computed only for a candidate that would be rejected without.
"""

import time
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.errors import Distance
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime, Result
from kernelwright.tools.evaluate.verify.truth import Argument

_SHAKES = 2
_FEW = 1e-3  # of an output's elements; one row where that is more
# Of two steps that are each off to one side or the other at random, every fourth time both go the
# way that lets a tie change hands: one is missed in so many shakes 3 times in a hundred.
_SHAKES_OF_FEW = 12
_LOOK_S = 20.0  # for all of them, where a single truth takes seconds


class RoundingTolerance:
    """What a result may be off by on one draw, where PyTorch's own error is next to nothing.

    Args:
        runtime: the task.
        draw: which inputs; its seed is that of the noise.
        arguments: those inputs.
        own: PyTorch's result.
        right: the truth.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        draw: Draw,
        arguments: Sequence[Argument],
        own: Result,
        right: Result,
    ) -> None:
        self._runtime = runtime
        self.draw = draw
        self._arguments = arguments
        self._own = own
        self._right = right

    def taken_out(self, found: Distance, truth: Tensor, which: int | str) -> Distance:
        """The distance with a yardstick that is no shorter than the stake.

        Args:
            found: of the candidate's result.
            truth: what that is held against.
            which: the number of an output or the name of a buffer.
        """
        moved = [_part(result, which) for result in self._rounded]
        if truth.numel() <= self._runtime.rules.few_elements:
            moved += [_part(result, which) for result in self._shaken]
        norm, worst = found.own_norm, found.own_worst
        for other in moved:
            if other is None:
                continue
            far = _apart(other, truth, found.scale, self._runtime.chunk_elements)
            norm, worst = max(norm, far[0]), max(worst, far[1])
        return found.model_copy(update={"own_norm": norm, "own_worst": worst})

    def turned(self, found: Distance, truth: Tensor, which: int | str) -> Distance:
        """The distance beside PyTorch's own result with channels last, where that is further off.

        Args:
            found: of the candidate's result.
            truth: what that is held against.
            which: the number of an output or the name of a buffer.
        """
        other = None if self._turned is None else _part(self._turned, which)
        if other is None or found.misplaced:
            return found
        far = _apart(other, truth, found.scale, self._runtime.chunk_elements)
        norm, worst = max(found.own_norm, far[0]), max(found.own_worst, far[1])
        return found.model_copy(update={"own_norm": norm, "own_worst": worst})

    def decides(
        self, wrong: Tensor, got: Tensor, truth: Tensor, usual: Tensor, which: int | str
    ) -> bool:
        """Whether roundings alone decide the elements that are wrong, which must be few.

        Each has to lie no further beyond what is usually allowed than the truth moves there where
        every step to it is off by as much as a candidate's may be.

        Args:
            wrong: which elements, by their places in memory order.
            got: the candidate's values there.
            truth: what they should be, in float64.
            usual: how far each may be off anywhere.
            which: the number of an output or the name of a buffer.
        """
        beyond = (got.double() - truth).abs() - usual
        steps, until = self._runtime.rules.error_bound, time.monotonic() + _LOOK_S
        for seed in range(self.draw.seed, self.draw.seed + _SHAKES_OF_FEW):
            if time.monotonic() > until:
                return False
            shaken = self._runtime.rounded(self._arguments, seed, steps)
            other = None if shaken is None else _part(shaken, which)
            if other is None:
                return False
            moved = (at(other, wrong) - truth).abs()
            beyond = torch.where(moved >= beyond, 0.0, beyond)  # NaN excuses nothing
            if not bool(beyond.gt(0).any()):
                return True
        return False

    @cached_property
    def _turned(self) -> Result | None:
        return self._runtime.own_turned(self._arguments)

    @cached_property
    def _rounded(self) -> list[Result]:
        seeds = range(self.draw.seed, self.draw.seed + _SHAKES)
        found = [self._runtime.rounded(self._arguments, seed) for seed in seeds]
        return [result for result in found if result is not None]

    @cached_property
    def _shaken(self) -> list[Result]:
        seeds = range(self.draw.seed, self.draw.seed + _SHAKES)
        shaken = (_shaken(self._arguments, seed) for seed in seeds)
        return [self._runtime.right(arguments, self._own) for arguments in shaken]


def _apart(other: Tensor, truth: Tensor, scale: float, chunk_elements: int) -> tuple[float, float]:
    """How far two results are apart, in the norm and at the worst element, in small steps."""
    flat, right = other.reshape(-1), truth.reshape(-1)
    squares = torch.zeros(2, dtype=torch.float64, device=truth.device)
    worst = torch.zeros((), dtype=torch.float64, device=truth.device)
    for start in range(0, right.numel(), chunk_elements):
        t = right[start : start + chunk_elements]
        off = (flat[start : start + chunk_elements].to(t.device) - t).abs()
        off = torch.where(torch.isfinite(off), off, 0.0)
        size = torch.where(torch.isfinite(t), t, 0.0)
        squares += torch.stack((off.square().sum(), size.square().sum()))
        worst = torch.maximum(worst, (off / (size.abs() + scale)).max())
    off_norm, size_norm = squares.sqrt().tolist()
    return off_norm / max(size_norm, scale), float(worst)


def _part(result: Result, which: int | str) -> Tensor | None:
    return result.outputs[which] if isinstance(which, int) else result.buffers.get(which)


def _shaken(arguments: Sequence[Argument], seed: int) -> list[Argument]:
    """Every floating input rounded once more, at random, in float64."""
    shaken: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, Tensor) and argument.is_floating_point():
            source = torch.Generator(argument.device).manual_seed(seed)
            noise = torch.rand(argument.shape, generator=source, device=argument.device)
            unit = torch.finfo(argument.dtype).eps / 2
            shaken.append(argument.double() * (1.0 + unit * (2.0 * noise.double() - 1.0)))
        else:
            shaken.append(argument)
    return shaken


def few(wrong: Tensor) -> Tensor | None:
    """Where a mask's marked elements are in memory order; None where there are none or many."""
    row = wrong.shape[-1] if wrong.dim() > 1 else 1
    if not 0 < int(wrong.sum()) <= max(_FEW * wrong.numel(), row):
        return None
    return wrong.reshape(-1).nonzero().flatten()


def at(tensor: Tensor, places: Tensor) -> Tensor:
    """Some elements in float64 beside `places`, which may lie on another device."""
    return tensor.reshape(-1)[places.to(tensor.device)].double().to(places.device)
