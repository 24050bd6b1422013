"""From torch's graph to the typed Graph: concrete shapes, plain values, nothing of torch's.

The graph is tidied first, without changing what it computes: checks and copies without effect go,
equal nodes become one, reductions over everything name their dimensions, and constant tensors are
all spelt `aten.full`, so that readers of the graph meet each thing in one form. Only what a reader
needs survives the conversion: devices and layouts are dropped, checks without results too, and
names of one operator for one thing are unified. Strides are kept for inputs, weights and constants
only: how results lie in memory is the business of whoever writes them.

Of tensors baked into a forward (`torch.tensor([...])`), one of a repeated value becomes
`aten.full`. Any other becomes a `constant` node that carries its bytes (base64, little-endian,
row-major) in the keyword argument `data`, so that the value survives without the user's file. Large
tables belong in a buffer and are refused.
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable, Iterable
from typing import cast

import torch
from torch import fx

from kernelwright.tools.tasks.graph.laid_out import SPELT
from kernelwright.tools.tasks.graph.random_draws import draws_random_node, is_draw, name_draw
from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.tasks.loading.modules import INSIDE
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
    refuse,
)
from kernelwright.tools.types.graph import words

LARGEST_BYTES = 2**20


def constant_node(name: str, value: torch.Tensor) -> Node:
    """The node for a baked-in tensor; RefusedError when it is too large or of an odd type."""
    if value.dtype not in INSIDE:
        raise refuse(f"The forward builds a constant of type {value.dtype}; not supported.")
    spec = TensorSpec(
        shape=tuple(value.shape), dtype=DType(str(value.dtype).removeprefix("torch."))
    )
    if spec.size_bytes > LARGEST_BYTES:
        raise refuse(
            f"The forward builds a constant of {spec.size_bytes} bytes; register it as a buffer."
        )
    if isinstance(value, torch._subclasses.FakeTensor):
        raise refuse("The forward uses a tensor outside its parameters and buffers; register it.")
    flat = value.detach().contiguous().cpu().view(-1)
    if spec.numel and not value.is_complex() and bool((flat == flat[0]).all()):
        return _full(name, spec, flat[0].item())
    data = base64.b64encode(flat.view(torch.uint8).numpy().tobytes()).decode("ascii")
    kwargs = (("data", Scalar(value=data)),)
    return Node(name=name, op="constant", target=name, kwargs=kwargs, out=(spec,))


def constants_of(graph: Graph, device: str) -> dict[str, torch.Tensor]:
    """The values of every `constant` node by its target, on `device`."""
    return {
        str(node.target): decoded(node).to(device) for node in graph.nodes if node.op == "constant"
    }


def decoded(node: Node) -> torch.Tensor:
    """The value of a `constant` node, on the host."""
    data = dict(node.kwargs)["data"]
    if not isinstance(data, Scalar):
        raise TypeError(f"constant {node.name} carries no data")
    dtype: torch.dtype = getattr(torch, node.out[0].dtype.value)
    raw = bytearray(base64.b64decode(str(data.value)))
    return torch.frombuffer(raw, dtype=dtype).view(node.out[0].shape)


def _full(name: str, spec: TensorSpec, value: bool | int | float) -> Node:
    shape = ListArg(items=tuple(Scalar(value=size) for size in spec.shape))
    return Node(
        name=name,
        op="aten.full.default",
        args=(shape, Scalar(value=value)),
        kwargs=(("dtype", DTypeArg(value=spec.dtype)),),
        out=(spec,),
    )


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


def simplify(traced: Traced) -> None:
    """Tidy the graph in place."""
    kept = {*traced.outputs, *traced.mutations.values()}
    kept |= {copy for node in traced.outputs if (copy := _copied_leaf(node)) is not None}
    for node in list(traced.graph.nodes):
        if node.op == "call_function":
            _simplify_node(traced, node, kept)
    _merge_equal(traced, kept)
    _remove_unused(traced.graph, kept)


def _simplify_node(traced: Traced, node: fx.Node, kept: set[fx.Node]) -> None:
    if node.target in SPELT:
        SPELT[node.target](node)
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
    elif node.target is aten.select.int:
        _as_index(node)
    elif is_draw(node):
        name_draw(node)
    for place, value in enumerate(node.args):
        if isinstance(value, complex):
            _number_as_tensor(node, place, value)


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


def _copied_leaf(node: fx.Node) -> fx.Node | None:
    """The last copy of an input, weight or constant of which a result is a view; None for others.

    Without that copy the result would be memory of the leaf itself, which its caller may change.
    """
    copy: fx.Node | None = None
    while node.op == "call_function":
        is_copy = node.target is aten.lift_fresh_copy.default or _is_idle_copy(node)
        copy = node if copy is None and is_copy else copy
        source = node.args[0] if node.args else None
        if not (is_copy or _is_view(node)) or not isinstance(source, fx.Node):
            return None
        node = source
    return copy


def _is_view(node: fx.Node) -> bool:
    """Whether an operator returns memory of its argument, or one of such results is picked."""
    if node.target is operator.getitem:
        return True
    returns = node.target._schema.returns if isinstance(node.target, torch._ops.OpOverload) else ()
    return any(made.alias_info is not None for made in returns)


def _name_dimensions(node: fx.Node) -> None:
    """All of them where none are named; of a number alone, none, though -1 or 0 may name one."""
    dims = node.args[1] if len(node.args) > 1 else None
    source = node.args[0]
    if not isinstance(source, fx.Node):
        return
    rank = source.meta["val"].dim()
    if not dims or not rank:
        node.args = (source, list(range(rank)), *node.args[2:])


def _scalar_as_full(node: fx.Node) -> None:
    node.args = ([], node.args[0])
    _become_full(node)


def _like_as_full(node: fx.Node) -> None:
    node.args = (list(node.meta["val"].shape), node.args[1])
    _become_full(node)


def _empty_as_full(node: fx.Node) -> None:
    """What is not yet written is never read, so it may be nothing; how it lies is not kept."""
    node.args = (list(node.meta["val"].shape), 0)
    _become_full(node)


def _become_full(node: fx.Node) -> None:
    node.target = aten.full.default
    node.kwargs = {"dtype": node.meta["val"].dtype}


_CONSTANTS: dict[object, Callable[[fx.Node], None]] = {
    aten.scalar_tensor.default: _scalar_as_full,
    aten.full_like.default: _like_as_full,
    aten.full.default: lambda node: _become_full(node),
    aten.empty.memory_format: _empty_as_full,
    aten.empty_permuted.default: _empty_as_full,
    aten.empty_strided.default: _empty_as_full,
}


_WITH_TENSORS: dict[object, fx.node.Target] = {
    packet.Scalar: packet.Tensor for packet in (aten.add, aten.sub, aten.mul, aten.div)
}


def _number_as_tensor(node: fx.Node, place: int, value: complex) -> None:
    """A complex number becomes two real constants put together, as a plan has real ones alone."""
    made = node.meta["val"]
    half = torch.float64 if made.dtype is torch.complex128 else torch.float32
    shape = list(made.shape) if node.target is aten.full.default else []
    with node.graph.inserting_before(node), torch.no_grad(), made.fake_mode:
        parts = [_filled(node.graph, shape, number, half) for number in (value.real, value.imag)]
        whole = node.graph.call_function(aten.complex.default, tuple(parts))
        whole.meta["val"] = aten.complex.default(*(part.meta["val"] for part in parts))
    if node.target is aten.full.default:
        node.target, node.args, node.kwargs = aten.alias.default, (whole,), {}
        return
    node.update_arg(place, whole)
    node.target = _WITH_TENSORS.get(node.target, node.target)


def _filled(graph: fx.Graph, shape: list[int], number: float, dtype: torch.dtype) -> fx.Node:
    node = graph.call_function(aten.full.default, (shape, number), {"dtype": dtype})
    node.meta["val"] = aten.full.default(shape, number, dtype=dtype)
    return node


def _as_index(node: fx.Node) -> None:
    """`x[i]` takes the number out of a tensor `i` and selects by it; indexing needs no number."""
    source, dim, place = node.args
    if not isinstance(place, fx.Node) or place.target is not aten._local_scalar_dense.default:
        return
    index = cast("fx.Node", place.args[0])
    value = index.meta["val"]
    if value.dim() == 0 and value.dtype in (torch.int32, torch.int64):
        axis = cast("int", dim) % (node.meta["val"].dim() + 1)
        node.target, node.args = aten.index.Tensor, (source, [*[None] * axis, index])


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


def _remove_unused(graph: fx.Graph, kept: set[fx.Node]) -> None:
    for node in reversed(list(graph.nodes)):
        # What is drawn and not used still moves the generator on.
        if is_draw(node):
            continue
        if node.op == "call_function" and not node.users and node not in kept:
            graph.erase_node(node)


_DROPPED = frozenset(("device", "layout", "pin_memory", "non_blocking"))

# Keeps the positions of several results where one of them is no tensor.
_ABSENT = TensorSpec(shape=(0,), dtype=DType.INT64)


def to_graph(
    traced: Traced,
    input_names: list[str],
    *,
    with_strides: bool = False,
    names: dict[fx.Node, str] | None = None,
) -> Graph:
    """The typed graph; `input` nodes carry the names of the tensor arguments.

    Args:
        traced: the forward.
        input_names: of the tensor arguments, in order.
        with_strides: keep how results lie in memory as well.
        names: of all nodes, where they are not to be chosen here.

    Raises:
        RefusedError: a shape depends on values, or a type is not supported.
    """
    names = names or names_of(traced, input_names)
    kept = [node for node in traced.graph.nodes if _is_kept(traced, node)]
    nodes = [_node(traced, node, names, with_strides) for node in kept]
    return Graph(
        nodes=tuple(nodes),
        inputs=tuple(input_names),
        outputs=tuple(names[node] for node in traced.outputs),
        output_structure=traced.structure,
        mutations=tuple(
            Mutation(target=target, node=names[node]) for target, node in traced.mutations.items()
        ),
        is_tf32=allows_tf32(),
    )


def allows_tf32() -> bool:
    """Whether this process, which has read a user's file, lets float32 convolutions use TF32."""
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # set for convolutions and recurrent layers apart, by the newer words
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


def tensor_spec(value: torch.Tensor, *, with_strides: bool = False) -> TensorSpec:
    """Shape, type and (where it is not contiguous) strides of a tensor, real or fake."""
    shape = tuple(value.shape)
    if not all(type(size) is int for size in shape):
        raise refuse("The forward makes a tensor whose shape depends on values; not supported.")
    strides = None if not with_strides or value.is_contiguous() else tuple(value.stride())
    return TensorSpec(shape=shape, dtype=dtype_of(value.dtype), strides=strides)


def dtype_of(dtype: torch.dtype) -> DType:
    """Our name of a torch type; RefusedError where the task's graph has none for it."""
    if dtype not in INSIDE:
        kind = str(dtype).removeprefix("torch.")
        raise refuse(f"The forward computes with the type {kind}, which is not supported.")
    return DType(str(dtype).removeprefix("torch."))


def names_of(traced: Traced, input_names: list[str]) -> dict[fx.Node, str]:
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


def _node(traced: Traced, node: fx.Node, names: dict[fx.Node, str], with_strides: bool) -> Node:
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
        out=_out(node, with_strides=with_strides),
    )


def _operator(node: fx.Node) -> str:
    return "getitem" if node.target is operator.getitem else str(node.target)


def _out(node: fx.Node, *, with_strides: bool) -> tuple[TensorSpec, ...]:
    value = node.meta.get("val")
    results: Iterable[object] = value if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)) for result in results):
        raise refuse(
            "The forward takes a number out of a tensor, as .item() does; compute with the tensor, "
            "or give the number as an argument."
        )
    if value is None:
        return ()
    return tuple(
        tensor_spec(result, with_strides=with_strides)
        if isinstance(result, torch.Tensor)
        else _ABSENT
        for result in results
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
