"""Two different indices may both be right: an argmax has ties.

An integer output that is the position of a maximum, a minimum or a sorted element is right when
the *value* at the candidate's position equals the value at PyTorch's. The tensor searched is an
input or is worked out from the graph in the task's own type.
Not covered: positions computed further (added to, gathered from), and baked-in constants.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernelwright.tools.types import Arg, DTypeArg, Graph, ListArg, Node, Ref, Scalar
from kernelwright.tools.types.graph import reads

_POSITIONS = {"aten.argmax.default": 1, "aten.argmin.default": 1}
_PAIRS = ("aten.max.dim", "aten.min.dim", "aten.topk.default", "aten.sort.default")
_ROUNDING = 4.0  # times the type's rounding: two computed values that close are a tie


def tied(
    graph: Graph,
    output: int,
    got: Tensor,
    own: Tensor,
    inputs: Sequence[Tensor],
    weights: Mapping[str, Tensor],
) -> bool:
    """Whether every position of `got` that differs from `own` points at an equal value."""
    node = graph.node(graph.outputs[output])
    found = _searched(graph, node)
    if found is None:
        return False
    source, dim = found
    values = evaluate(graph, source, inputs, weights)
    if values is None or not bool(((got >= 0) & (got < _reach(values, dim))).all()):
        return False
    ours, theirs = _look_up(values, dim, got), _look_up(values, dim, own.to(got.device))
    exact = graph.node(source).op == "input" or not values.dtype.is_floating_point
    slack = 0.0 if exact else _ROUNDING * torch.finfo(values.dtype).eps
    return bool(torch.isclose(ours, theirs, rtol=slack, atol=0.0, equal_nan=True).all())


def evaluate(
    graph: Graph, name: str, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]
) -> Tensor | None:
    """The value of one node, or None where the graph does not hold all it needs."""
    known: dict[str, Tensor | Sequence[Tensor]] = dict(zip(graph.inputs, inputs, strict=True))
    try:
        for node in _ancestors(graph, name):
            if node.name not in known:
                known[node.name] = _apply(node, known, weights)
    except (LookupError, AttributeError):
        return None
    value = known[name]
    return value if isinstance(value, Tensor) else None


def _searched(graph: Graph, node: Node) -> tuple[str, int | None] | None:
    """The node whose elements the positions count, and along which dimension."""
    while node.op in ("aten.clone.default", "aten.detach.default"):
        node = graph.node(_source(node))
    if node.op in _POSITIONS:
        return _source(node), _dim(node, 1)
    if node.op == "getitem" and node.args[1] == Scalar(value=1):
        pair = graph.node(_source(node))
        if pair.op in _PAIRS:
            return _source(pair), _dim(pair, 2 if pair.op == "aten.topk.default" else 1, -1)
    return None


def _source(node: Node) -> str:
    first = node.args[0]
    return first.node if isinstance(first, Ref) else ""


def _dim(node: Node, position: int, default: int | None = None) -> int | None:
    arguments = dict(node.kwargs)
    chosen = arguments.get("dim")
    if chosen is None and len(node.args) > position:
        chosen = node.args[position]
    value = chosen.value if isinstance(chosen, Scalar) else default
    return int(value) if isinstance(value, int) else None


def _reach(values: Tensor, dim: int | None) -> int:
    return values.numel() if dim is None else values.shape[dim]


def _look_up(values: Tensor, dim: int | None, index: Tensor) -> Tensor:
    if dim is None:
        return values.reshape(-1)[index.reshape(-1)]
    kept = index if index.dim() == values.dim() else index.unsqueeze(dim)
    return values.gather(dim, kept)


def _ancestors(graph: Graph, name: str) -> list[Node]:
    needed = {name}
    order: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed |= reads(node)
            order.append(node)
    return order[::-1]


def _apply(
    node: Node, known: Mapping[str, Tensor | Sequence[Tensor]], weights: Mapping[str, Tensor]
) -> Tensor | Sequence[Tensor]:
    if node.op == "weight":
        return weights[node.target or ""]
    arguments = [_value(argument, known) for argument in node.args]
    if node.op == "getitem":
        result: Tensor = arguments[0][arguments[1]]  # type: ignore[index]
        return result
    namespace, packet, overload = node.op.split(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    words = {key: _value(value, known) for key, value in node.kwargs}
    answer: Tensor | Sequence[Tensor] = operator(*arguments, **words)
    return answer


def _value(argument: Arg, known: Mapping[str, Tensor | Sequence[Tensor]]) -> object:
    if isinstance(argument, Ref):
        return known[argument.node]
    if isinstance(argument, ListArg):
        return [_value(item, known) for item in argument.items]
    if isinstance(argument, DTypeArg):
        return getattr(torch, argument.value.value)
    return argument.value
