"""What a task must cost: bytes moved once, and floating-point operations.

Bytes: every input, weight and constant that is used is read once, and every output and updated
buffer written once. Of a tensor that is only looked up or sliced, no more is counted than the
look-ups return. Operations: torch's formulas for contractions, one per element and operator for
the rest, none for views and copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from kernelwright.tools.types import Graph, Node
from kernelwright.tools.types.graph import base, refs, words

aten = torch.ops.aten

_LOOK_UPS = words(
    "slice select embedding index index_select gather split_with_sizes split "
    "narrow unbind as_strided diagonal"
)
_VIEWS = words("view permute unsqueeze squeeze transpose expand _unsafe_view getitem alias clone")
_REDUCTIONS = words(
    "sum prod amax amin argmax argmin var var_mean any all cumsum cumprod logcumsumexp cummax "
    "cummin mean"
)
_MOVES = words("clone _to_copy alias")


def bytes_moved(graph: Graph) -> int:
    """Bytes that any implementation reads and writes at least."""
    traffic = _Traffic(graph)
    sources = [n for n in graph.nodes if n.op in ("input", "weight", "constant")]
    results = [*graph.outputs, *(mutation.node for mutation in graph.mutations)]
    written = sum(_size_bytes(traffic.nodes[name]) for name in results)
    return sum(traffic.bytes_read(node) for node in sources) + written


class _Traffic:
    """Who reads what in a graph."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = {node.name: node for node in graph.nodes}
        self.ends = {*graph.outputs, *(mutation.node for mutation in graph.mutations)}
        self.users: dict[str, list[Node]] = {node.name: [] for node in graph.nodes}
        for node in graph.nodes:
            for source in dict.fromkeys(refs(node)):
                self.users[source].append(node)

    def bytes_read(self, node: Node) -> int:
        """At most the tensor's size, and at most what its users take of it."""
        size = _size_bytes(node)
        if node.name in self.ends:
            return size
        return min(size, sum(self._taken(node, user, size) for user in self.users[node.name]))

    def _taken(self, node: Node, user: Node, size: int) -> int:
        looked_up = refs(user)[0] == node.name
        if base(user.op) == "_embedding_bag" and looked_up:
            row = size // node.out[0].shape[0]
            return row * self.nodes[refs(user)[1]].out[0].numel
        if base(user.op) in _LOOK_UPS and looked_up:
            return self.bytes_read(user)
        return self.bytes_read(user) if base(user.op) in _VIEWS else size


def _size_bytes(node: Node) -> int:
    return sum(spec.size_bytes for spec in node.out)


def flops(graph: fx.Graph) -> int:
    """Floating-point operations of a forward; `node.meta["val"]` must hold shapes."""
    return sum(_node_flops(node) for node in graph.nodes if node.op == "call_function")


def _node_flops(node: fx.Node) -> int:
    packet = getattr(node.target, "_overloadpacket", None)
    if packet in _WHOLE:
        return _WHOLE[packet](node)
    if packet in flop_registry:
        args = fx.map_arg(node.args, _value)
        kwargs = fx.map_arg(node.kwargs, _value)
        return int(flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]))
    if base(str(node.target)) in _REDUCTIONS:
        return _numel(node.args[0])
    if base(str(node.target)) in _MOVES:
        return 0
    tags = getattr(node.target, "tags", ())
    return _numel(node) if torch.Tag.pointwise in tags else 0


def _value(node: fx.Node) -> fx.node.Argument:
    return cast("fx.node.Argument", node.meta["val"])


def _numel(node: object) -> int:
    value = node.meta["val"] if isinstance(node, fx.Node) else None
    return value.numel() if isinstance(value, torch.Tensor) else 0


def _shape(node: object) -> Sequence[int]:
    return node.meta["val"].shape if isinstance(node, fx.Node) else ()


def _attention(node: fx.Node) -> int:
    """Two products of every query with every key; half of them where the mask is causal."""
    query, key, value = (_shape(arg) for arg in node.args[:3])
    pairs = math.prod(query[:-1]) * key[-2]
    causal = node.args[5] if len(node.args) > 5 else node.kwargs.get("is_causal", False)
    return 2 * pairs * (query[-1] + value[-1]) // (2 if causal else 1)


def _recurrent(node: fx.Node) -> int:
    """Every weight matrix is applied to every token."""
    tokens = math.prod(_shape(node.args[0])[:-1])
    weights = node.args[2]
    matrices = [w for w in weights if len(_shape(w)) == 2] if isinstance(weights, list) else []
    return sum(2 * tokens * math.prod(_shape(weight)) for weight in matrices)


_WHOLE: dict[object, Callable[[fx.Node], int]] = {
    aten.scaled_dot_product_attention: _attention,
    aten.lstm: _recurrent,
    aten.gru: _recurrent,
    aten.rnn_tanh: _recurrent,
    aten.rnn_relu: _recurrent,
}
