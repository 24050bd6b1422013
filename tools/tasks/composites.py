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
from typing import TypeAlias

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_impls import _deregister_op_impl, op_implementations_dict
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


_found: dict[tuple[object, ...], tuple[Rules, Rules]] = {}
_registered: dict[tuple[object, ...], dict[OpOverload, Registered]] = {}


def _split(table: Rules) -> tuple[Rules, Rules]:
    """The table's composite operators, with all that are to be kept whole, and its others."""
    composites = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    key = (len(composites), len(torch.ops._dir), *table.items())
    if key not in _found:
        _found.clear()
        _found[key] = _torch_splits(table)
    kept, others = _found[key]
    return dict(kept), dict(others)


@contextmanager
def _override(rules: Rules) -> Iterator[None]:
    """As torch's, with the kernels that it registered for the same rules before."""
    key = tuple(rules.items())
    if key not in _registered:
        with _torch_overrides(rules):
            _registered.clear()
            _registered[key] = {op: _of(op) for op in rules}
            yield
        return
    before = {op: dict(op.py_kernels) for op in rules}
    try:
        for op, registered in _registered[key].items():
            _replace(op, registered.kernels)
            if registered.fake is not None:
                op_implementations_dict.setdefault(op, registered.fake)
        yield
    finally:
        for op, kernels in before.items():
            _replace(op, kernels)
            _deregister_op_impl(op)


def _of(op: OpOverload) -> Registered:
    return Registered(dict(op.py_kernels), op_implementations_dict.get(op))


def _replace(op: OpOverload, kernels: Mapping[DispatchKey, Rule]) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
