"""Writes what a mask selects at its full size, where nothing is left of it but sums.

`x[mask]` has as many elements as the mask has ones, which no graph of fixed shapes can hold. What
is computed of it element by element is computed of all of `x` instead; a sum of it is one in which
the others are zero, its length is the mask's sum, and what is put back by the same mask is chosen
by `torch.where`. So `loss[mask].mean()` needs no selection.

Not covered: anything else that is made of a selection, and two selections that meet, as
`torch.export` cannot tell that they are as long.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import Argument

from kernelwright.tools.tasks.graph.laid_out import call_before

aten = torch.ops.aten

_ASSERTS = (
    operator.ge, operator.gt, operator.le, operator.lt, aten._assert_scalar.default,
    aten._assert_tensor_metadata.default,
)  # fmt: skip
_DRAWS = torch.Tag.nondeterministic_seeded
_COPIES = (aten._to_copy.default, aten.alias.default, aten.clone.default, aten.detach.default)


class SelectionRemainsError(Exception):
    """A graph in which something has as many elements as a mask has ones."""


@dataclass(frozen=True)
class _Selected:
    """A value as it would be had everything been selected; its first dimensions are the mask's."""

    full: fx.Node
    mask: fx.Node

    @property
    def rank(self) -> int:
        """Dimensions of the mask, which are one of the selection."""
        return _value(self.mask).dim()

    @property
    def rest(self) -> int:
        """Dimensions behind the mask's."""
        return _value(self.full).dim() - self.rank


def fixed_sizes(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Rewrite a graph in place.

    Returns:
        What stands in the place of nodes that are gone.

    Raises:
        SelectionRemainsError: a selection is used for something else than sums.
    """
    return _Rewriting(graph).done()


class _Rewriting:
    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._selected: dict[fx.Node, _Selected] = {}
        self._counts: dict[fx.Node, fx.Node] = {}
        self._old: list[fx.Node] = []
        self._replaced: dict[fx.Node, fx.Node] = {}

    def done(self) -> dict[fx.Node, fx.Node]:
        """Rewrite all of it."""
        for node in list(self._graph.nodes):
            if node.op == "call_function":
                self._look(node)
        for node in reversed(self._old):
            if node.users:
                raise SelectionRemainsError(str(node))
            self._graph.erase_node(node)
        if left := next((node for node in self._graph.nodes if not _is_fixed(node)), None):
            raise SelectionRemainsError(str(left))
        return self._replaced

    def _look(self, node: fx.Node) -> None:
        given = node.all_input_nodes
        if node.target in (aten.index.Tensor, aten.masked_select.default) and _mask_of(node):
            self._selected[node] = self._begun(node)
        elif node.target in _ASSERTS and any(at in self._old for at in given):
            pass  # that it is no longer than the mask, and of its type, which is so
        elif node.target is aten.sym_size.int and given[0] in self._selected:
            self._counts[node] = self._count(node, self._selected[given[0]])
        elif any(at in self._counts for at in given):
            self._with_counts(node)
        elif any(at in self._selected for at in given):
            self._of_selected(node)
        else:
            return
        if node not in self._old:
            self._old.append(node)

    def _begun(self, node: fx.Node) -> _Selected:
        source, mask = cast("fx.Node", node.args[0]), cast("fx.Node", _mask_of(node))
        made, over = _value(source), _value(mask)
        if source in self._selected or made.shape[: over.dim()] != over.shape:
            raise SelectionRemainsError(str(node))
        if node.target is aten.masked_select.default and made.dim() != over.dim():
            raise SelectionRemainsError(str(node))
        return _Selected(source, mask)

    def _count(self, node: fx.Node, selected: _Selected) -> fx.Node:
        if node.args[1] != 0:
            raise SelectionRemainsError(str(node))
        dims = list(range(selected.rank))
        return call_before(node, aten.sum.dim_IntList, selected.mask, dims)

    def _with_counts(self, node: fx.Node) -> None:
        """A product of a length with a number, or an operator that a length is a number for."""
        args = fx.map_arg(node.args, lambda at: self._counts.get(at, at))
        if node.target is operator.mul:
            self._counts[node] = call_before(node, aten.mul.Tensor, *args)
            return
        if not _is_pointwise(node) or any(at in self._selected for at in node.all_input_nodes):
            raise SelectionRemainsError(str(node))
        self._replace(node, call_before(node, cast("OpOverload", node.target), *args))

    def _of_selected(self, node: fx.Node) -> None:
        if node.target is aten.sum.dim_IntList:
            self._sum(node)
        elif node.target in (aten.index_put.default, aten.masked_scatter.default):
            self._put_back(node)
        elif node.target in _COPIES or _is_pointwise(node):
            self._selected[node] = self._at_full_size(node)
        else:
            raise SelectionRemainsError(str(node))

    def _at_full_size(self, node: fx.Node) -> _Selected:
        """The same operator on everything."""
        inputs = [self._selected[at] for at in node.all_input_nodes if at in self._selected]
        first = inputs[0]
        beside = [at for at in node.all_input_nodes if at not in self._selected]
        if any(not _is_same(one.mask, first.mask) or one.rest != first.rest for one in inputs):
            raise SelectionRemainsError(str(node))
        # What stands beside it must not reach into the dimension that the mask has more of.
        if any(_value(at).dim() > first.rest for at in beside):
            raise SelectionRemainsError(str(node))
        full = {at: one.full for at, one in self._selected.items()}
        args = fx.map_arg(node.args, lambda at: full.get(at, at))
        made = call_before(node, cast("OpOverload", node.target), *args, **node.kwargs)
        if _divides(node) and not _value(made).is_floating_point():
            raise SelectionRemainsError(f"{node}: what is not selected may be zero")
        return _Selected(made, first.mask)

    def _sum(self, node: fx.Node) -> None:
        selected = self._selected[cast("fx.Node", node.args[0])]
        behind = 1 + selected.rest
        named = cast("Sequence[int]", node.args[1] if len(node.args) > 1 else ()) or range(behind)
        dims = {dim % behind for dim in named}
        keeps = len(node.args) > 2 and bool(node.args[2])
        if 0 not in dims or (keeps and selected.rank > 1):
            raise SelectionRemainsError(str(node))
        over = [*range(selected.rank), *(dim - 1 + selected.rank for dim in sorted(dims - {0}))]
        kept = self._chosen(node, selected, self._zero(node, selected))
        made = call_before(node, aten.sum.dim_IntList, kept, over, keeps, **node.kwargs)
        self._replace(node, made)

    def _put_back(self, node: fx.Node) -> None:
        """What is written where it came from."""
        scatters = node.target is aten.masked_scatter.default
        base, where, values = cast("tuple[fx.Node, Argument, fx.Node]", node.args[:3])
        masks = [where] if scatters else cast("list[Argument]", where)
        selected = self._selected.get(values)
        is_added = len(node.args) > 3 and bool(node.args[3])
        if selected is None or base in self._selected or is_added or len(masks) != 1:
            raise SelectionRemainsError(str(node))
        mask, full = cast("fx.Node", masks[0]), _value(selected.full)
        if not _is_same(mask, selected.mask) or full.shape != _value(base).shape:
            raise SelectionRemainsError(str(node))
        self._replace(node, self._chosen(node, selected, base))

    def _chosen(self, node: fx.Node, selected: _Selected, other: fx.Node) -> fx.Node:
        """What is selected, and something else in the places of what is not."""
        shape = [*_value(selected.mask).shape, *[1] * selected.rest]
        mask = call_before(node, aten.view.default, selected.mask, shape)
        return call_before(node, aten.where.self, mask, selected.full, other)

    def _zero(self, node: fx.Node, selected: _Selected) -> fx.Node:
        value = _value(selected.full)
        return call_before(
            node, aten.full.default, [], 0, dtype=value.dtype, device=value.device, pin_memory=False
        )

    def _replace(self, node: fx.Node, by: fx.Node) -> None:
        before, after = _value(node), _value(by)
        if before.shape != after.shape or before.dtype is not after.dtype:
            raise SelectionRemainsError(str(node))
        node.replace_all_uses_with(by)
        self._replaced[node] = by


def _value(node: fx.Node) -> torch.Tensor:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        raise SelectionRemainsError(str(node))
    return value


def _is_fixed(node: fx.Node) -> bool:
    """Whether no value decides a node's number, or its shape."""
    values = node.meta.get("val")
    for value in values if isinstance(values, (tuple, list)) else (values,):
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return False
        if isinstance(value, torch.Tensor) and any(type(size) is not int for size in value.shape):
            return False
    return True


def _mask_of(node: fx.Node) -> fx.Node | None:
    """The only mask by which a node selects; None where it takes by positions."""
    places = node.args[1]
    listed = places if isinstance(places, (list, tuple)) else [places]
    given = [at for at in listed if isinstance(at, fx.Node)]
    if len(given) != 1 or listed[0] is not given[0] or _value(given[0]).dtype is not torch.bool:
        return None
    return given[0]


def _is_same(one: fx.Node, other: fx.Node) -> bool:
    """Whether two nodes of a functional graph compute the same."""
    if one is other:
        return True
    given = one.all_input_nodes, other.all_input_nodes
    if one.op != "call_function" or len(given[0]) != len(given[1]) or _plain(one) != _plain(other):
        return False
    if isinstance(one.target, OpOverload) and _DRAWS in one.target.tags:
        return False
    return all(_is_same(a, b) for a, b in zip(*given, strict=True))


def _plain(node: fx.Node) -> str:
    """A call without the names of what it reads."""
    return f"{node.op} {node.target} {fx.map_arg((node.args, node.kwargs), lambda _: None)!r}"


def _divides(node: fx.Node) -> bool:
    return str(node.target).split(".")[1] in ("div", "floor_divide", "fmod", "remainder")


def _is_pointwise(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags
