"""Tidies torch's graph before it is converted, without changing what it computes.

Checks and copies without effect go, equal nodes become one, reductions over everything name
their dimensions, and constant tensors are all spelt `aten.full`, so that readers of the graph
meet each thing in one form.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from kernelwright.tools.tasks.traced import Traced
from kernelwright.tools.types.operators import words

aten = torch.ops.aten

_CHECKS = words(
    "_assert_tensor_metadata _assert_async _assert_scalar sym_constrain_range "
    "sym_constrain_range_for_size"
)
_NOTHING = (
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
    aten.lift.default,
)
_REDUCTIONS = (
    aten.sum.dim_IntList,
    aten.amax.default,
    aten.amin.default,
    aten.var_mean.correction,
    aten.var.correction,
    aten.any.dims,
    aten.all.dims,
)
_RANDOM = torch.Tag.nondeterministic_seeded


def simplify(traced: Traced) -> None:
    """Tidy the graph in place."""
    kept = {*traced.outputs, *traced.mutations.values()}
    for node in list(traced.graph.nodes):
        if node.op == "call_function":
            _simplify_node(traced, node, kept)
    _merge_equal(traced, kept)
    _remove_unused(traced.graph, kept)


def random_operators(graph: fx.Graph) -> tuple[str, ...]:
    """Names of the operators with which the forward draws random numbers, each once."""
    drawing = [node for node in graph.nodes if draws_random_node(node)]
    names = [_base(node) for node in drawing if not _draws_with_certainty(node)]
    return tuple(dict.fromkeys(names))


def _draws_with_certainty(node: fx.Node) -> bool:
    """Attention and recurrent layers carry the tag for their dropout, which is mostly zero."""
    if node.target is aten.scaled_dot_product_attention.default:
        dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return not dropout
    packet = getattr(node.target, "_overloadpacket", None)
    if packet in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu):
        dropout, training = node.args[5], node.args[6]
        return not (dropout and training)
    return False


def _simplify_node(traced: Traced, node: fx.Node, kept: set[fx.Node]) -> None:
    if isinstance(node.target, torch._ops.OpOverload) and _base(node) in _CHECKS:
        traced.graph.erase_node(node)
    elif node.target in _NOTHING or _is_idle_copy(node):
        source = node.args[0]
        if node not in kept and isinstance(source, fx.Node):
            node.replace_all_uses_with(source)
    elif node.target in _REDUCTIONS:
        _name_dimensions(node)
    elif node.target in _CONSTANTS:
        _CONSTANTS[node.target](node)
    elif node.target is aten.as_strided.default:
        _as_view(node)


def _base(node: fx.Node) -> str:
    return str(node.target).split(".")[1]


def _is_idle_copy(node: fx.Node) -> bool:
    """A clone that asks for no layout, or a conversion to the type it already has."""
    if node.target is aten.clone.default:
        return node.kwargs.get("memory_format") in (None, torch.preserve_format)
    if node.target is aten._to_copy.default:
        source = node.args[0]
        return (
            isinstance(source, fx.Node)
            and source.meta["val"].dtype == node.meta["val"].dtype
            and source.meta["val"].device == node.meta["val"].device
        )
    return False


def _name_dimensions(node: fx.Node) -> None:
    dims = node.args[1] if len(node.args) > 1 else None
    source = node.args[0]
    if not dims and isinstance(source, fx.Node):
        rank = source.meta["val"].dim()
        node.args = (source, list(range(rank)), *node.args[2:])


def _scalar_as_full(node: fx.Node) -> None:
    node.args = ([], node.args[0])
    _become_full(node)


def _like_as_full(node: fx.Node) -> None:
    node.args = (list(node.meta["val"].shape), node.args[1])
    _become_full(node)


def _become_full(node: fx.Node) -> None:
    node.target = aten.full.default
    node.kwargs = {"dtype": node.meta["val"].dtype}


_CONSTANTS: dict[object, Callable[[fx.Node], None]] = {
    aten.scalar_tensor.default: _scalar_as_full,
    aten.full_like.default: _like_as_full,
    aten.full.default: lambda node: _become_full(node),
}


def _as_view(node: fx.Node) -> None:
    """`as_strided` that only regroups a contiguous tensor is a view."""
    source, shape = node.args[0], node.args[1]
    offset = node.args[3] if len(node.args) > 3 else 0
    value = node.meta["val"]
    if not isinstance(source, fx.Node) or offset:
        return
    base = source.meta["val"]
    if base.is_contiguous() and value.is_contiguous() and base.numel() == value.numel():
        node.target, node.args = aten.view.default, (source, shape)


def _merge_equal(traced: Traced, kept: set[fx.Node]) -> None:
    """Equal operators on equal arguments become one, unless they draw random numbers."""
    seen: dict[object, fx.Node] = {}
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or draws_random_node(node):
            continue
        key = (node.target, repr(node.args), repr(sorted(node.kwargs.items())))
        first = seen.setdefault(key, node)
        if first is not node and node not in kept:
            node.replace_all_uses_with(first)


def draws_random_node(node: fx.Node) -> bool:
    """Whether this node draws random numbers."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and _RANDOM in target.tags


def _remove_unused(graph: fx.Graph, kept: set[fx.Node]) -> None:
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and node not in kept:
            graph.erase_node(node)
