"""Answers that took no work, and must therefore not pass.

Zeros, ones, the mean and an input itself are held against the truth of a task's own values. Where
one of them comes near to passing, the bound for candidates tightens to the geometric middle
between PyTorch's own error and the null's. Where even that does not tell them apart, being correct
proves little, and the task is badged. The reference with one term left out: `audit.terms`.
"""

from collections.abc import Iterator, Sequence
from math import sqrt

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.errors import Distance, distances

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
