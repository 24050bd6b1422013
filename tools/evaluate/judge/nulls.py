"""Answers that took no work, and must therefore not pass.

Where zeros, ones, the mean or an input itself lie within the tolerance of a task, being correct
proves nothing, and the task is badged. The reference with one term left out: `audit.terms`.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tools.evaluate.judge.errors import distance
from tools.evaluate.rules import Rules


def passing_nulls(
    own: Sequence[Tensor], truth: Sequence[Tensor], inputs: Sequence[Tensor], rules: Rules
) -> tuple[str, ...]:
    """Warnings: which null answers pass for which output. Empty when all fail, as they must."""
    return tuple(
        f"output {number} cannot be told from {name}: being correct proves little here"
        for number, (ours, right) in enumerate(zip(own, truth, strict=True))
        for name, null in _nulls(ours, right, inputs)
        if _passes(null, ours, right, rules)
    )


def _nulls(own: Tensor, truth: Tensor, inputs: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield "zeros", torch.zeros_like(own)
    yield "ones", torch.ones_like(own)
    if own.dtype.is_floating_point and own.numel() > 1:
        yield "its own mean", torch.full_like(own, float(truth.mean()))
    for number, tensor in enumerate(inputs):
        if tensor.shape == own.shape and tensor.dtype == own.dtype:
            yield f"input {number}", tensor


def _passes(null: Tensor, own: Tensor, truth: Tensor, rules: Rules) -> bool:
    if not own.dtype.is_floating_point:
        return torch.equal(null, own)
    found = distance(null, own, truth, rules.compare_chunk_elements)
    return found.ratio <= rules.error_bound
