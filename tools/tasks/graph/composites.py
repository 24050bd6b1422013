"""What torch registers to trace composite operators, made once a process instead of every time.

`run_decompositions` looks through all operators for the composite ones, registers twenty kernels
for each of about 500, and takes them away afterwards: two thirds of the time of tracing a small
module. Here both are remembered: the search as long as no operator is added, the kernels as they
were registered first. Not covered: threads that trace at the same time, which torch does not bear
either.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program

Rule: TypeAlias = Callable[..., object]
Rules: TypeAlias = dict[OpOverload, Rule]
Overriding: TypeAlias = Callable[[Rules], AbstractContextManager[None]]
Splitting: TypeAlias = Callable[[Rules], tuple[Rules, Rules]]


@dataclass(frozen=True)
class Registered:
    """An operator's kernels by dispatch key, and its rule for fake tensors if it has one."""

    kernels: Mapping[DispatchKey, Rule]
    fake: Rule | None


_SPLIT = "_split_decomp_table_to_cia_and_python_decomp"
_OVERRIDE = "_override_composite_implicit_decomp"
_torch_splits: Splitting = getattr(exported_program, _SPLIT)
_torch_overrides: Overriding = getattr(exported_program, _OVERRIDE)


@contextmanager
def remembered_composites() -> Iterator[None]:
    """While inside, `run_decompositions` finds and registers composite operators from memory."""
    setattr(exported_program, _SPLIT, _split)
    setattr(exported_program, _OVERRIDE, _override)
    try:
        yield
    finally:
        setattr(exported_program, _SPLIT, _torch_splits)
        setattr(exported_program, _OVERRIDE, _torch_overrides)


# Tables asked for in turns: the one for graphs, and one for each kind of outline.
_MOST_TABLES = 4

# By what a table holds, with the table, so that nothing else comes to lie where that was.
Key: TypeAlias = tuple[int, ...]
Held = TypeVar("Held")
_found: dict[Key, tuple[Rules, Rules, Rules]] = {}
_registered: dict[Key, tuple[Rules, list[tuple[OpOverload, Registered]]]] = {}


def _key(table: Rules) -> Key:
    """Which operators and rules these are: to ask all of them for their hashes takes longer."""
    return (*map(id, table), *map(id, table.values()))


def registered_composites() -> tuple[int, int]:
    """How many composite operators and namespaces there are: another number, another search."""
    composites = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    return len(composites), len(torch.ops._dir)


def _split(table: Rules) -> tuple[Rules, Rules]:
    """The table's composite operators, with all that are to be kept whole, and its others."""
    key = (*registered_composites(), *_key(table))
    if key not in _found:
        _make_room(_found)
        held = dict(table)
        _found[key] = (held, *_torch_splits(table))
    _, kept, others = _found[key]
    return dict(kept), dict(others)


@contextmanager
def _override(rules: Rules) -> Iterator[None]:
    """As torch's, with the kernels that it registered for the same rules before."""
    key = _key(rules)
    if key not in _registered:
        with _torch_overrides(rules):
            _make_room(_registered)
            _registered[key] = (dict(rules), [(op, _of(op)) for op in rules])
            yield
        return
    before = [(op, op.py_kernels) for op in rules]
    try:
        for op, registered in _registered[key][1]:
            _replace(op, dict(registered.kernels))
            if registered.fake is not None:
                op_implementations_dict.setdefault(op, registered.fake)
        yield
    finally:
        for op, kernels in before:
            _replace(op, kernels)
            op_implementations_dict.pop(op, None)


def _make_room(remembered: dict[Key, Held]) -> None:
    """The oldest goes."""
    if len(remembered) >= _MOST_TABLES:
        del remembered[next(iter(remembered))]


def _of(op: OpOverload) -> Registered:
    return Registered(dict(op.py_kernels), op_implementations_dict.get(op))


def _replace(op: OpOverload, kernels: dict[DispatchKey, Rule]) -> None:
    op.py_kernels = kernels
    op._dispatch_cache.clear()
