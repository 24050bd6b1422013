"""Runs a user's constructors and get_inputs, on fake tensors first.

Fake tensors have shapes but no memory, so a task of many gigabytes costs nothing to trace. What
is small enough is then made for real: real weights give constants their values, real inputs
their statistics. A file whose constructors look at values cannot be faked; then only the real
ones are used.

For huge random tensors small ones stand in, to learn what their values look like: torch's factories
make tensors of at most so much along each dimension, so that a `get_inputs` of many gigabytes runs
in no time and its ranges can be read off. Code that depends on the exact sizes may raise; then
there are no statistics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode

from kernelwright.tools.tasks.audit.doubts import Ran, watched
from kernelwright.tools.tasks.loading.modules import (
    build_call,
    build_inputs,
    build_module,
    check_inputs,
    check_outputs,
)
from kernelwright.tools.tasks.loading.packing import leaves_of
from kernelwright.tools.tasks.loading.user_file import Entry
from kernelwright.tools.tasks.loading.watch import Described, agreed, described
from kernelwright.tools.tasks.refusals import user_code, user_line
from kernelwright.tools.types import ProjectFile, RefusedError, refuse
from kernelwright.tools.types.packing import CallPacking

LARGEST = 64

_SIZES_FIRST = (torch.rand, torch.randn, torch.zeros, torch.ones, torch.empty)
_SIZES_IN_A_LIST = (torch.randint, torch.full, torch.normal)


class ShrunkenFactories(TorchFunctionMode):
    """Caps the sizes that factories are asked for.

    Args:
        largest: along each dimension.
        only: cap nothing but first dimensions of this size; by default everything.
    """

    def __init__(self, largest: int = LARGEST, *, only: int | None = None) -> None:
        super().__init__()
        self._largest = largest
        self._only = only

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call `func` with capped sizes when it is a factory, else as it is."""
        named = dict(kwargs or {})
        if func in _SIZES_FIRST:
            sized = args[:1] if args and isinstance(args[0], (tuple, list)) else args
            args = (*self._capped(sized), *args[len(sized) :])
        elif func in _SIZES_IN_A_LIST:
            args = tuple(self._cap(arg) if isinstance(arg, (tuple, list)) else arg for arg in args)
        if "size" in named:
            named["size"] = self._cap(named["size"])
        return func(*args, **named)

    def _capped(self, sizes: tuple[object, ...]) -> tuple[object, ...]:
        """Sizes as separate arguments, or as one list."""
        if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
            return (self._cap(sizes[0]),)
        capped = self._cap(sizes)
        return tuple(capped) if isinstance(capped, list) else sizes

    def _cap(self, size: object) -> object:
        if isinstance(size, (tuple, list)):
            return [self._least(item, first=i == 0) for i, item in enumerate(size)]
        return self._least(size, first=True)

    def _least(self, size: object, *, first: bool) -> object:
        if not isinstance(size, int) or (self._only is not None and not first):
            return size
        return min(size, self._largest) if self._only in (None, size) else size


REAL_INPUTS_BYTES = 2**28
REAL_WEIGHTS_BYTES = 2**26

# What a mask selects has as many elements as the mask has ones.
_SELECT = ("nonzero", "masked_select")
_FIXED = "; torch.where(mask, x, 0) has the size of x, and mask.sum() says how many are selected"
_LOOKS_AT_VALUES = (DataDependentOutputException, DynamicOutputShapeException)

Made = TypeVar("Made")


@dataclass(frozen=True)
class Probe:
    """A module and its inputs, ready to trace, and what is known about values.

    `mode` is the fake mode that fake tensors belong to (None when all is real); `samples` are
    real values of each input, or None when there are none; `samples_fit` says whether they have
    the inputs' own shapes rather than smaller ones. Inputs are flat, and `call` says how they are
    given to the forward; the module takes them flat. `ran` is what the fake forward ran. `was` is
    what the module computes by beside its tensors, before that forward and behind it. `selects` is
    why the forward cannot be traced where a mask selects something in it; None where none does.
    """

    module: nn.Module
    inputs: list[object]
    mode: FakeTensorMode | None
    samples: list[object] | None
    samples_fit: bool
    call: CallPacking
    ran: Ran = field(default_factory=Ran)
    was: Described = field(default_factory=dict)
    selects: RefusedError | None = None


def probe(
    file: ModuleType,
    entry: Entry,
    override: Sequence[str],
    batch: ProjectFile | None = None,
) -> Probe:
    """Make the module and its inputs, run the forward once; RefusedError says what went wrong."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    faked = _faked(mode, lambda: build_call(file, override, 0, batch))
    if faked is None:
        build_module(file, entry, 0)  # what is wrong with it is said before its inputs are
    fake_inputs, call = faked or (None, build_call(file, override, 0, batch)[1])
    fake_module = _faked(mode, lambda: build_module(file, entry, 0, call))
    inputs_small = fake_inputs is None or size_bytes(fake_inputs) <= REAL_INPUTS_BYTES
    module_small = fake_module is None or size_bytes(_tensors(fake_module)) <= REAL_WEIGHTS_BYTES
    real_module = build_module(file, entry, 0, call) if module_small else None
    samples = build_call(file, override, 0, batch)[0] if inputs_small else _shrunken(file, override)
    inputs = fake_inputs if fake_inputs is not None else samples
    module = real_module if real_module is not None else fake_module
    if inputs is None or module is None:
        raise refuse("The inputs or weights are too large to be made here.")
    check_inputs(inputs)
    check_inputs(samples or inputs)  # what stands for them may have lost their kind
    was, run = described(module), fake_module or module
    ran, selects = Ran(), None
    try:
        ran = _run_fake(file, run, inputs, mode)
    except RefusedError as refused:
        if not refused.refusal.sentence.endswith(f"{_FIXED}."):
            raise
        selects = refused
    used_mode = mode if fake_inputs is not None else None
    was = agreed(was, described(run))
    return Probe(module, inputs, used_mode, samples, inputs_small, call, ran, was, selects)


@contextmanager
def quiet_fake_tensors() -> Iterator[None]:
    """Fake tensors log a traceback for every wrong shape; the person gets a sentence instead."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = was


def size_bytes(values: Sequence[object]) -> int:
    """Bytes of all tensors among the values."""
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


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


def _run_fake(
    file: ModuleType, module: nn.Module, inputs: Sequence[object], mode: FakeTensorMode
) -> Ran:
    """One forward on fake tensors: wrong shapes and types, and what it does for nothing."""
    tensors = [*_tensors(module), *(v for v in inputs if isinstance(v, torch.Tensor))]
    if not all(isinstance(tensor, FakeTensor) for tensor in tensors):
        return Ran()
    if any(isinstance(part, nn.RNNBase) for part in module.modules()):
        return Ran()  # torch would unroll it here, step by step; tracing does not
    try:
        with user_code("The forward", str(file.__file__)), torch.no_grad(), mode:
            outputs, ran = watched(lambda: leaves_of(module(*inputs)), _tensors(module))
            check_outputs(outputs)
            return ran
    except RefusedError as refused:
        if isinstance(refused.__cause__, _LOOKS_AT_VALUES):
            line = user_line(refused.__cause__)
            op = str(refused.__cause__)
            why = f"{f' at {line}' if line else ''} ({op}), which cannot be traced"
            hint = _FIXED if any(name in op for name in _SELECT) else ""
            raise refuse(f"The forward depends on the values of tensors{why}{hint}.") from refused
        raise
