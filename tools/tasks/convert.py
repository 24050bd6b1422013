"""From torch's graph to the typed Graph: concrete shapes, plain values, nothing of torch's.

Only what a reader of the graph needs survives: devices and layouts are dropped, checks without
results too, and names of one operator for one thing are unified (see `simplify`).
Strides are kept for inputs, weights and constants only: how results lie in memory is the
business of whoever writes them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import fx

from kernelwright.tools.tasks.checks import SUPPORTED
from kernelwright.tools.tasks.constants import constant_node
from kernelwright.tools.tasks.refusals import refuse
from kernelwright.tools.tasks.traced import Traced
from kernelwright.tools.types import (
    Arg,
    DType,
    DTypeArg,
    Graph,
    ListArg,
    Mutation,
    Node,
    Ref,
    Scalar,
    TensorSpec,
)

_DROPPED = frozenset(("device", "layout", "pin_memory", "non_blocking"))

# Keeps the positions of several results where one of them is no tensor.
_ABSENT = TensorSpec(shape=(0,), dtype=DType.INT64)


def to_graph(traced: Traced, input_names: list[str]) -> Graph:
    """The typed graph; `input` nodes carry the names of the tensor arguments.

    Raises:
        RefusedError: a shape depends on values, or a type is not supported.
    """
    names = _names(traced, input_names)
    nodes = [_node(traced, node, names) for node in traced.graph.nodes if _is_kept(traced, node)]
    return Graph(
        nodes=tuple(nodes),
        inputs=tuple(input_names),
        outputs=tuple(names[node] for node in traced.outputs),
        output_structure=traced.structure,
        mutations=tuple(
            Mutation(target=target, node=names[node]) for target, node in traced.mutations.items()
        ),
    )


def tensor_spec(value: torch.Tensor, *, with_strides: bool = False) -> TensorSpec:
    """Shape, type and (where it is not contiguous) strides of a tensor, real or fake."""
    if value.dtype not in SUPPORTED:
        kind = str(value.dtype).removeprefix("torch.")
        raise refuse(f"The forward computes with the type {kind}, which is not supported.")
    shape = tuple(value.shape)
    if not all(type(size) is int for size in shape):
        raise refuse("The forward makes a tensor whose shape depends on values; not supported.")
    strides = None if not with_strides or value.is_contiguous() else tuple(value.stride())
    return TensorSpec(shape=shape, dtype=dtype_of(value.dtype), strides=strides)


def dtype_of(dtype: torch.dtype) -> DType:
    """Our name of a torch type."""
    return DType(str(dtype).removeprefix("torch."))


def _names(traced: Traced, input_names: list[str]) -> dict[fx.Node, str]:
    """A distinct identifier for every node; inputs keep the names of their arguments."""
    by_placeholder = dict(zip(traced.inputs, input_names, strict=True))
    taken = set(input_names)
    names: dict[fx.Node, str] = {}
    for node in traced.graph.nodes:
        name = by_placeholder.get(node.name)
        if name is None:
            name = node.name
            while name in taken:
                name += "_"
            taken.add(name)
        names[node] = name
    return names


def _is_kept(traced: Traced, node: fx.Node) -> bool:
    if node.op == "output":
        return False
    if node.op in ("placeholder", "get_attr"):
        return node.name in traced.inputs or bool(node.users)
    return True


def _node(traced: Traced, node: fx.Node, names: dict[fx.Node, str]) -> Node:
    name = names[node]
    if node.name in traced.inputs:
        return Node(name=name, op="input", out=(tensor_spec(node.meta["val"], with_strides=True),))
    if node.name in traced.weights:
        target = traced.weights[node.name]
        spec = tensor_spec(node.meta["val"], with_strides=True)
        return Node(name=name, op="weight", target=target, out=(spec,))
    if node.name in traced.constants:
        return constant_node(name, traced.constants[node.name])
    if node.op != "call_function":
        raise refuse(f"The forward contains {node.op} {node.target}, which is not supported.")
    return Node(
        name=name,
        op=_operator(node),
        args=tuple(_arg(value, names) for value in node.args),
        kwargs=tuple((k, _arg(v, names)) for k, v in node.kwargs.items() if k not in _DROPPED),
        out=_out(node),
    )


def _operator(node: fx.Node) -> str:
    return "getitem" if node.target is operator.getitem else str(node.target)


def _out(node: fx.Node) -> tuple[TensorSpec, ...]:
    value = node.meta.get("val")
    results: Iterable[object] = value if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)) for result in results):
        raise refuse("The forward takes a number out of a tensor; that is not supported.")
    if value is None:
        return ()
    return tuple(
        tensor_spec(result) if isinstance(result, torch.Tensor) else _ABSENT for result in results
    )


def _arg(value: object, names: dict[fx.Node, str]) -> Arg:
    if isinstance(value, fx.Node):
        return Ref(node=names[value])
    if isinstance(value, torch.dtype):
        return DTypeArg(value=dtype_of(value))
    if isinstance(value, (torch.memory_format, torch.layout)):
        return Scalar(value=str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return Scalar(value=None)
    if isinstance(value, (tuple, list)):
        return ListArg(items=tuple(_arg(item, names) for item in value))
    if isinstance(value, (bool, int, float, str, type(None))):
        return Scalar(value=value)
    kind = type(value).__name__
    raise refuse(f"The forward uses a {kind} as an argument, which is not supported.")
