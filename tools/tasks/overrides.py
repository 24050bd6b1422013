"""Inputs named on the command line: `4096x4096:float32`, `32x128:int64<1000`, `scalar:bool`, `0.5`.

A tensor is its shape, a colon and a type; integers need a bound, as nobody can guess the size
of an embedding table. Anything that is no such text is a plain Python scalar.
"""

from __future__ import annotations

import re

import torch

from kernelwright.tools.tasks.refusals import refuse
from kernelwright.tools.types import DType
from kernelwright.tools.types.value import Value

_TENSOR = re.compile(r"^(?P<shape>scalar|\d+(x\d+)*):(?P<dtype>\w+)(<(?P<bound>\d+))?$")
_SHAPE_ONLY = re.compile(r"^\d+(x\d+)+$")
_WORDS = {"true": True, "false": False, "none": None}


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
    if word in set(DType):
        return DType(word)
    known = ", ".join(DType)
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
