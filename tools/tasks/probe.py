"""Runs a user's constructors and get_inputs, on fake tensors first.

Fake tensors have shapes but no memory, so a task of many gigabytes costs nothing to trace. What
is small enough is then made for real: real weights give constants their values, real inputs
their statistics. A file whose constructors look at values cannot be faked; then only the real
ones are used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tools.tasks.build import build_inputs, build_module
from tools.tasks.load import Entry
from tools.tasks.refusals import RefusedError, refuse, user_code
from tools.tasks.shrink import ShrunkenFactories

REAL_LIMIT_BYTES = 2**30
RUN_LIMIT_BYTES = 2**25

Made = TypeVar("Made")


@dataclass(frozen=True)
class Probe:
    """A module and its inputs, ready to trace, and what is known about values.

    `mode` is the fake mode that fake tensors belong to (None when all is real); `samples` are
    real values of each input, perhaps of a smaller shape, or None when there are none.
    """

    module: nn.Module
    inputs: list[object]
    mode: FakeTensorMode | None
    samples: list[object] | None
    outputs: object


def probe(file: ModuleType, entry: Entry, override: Sequence[str]) -> Probe:
    """Make the module and its inputs, run the forward once; RefusedError says what went wrong."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake_inputs = _faked(mode, lambda: build_inputs(file, override, 0))
    fake_module = _faked(mode, lambda: build_module(file, entry, 0))
    inputs_small = fake_inputs is None or size_bytes(fake_inputs) <= REAL_LIMIT_BYTES
    module_small = fake_module is None or size_bytes(_tensors(fake_module)) <= REAL_LIMIT_BYTES
    real_module = build_module(file, entry, 0) if module_small else None
    samples = build_inputs(file, override, 0) if inputs_small else _shrunken(file, override)
    inputs = fake_inputs if fake_inputs is not None else samples
    module = real_module if real_module is not None else fake_module
    if inputs is None or module is None:
        raise refuse("The inputs or weights are too large to be made here.")
    check_inputs(inputs)
    outputs = _run(file, fake_module or module, inputs, mode)
    if inputs_small and module_small and samples is not None:
        _run_small(file, entry, samples)
    return Probe(module, inputs, mode if fake_inputs is not None else None, samples, outputs)


def size_bytes(values: Sequence[object]) -> int:
    """Bytes of all tensors among the values."""
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


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


def _faked(mode: FakeTensorMode, make: Callable[[], Made]) -> Made | None:
    """What `make` makes under the fake mode; None when it needs real values."""
    try:
        with mode:
            return make()
    except RefusedError:
        return None


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _shrunken(file: ModuleType, override: Sequence[str]) -> list[object] | None:
    """Values of a smaller draw, for their statistics; None when the file does not allow that."""
    try:
        with ShrunkenFactories():
            return build_inputs(file, override, 0)
    except RefusedError:
        return None


def _run(
    file: ModuleType, module: nn.Module, inputs: Sequence[object], mode: FakeTensorMode
) -> object:
    """One forward on fake tensors, which finds wrong shapes and types without the work."""
    tensors = [*_tensors(module), *(v for v in inputs if isinstance(v, torch.Tensor))]
    fake = any(isinstance(t, torch._subclasses.FakeTensor) for t in tensors)
    if fake and not all(isinstance(t, torch._subclasses.FakeTensor) for t in tensors):
        return None
    ambient = mode if fake else contextlib.nullcontext()
    with user_code("The forward", str(file.__file__)), torch.no_grad(), ambient:
        return module(*inputs)


def _run_small(file: ModuleType, entry: Entry, inputs: Sequence[object]) -> None:
    """One real forward where that is cheap; it finds what depends on values."""
    module = build_module(file, entry, 0)
    if size_bytes([*inputs, *_tensors(module)]) > RUN_LIMIT_BYTES:
        return
    with user_code("The forward", str(file.__file__)), torch.no_grad():
        module(*inputs)
