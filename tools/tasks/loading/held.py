"""Tensors that are no weights, such as a module's in lists and dictionaries: a trace bakes them in.

That is right for tables that every module of the class has, and wrong for what is drawn by chance:
the next module, or the next import of the file, has others.
"""

from collections.abc import Callable, Collection, Iterator
from types import ModuleType
from typing import cast

import torch
from torch import nn


def drawn_table(
    module: nn.Module, baked: Collection[torch.Tensor], again: Callable[[], nn.Module]
) -> str:
    """Where the module keeps a tensor that a graph bakes in and another seed makes another of.

    Args:
        module: as it was traced.
        baked: the graph's constants.
        again: makes the module under another seed.
    """
    places = {tensor.data_ptr() for tensor in baked}
    found = {name: held for name, held in _held(module) if held.data_ptr() in places}
    if not found:
        return ""
    others = dict(_held(again()))
    return next((n for n, t in found.items() if n not in others or not _same(t, others[n])), "")


def drawn_names(
    file: ModuleType, again: ModuleType, baked: Collection[torch.Tensor]
) -> tuple[str, ...]:
    """Where a file holds what a graph bakes in, and an import under another seed something else."""
    first, second = (
        {place: held for name, value in vars(one).items() for place, held in _inside(value, name)}
        for one in (file, again)
    )
    named: dict[int, str] = {}  # each tensor by the first of its places
    for place, held in first.items():
        is_baked = any(held.shape == item.shape and _same(held.cpu(), item) for item in baked)
        if is_baked and not (place in second and _same(held, second[place])):
            named.setdefault(id(held), place)
    return tuple(named.values())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def _held(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Plain tensors of all parts by where they are kept."""
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if not name.startswith("_"):
                yield from _inside(value, f"{path}.{name}" if path else name)


# Of lists and dictionaries in each other; one may hold itself.
_DEEPEST = 8


def _inside(value: object, place: str, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    if depth > _DEEPEST:
        return
    if type(value) in (torch.Tensor, nn.Parameter):  # and nothing that stands for one in a trace
        yield place, cast("torch.Tensor", value)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _inside(item, f"{place}[{number}]", depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _inside(item, f"{place}[{key!r}]", depth + 1)
