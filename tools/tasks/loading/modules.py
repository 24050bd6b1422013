"""Makes modules and inputs out of a loaded file, and checks what goes into a forward and comes out.

They are made in KernelBench's order of draws: the seed is set before `get_init_inputs`, again
before the constructor, and again before `get_inputs`, so that weights and inputs do not depend on
each other. The module stays in the mode its constructor left it in (training, for KernelBench).
Only called inside workers.

Inputs can be named on the command line: `4096x4096:float32`, `32x128:int64<1000`, `scalar:bool`,
`0.5`. A tensor is its shape, a colon and a type; integers need a bound, as nobody can guess the
size of an embedding table. Anything that is no such text is a plain Python scalar.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from math import prod
from types import ModuleType
from typing import cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from kernelwright.tools.tasks.loading.packing import (
    FunctionModule,
    call_packing,
    called_flat,
    leaves_of,
)
from kernelwright.tools.tasks.loading.saved import drawn_like, load_state
from kernelwright.tools.tasks.loading.user_file import Entry, seed_everything
from kernelwright.tools.tasks.loading.watch import copied
from kernelwright.tools.tasks.refusals import user_code
from kernelwright.tools.types import DType, ProjectFile, RefusedError, refuse
from kernelwright.tools.types.graph import REAL
from kernelwright.tools.types.packing import CallPacking
from kernelwright.tools.types.value import Value

_TENSOR = re.compile(r"^(?P<shape>scalar|\d+(x\d+)*):(?P<dtype>\w+)(<(?P<bound>\d+))?$")
_SHAPE_ONLY = re.compile(r"^\d+(x\d+)+$")
_WORDS = {"true": True, "false": False, "none": None}


_ADDRESSES = 2**57  # bytes that a processor tells apart; no tensor has more elements


class Override(Value):
    """One argument as the person wrote it: a tensor to draw, or a scalar to pass."""

    shape: tuple[int, ...] | None = None
    dtype: DType = DType.FLOAT32
    bound: int | None = None
    scalar: bool | int | float | str | None = None


def parse_override(text: str) -> Override:
    """What a text such as `32x128:int64<1000` asks for; RefusedError names the rule it breaks."""
    words = text.strip()
    if _SHAPE_ONLY.match(words):
        words += ":float32"
    found = _TENSOR.match(words)
    if found is None:
        return Override(scalar=_scalar(words))
    dtype = _dtype(found["dtype"], text)
    shape = () if found["shape"] == "scalar" else tuple(map(int, found["shape"].split("x")))
    if prod(shape) >= _ADDRESSES:
        raise refuse(f"Input {text!r} is larger than any memory.")
    bound = int(found["bound"]) if found["bound"] else None
    _check_bound(text, words, dtype, bound)
    return Override(shape=shape, dtype=dtype, bound=bound)


def draw_override(override: Override) -> object:
    """A fresh value: standard normal, uniform below the bound, or a fair coin for booleans."""
    if override.shape is None:
        return override.scalar
    dtype: torch.dtype = getattr(torch, override.dtype.value)
    if override.dtype.is_floating:
        return torch.randn(override.shape).to(dtype)
    high = 2 if override.dtype is DType.BOOL else override.bound or 2
    return torch.randint(0, high, override.shape).to(dtype)


def _dtype(word: str, text: str) -> DType:
    if word in set(REAL):
        return DType(word)
    known = ", ".join(REAL)
    raise refuse(f"Input {text!r} has the unknown type {word!r}; known are {known}.")


def _check_bound(text: str, words: str, dtype: DType, bound: int | None) -> None:
    integer = not dtype.is_floating and dtype is not DType.BOOL
    if integer and not bound:
        raise refuse(f"Input {text!r} needs a bound above 0, such as {words.split('<')[0]}<1000.")
    if bound is not None and not integer:
        raise refuse(f"Input {text!r} has a bound, which only integers take.")


def _scalar(words: str) -> bool | int | float | str | None:
    if words.lower() in _WORDS:
        return _WORDS[words.lower()]
    if ":" in words:
        raise refuse(f"Input {words!r} is not of the form 4096x4096:float32 or 32x128:int64<1000.")
    for kind in (int, float):
        try:
            return kind(words)
        except ValueError:
            continue
    return words


def build_module(
    file: ModuleType,
    entry: Entry,
    seed: int,
    call: CallPacking | None = None,
    state: ProjectFile | None = None,
) -> nn.Module:
    """The reference with weights drawn under `seed`, on the default device.

    With `call` it takes flat inputs, and its forward is called as that says. With `state`, of a
    function that made a model, it has the weights which that model had when it was read.
    """
    module = _built(file, entry, seed)
    _check_sizes(module)
    if state is not None:
        load_state(module, state)
    return called_flat(module.eval() if entry.evaluation else module, call, file.__name__)


def _check_sizes(module: nn.Module) -> None:
    """RefusedError for a module whose weights are made by its first forward."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise refuse(
                f"The weight {name!r} has no size before the first forward, as it is of a lazy "
                "module; give its size, or call the module once where it is built."
            )


def _built(file: ModuleType, entry: Entry, seed: int) -> nn.Module:
    path = str(file.__file__)
    seed_everything(seed)
    if entry.kind == "built":
        return _made(entry, path)
    if entry.kind == "function":
        return FunctionModule(entry.target)
    if isinstance(entry.target, nn.Module):
        return adopt_plain_tensors(copied(entry.target))
    arguments = _init_inputs(file, path)
    seed_everything(seed)
    try:
        return _construct(entry, arguments, path)
    except RefusedError as refused:
        # The file's constructor arguments may be meant for another of its classes.
        if entry.kind == "kernelbench" or not isinstance(refused.__cause__, TypeError):
            raise
    seed_everything(seed)
    return _construct(entry, (), path)


def _made(entry: Entry, path: str) -> nn.Module:
    """What the person's function returns, which must be a module."""
    with user_code(f"{entry.name}()", path), torch.no_grad():
        module = cast("Callable[[], object]", entry.target)()
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise refuse(f"{entry.name}() must return an nn.Module, but it returned a {kind}.")
    return adopt_plain_tensors(module)


def _construct(entry: Entry, arguments: Sequence[object], path: str) -> nn.Module:
    if not arguments and (why := _needs(entry)):
        raise refuse(why) from TypeError(why)
    with user_code(f"Constructing {entry.name}", path), torch.no_grad():
        module = cast("type[nn.Module]", entry.target)(*arguments)
    return adopt_plain_tensors(module)


def _needs(entry: Entry) -> str:
    """What a class without given arguments lacks, and how to give it; "" where it needs none."""
    try:
        found = inspect.signature(cast("type[nn.Module]", entry.target)).parameters.values()
    except (TypeError, ValueError):  # a class that says nothing of them
        return ""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in found if p.default is p.empty and p.kind not in several]
    if not needed:
        return ""
    names = ", ".join(item.name for item in needed)
    by_place = all(item.kind is not item.KEYWORD_ONLY for item in needed)
    listed = "return them as a list in get_init_inputs(), or " if by_place else ""
    return (
        f"{entry.name} is constructed with arguments ({names}): {listed}make one in the file, as "
        f"model = {entry.name}(...), and name it with --entry."
    )


def _init_inputs(file: ModuleType, path: str) -> Sequence[object]:
    getter = getattr(file, "get_init_inputs", None)
    if getter is None:
        return ()
    with user_code("get_init_inputs()", path):
        arguments = getter()
    if not isinstance(arguments, (list, tuple)):
        kind = type(arguments).__name__
        raise refuse(f"get_init_inputs() must return a list, but it returned a {kind}.")
    return arguments


def build_inputs(file: ModuleType, override: Sequence[str], seed: int) -> list[object]:
    """The task's own inputs under `seed`, flat; see `build_call`."""
    return build_call(file, override, seed)[0]


def build_call(
    file: ModuleType, override: Sequence[str], seed: int, batch: ProjectFile | None = None
) -> tuple[list[object], CallPacking]:
    """The arguments of one call under `seed`: what the person named or saved, else `get_inputs()`.

    That returns a list of positional arguments, or a dictionary of named ones; either may hold
    tuples, lists, dictionaries, named tuples and dataclasses of tensors.
    """
    seed_everything(seed)
    if batch is not None:
        return drawn_like(batch, seed)
    if override:
        return call_packing([draw_override(parse_override(text)) for text in override], {})
    path = str(file.__file__)
    getter = getattr(file, "get_inputs", None)
    if not callable(getter):
        raise refuse("The file has no get_inputs() function, and no inputs were named.")
    with user_code("get_inputs()", path), torch.no_grad():
        inputs = getter()
    named = isinstance(inputs, dict) and all(isinstance(key, str) for key in inputs)
    if not isinstance(inputs, (list, tuple)) and not named:
        kind = type(inputs).__name__
        raise refuse(f"get_inputs() must return a list, but it returned a {kind}.")
    leaves, call = call_packing(() if named else inputs, inputs if named else {}, own=file.__name__)
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], call


def adopt_plain_tensors(module: nn.Module) -> nn.Module:
    """Turn tensors kept as plain attributes into non-persistent buffers of the same name.

    Then they have a state-dict name, move with the module and can be read by a plan. One that
    stands before an attribute of its class stays: a buffer would stand behind it.
    """
    for part in module.modules():
        plain = [
            name
            for name, value in vars(part).items()
            if isinstance(value, torch.Tensor) and not hasattr(type(part), name)
        ]
        for name in plain:
            value = vars(part).pop(name)
            part.register_buffer(name, value.detach(), persistent=False)
    return module


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
        torch.float8_e4m3fn,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
)
# What may stand between inputs and outputs as well, and in weights.
INSIDE = SUPPORTED | {torch.complex64, torch.complex128}


def _check_tensor(what: str, value: torch.Tensor) -> None:
    if value.layout is not torch.strided:
        kind = str(value.layout).removeprefix("torch.")
        raise refuse(f"{what} is a {kind} tensor; only dense tensors are supported.")
    if value.is_meta:
        raise refuse(f"{what} is on the device 'meta', where tensors have no values.")
    if value.dtype not in SUPPORTED:
        kind = str(value.dtype).removeprefix("torch.")
        raise refuse(f"{what} has the type {kind}, which is not supported.")
    if value.numel() == 0:
        raise refuse(f"{what} has no elements: its shape is {tuple(value.shape)}.")


def check_outputs(outputs: object) -> None:
    """RefusedError for results that hold something other than tensors, or nothing."""
    leaves = leaves_of(outputs)
    if not leaves:
        raise refuse("The forward returns no tensor.")
    for position, leaf in enumerate(leaves, start=1):
        if not isinstance(leaf, torch.Tensor):
            kind = type(leaf).__name__
            raise refuse(f"The forward must return tensors, but output {position} is a {kind}.")
        _check_tensor(f"Output {position}", leaf)
