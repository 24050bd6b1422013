"""What may go into a forward and come out of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils import _pytree as pytree

from kernelwright.tools.tasks.refusals import refuse
from kernelwright.tools.tasks.traced import structure_of


def check_inputs(inputs: Sequence[object]) -> None:
    """RefusedError for what cannot be an input: other kinds, empty tensors, odd types."""
    for position, value in enumerate(inputs, start=1):
        what = f"Input {position}"
        if isinstance(value, torch.Tensor):
            _check_tensor(what, value)
        elif not isinstance(value, (bool, int, float, str, type(None))):
            kind = type(value).__name__
            raise refuse(f"{what} is a {kind}; only tensors and plain scalars can be inputs.")
    if not any(isinstance(value, torch.Tensor) for value in inputs):
        raise refuse("No input is a tensor, so there is nothing to compute on.")


SUPPORTED = frozenset(
    (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
)


def _check_tensor(what: str, value: torch.Tensor) -> None:
    if value.layout is not torch.strided:
        kind = str(value.layout).removeprefix("torch.")
        raise refuse(f"{what} is a {kind} tensor; only dense tensors are supported.")
    if value.dtype not in SUPPORTED:
        kind = str(value.dtype).removeprefix("torch.")
        raise refuse(f"{what} has the type {kind}, which is not supported.")
    if value.numel() == 0:
        raise refuse(f"{what} has no elements: its shape is {tuple(value.shape)}.")


def check_outputs(outputs: object) -> None:
    """RefusedError for results that are not tensors, tuples or lists of tensors, or empty."""
    leaves, spec = pytree.tree_flatten(outputs)
    structure_of(spec)
    if not leaves:
        raise refuse("The forward returns nothing.")
    for position, leaf in enumerate(leaves, start=1):
        if not isinstance(leaf, torch.Tensor):
            kind = type(leaf).__name__
            raise refuse(f"The forward must return tensors, but output {position} is a {kind}.")
        _check_tensor(f"Output {position}", leaf)
