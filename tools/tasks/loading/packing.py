"""Takes nested arguments and results apart into flat tensors, and has a module called with these.

Flat tensors are called by the names that the forward has for its arguments. Known are tuples,
lists, dictionaries with words as keys, named tuples and dataclasses, such as the outputs of
transformers; anything else is refused by its name. Only called inside workers.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import importlib
import inspect
import keyword
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Literal

import torch
from torch import nn

from kernelwright.tools.types import refuse
from kernelwright.tools.types.packing import CallPacking, Packing

Pieces = list[object]

_RETURNS = "The forward returns"
_SCALARS = (bool, int, float, str)
_SYMBOLS = (torch.SymBool, torch.SymInt, torch.SymFloat)


def result_apart(value: object, *, own: str = "") -> tuple[Pieces, Packing]:
    """The tensors of a forward's result in order, and how they were packed.

    Numbers and words that are returned beside them are part of the packing: they stay the same.

    Args:
        value: A tensor, or containers of such.
        own: The name of the user's file as a module, whose classes are called `:Name`.

    Raises:
        RefusedError: Something in it is of another kind.
    """
    leaves: Pieces = []
    return leaves, _packed(value, leaves, _RETURNS, own, constants=True)


def leaves_of(value: object) -> Pieces:
    """The tensors of a forward's result."""
    return [value] if isinstance(value, torch.Tensor) else result_apart(value)[0]


def unchanged(now: Packing, before: Packing) -> None:
    """RefusedError where a forward returns other constants than it did."""
    for new, old in zip(now.constants, before.constants, strict=False):
        if new != old:
            raise refuse(
                f"{_RETURNS} {new} where it returned {old}: what it returns beside tensors must "
                "not change."
            )


def _packed(
    value: object, leaves: Pieces, what: str, own: str, *, constants: bool = False
) -> Packing:
    if constants and type(value) in _SCALARS:
        finite = not isinstance(value, float) or math.isfinite(value)
        return Packing(kind="constant", text=repr(value) if finite else f"float({str(value)!r})")
    if constants and isinstance(value, _SYMBOLS):
        raise refuse(
            f"{what} a number that follows from its inputs' sizes; what it returns beside tensors "
            "must not change."
        )
    if isinstance(value, (torch.Tensor, *_SCALARS)):
        leaves.append(value)
        return Packing()
    if value is None:
        return Packing(kind="none")
    keys, values = _fields(value)
    if keys is not None:
        kind, of = "fields", _name(type(value), own)
    elif isinstance(value, (tuple, list)):
        of = _name(torch.Size, own) if isinstance(value, torch.Size) else ""
        kind, values = ("list" if isinstance(value, list) else "tuple"), list(value)
    elif isinstance(value, dict) and type(value) in (dict, OrderedDict):
        kind, of = "dict", "" if type(value) is dict else _name(OrderedDict, own)
        keys, values = _words(value, what), list(value.values())
    else:
        raise refuse(
            f"{what} a {type(value).__name__}; tensors, tuples, lists, dictionaries, named tuples "
            "and dataclasses of tensors are supported."
        )
    items = tuple(_packed(item, leaves, what, own, constants=constants) for item in values)
    return Packing(kind=kind, of=of, keys=tuple(keys or ()), items=items)  # type: ignore[arg-type]


def _fields(value: object) -> tuple[list[str] | None, list[object]]:
    """Names and values of a dataclass or a named tuple; None for anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        keys = [item.name for item in dataclasses.fields(value) if item.init]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        keys = list(value._fields)
    else:
        return None, []
    return keys, [getattr(value, key) for key in keys]


def _words(value: dict[object, object], what: str) -> list[str]:
    words = [key for key in value if isinstance(key, str)]
    if len(words) < len(value):
        raise refuse(f"{what} a dictionary whose keys are not all words.")
    return words


def _name(kind: type, own: str) -> str:
    module = "" if kind.__module__ == own else kind.__module__
    if "<locals>" in kind.__qualname__:
        raise refuse(f"{kind.__name__} is defined inside a function; define it in a module.")
    if not all(_is_name(part) for part in f"{kind.__module__}.{kind.__qualname__}".split(".")):
        raise refuse(f"The class {kind.__qualname__[:60]!r} has no name that Python can import.")
    return f"{module}:{kind.__qualname__}"


def call_packing(
    arguments: Sequence[object], named: dict[str, object], *, own: str = ""
) -> tuple[Pieces, CallPacking]:
    """The flat inputs of a call, and how they were given; an absent one is an input that is None.

    Args:
        arguments: Those by position.
        named: Those by keyword.
        own: The name of the user's file as a module, whose classes are called `:Name`.

    Raises:
        RefusedError: Something in it cannot be an input.
    """
    # They are printed into calls, and into exports.
    for key in named:
        if not _is_name(str(key)):
            raise refuse(f"The named argument {str(key)[:60]!r} is no name that Python can call.")
    leaves: Pieces = []
    positional = tuple(_argument(item, n, leaves, own) for n, item in enumerate(arguments, start=1))
    keywords = tuple(str(key) for key in named)
    values = tuple(_argument(item, key, leaves, own) for key, item in named.items())
    return leaves, CallPacking(positional=positional, keywords=keywords, named=values)


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def _argument(value: object, which: int | str, leaves: Pieces, own: str) -> Packing:
    if value is None:
        leaves.append(None)
        return Packing()
    return _packed(value, leaves, f"Input {which} is", own)


def called_flat(module: nn.Module, call: CallPacking | None, own: str) -> nn.Module:
    """Have the module take flat inputs, and give its forward what it is used to.

    What is called is straight-line code, so that a baseline pays for no more than the containers.
    """
    if call is None or call.plain:
        return module
    names = flat_names(module, call)
    classes = {f"_type_{number}": name for number, name in enumerate(call.classes)}
    by_name = {name: variable for variable, name in classes.items()}
    given = call.printed(iter(names), by_name.__getitem__)
    text = f"def forward({', '.join(['self', *names])}):\n    return _forward(self, {given})\n"
    space: dict[str, object] = {"_forward": type(module).forward}
    space |= {variable: class_of(name, own) for variable, name in classes.items()}
    exec(compile(text, "<arguments>", "exec"), space)
    forward = space["forward"]
    assert isinstance(forward, FunctionType)
    module.forward = MethodType(forward, module)
    return module


class FunctionModule(nn.Module):
    """A plain function as a module, so that everything after sees one kind of reference."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object, **named: object) -> object:
        """The function itself."""
        return self.function(*args, **named)  # type: ignore[operator]


def argument_names(module: nn.Module, count: int) -> list[str]:
    """One distinct identifier for each of `count` positional arguments, in order."""
    is_function = isinstance(module, FunctionModule) and "forward" not in vars(module)
    target = module.function if is_function else module.forward
    try:
        parameters = list(inspect.signature(target).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional][:count]
    rest = [f"input_{position}" for position in range(len(names), count)]
    return [f"{name}_" if keyword.iskeyword(name) else name for name in [*names, *rest]]


def flat_names(module: nn.Module, call: CallPacking) -> list[str]:
    """One distinct identifier for each flat input, after the arguments that it is part of."""
    tops = [*argument_names(module, len(call.positional)), *call.keywords]
    said = [
        name
        for top, item in zip(tops, (*call.positional, *call.named), strict=True)
        for name in _below(top, item)
    ]
    taken: list[str] = []
    for name in said:
        plain = re.sub(r"\W+", "_", name)
        plain = f"{plain}_" if keyword.iskeyword(plain) or plain == "self" else plain
        while plain in taken:
            plain += "_"
        taken.append(plain)
    return taken


def _below(top: str, packing: Packing) -> list[str]:
    if packing.kind == "leaf":
        return [top]
    keys = packing.keys or tuple(map(str, range(len(packing.items))))
    return [
        name
        for key, item in zip(keys, packing.items, strict=True)
        for name in _below(f"{top}_{key}", item)
    ]


def class_of(name: str, own: str) -> Callable[..., object]:
    """A class by the name that a packing has for it; RefusedError where it is not there."""
    module, _, path = name.partition(":")
    try:
        found: object = importlib.import_module(module or own) if module != "builtins" else builtins
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise refuse(f"The class {path} of {module or 'the file'} is not there: {error}.") from None
    assert callable(found)
    return found


class flattened:  # noqa: N801  # a context manager that reads as a word
    """While inside, the module returns a flat tuple; how that was packed is kept in `packing`."""

    def __init__(self, module: nn.Module, own: str) -> None:
        self._module, self._own = module, own
        self._before = vars(module).get("forward")
        self.packing = Packing()

    @property
    def structure(self) -> Literal["tensor", "tuple", "list"]:
        """How the flat result is packed where that is all there is to it; else a tuple."""
        if self.packing.kind == "leaf":
            return "tensor"
        return "list" if self.packing.kind == "list" and self.packing.plain else "tuple"

    def __enter__(self) -> flattened:
        """Put the flat forward before the module's own."""
        inner = self._module.forward

        @functools.wraps(inner)
        def forward(*arguments: object) -> object:
            before = self.packing
            leaves, self.packing = result_apart(inner(*arguments), own=self._own)
            unchanged(self.packing, before)
            return leaves[0] if self.packing.kind == "leaf" else tuple(leaves)

        self._module.forward = forward
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the module as it was."""
        if self._before is None:
            del self._module.forward
        else:
            self._module.forward = self._before
