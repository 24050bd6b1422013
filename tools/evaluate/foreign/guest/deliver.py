"""Copies an answer into the judge's memory, and says when it is none."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

How = Literal["not_a_tensor", "wrong_shape"]


class AnswerError(Exception):
    """What was returned is no answer; `how` is the kind of wrong."""

    def __init__(self, how: How, words: str) -> None:
        super().__init__(words)
        self.how: How = how


def deliver(result: object, outputs: Sequence[Tensor], *, exact: bool = True) -> None:
    """Copy every tensor of a result; part of the timed span.

    Args:
        result: what a forward returned.
        outputs: where its tensors go.
        exact: whether they must be plain tensors.

    Raises:
        AnswerError: something is not exactly a tensor, or not of the shape and type asked for.
    """
    leaves = [result] if type(result) is Tensor else pytree.tree_leaves(result)
    if len(leaves) != len(outputs):
        raise AnswerError("wrong_shape", f"{len(leaves)} outputs, expected {len(outputs)}")
    for number, (leaf, output) in enumerate(zip(leaves, outputs, strict=True)):
        _check(number, leaf, output, exact=exact)
        output.copy_(leaf)


def _check(number: int, leaf: object, output: Tensor, *, exact: bool) -> None:
    plain = type(leaf) in (Tensor, nn.Parameter)
    if not plain and (exact or not isinstance(leaf, Tensor)):
        name = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        raise AnswerError("not_a_tensor", f"output {number} is a {name}, not a plain tensor")
    assert isinstance(leaf, Tensor)
    if leaf.layout != torch.strided or leaf.device.type != output.device.type:
        words = f"output {number} is {leaf.layout} on {leaf.device}"
        raise AnswerError("wrong_shape", f"{words}, expected a dense one on {output.device}")
    if leaf.shape != output.shape or leaf.dtype != output.dtype:
        raise AnswerError(
            "wrong_shape",
            f"output {number} is {_short(leaf)}, expected {_short(output)}",
        )


def _short(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
