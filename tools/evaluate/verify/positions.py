"""Positions of what is largest, smallest or sorted: two different ones may both be right.

An argmax has ties, and values that were computed tie within their roundings. Of two elements of a
pooling's window that are nearer to each other than kernels compute them, one honest kernel names
one and another the other, and a training step keeps such positions for its backward. So a position
is right where the value there, in float64, is as good as the one at the truth's position: equal to
it where an input is searched, and of a computed tensor as near to it as two values may be that the
judge lets pass, each off by its bound times PyTorch's own error (see `errors`).

The position has to be one that the operator could give as well: within its row, its window, or what
a running maximum has seen; and nothing stands twice among the sorted.

Not covered: positions computed further (added to, gathered from, permuted), stable sorts, what is
searched behind a draw of random numbers, and baked-in constants.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.errors import distance
from kernelwright.tools.types import Arg, DTypeArg, Graph, ListArg, Node, Ref, Scalar
from kernelwright.tools.types.graph import base, draws, reads, words

# Which argument says along which dimension, for what gives positions alone, and beside values.
_ALONE = {"argmax": 1, "argmin": 1}
_BESIDE = {
    "max": 1, "min": 1, "topk": 2, "sort": 1, "kthvalue": 2, "median": 1, "cummax": 1, "cummin": 1,
}  # fmt: skip
_POOLS = {
    "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3,
    "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3,
}  # fmt: skip
# The same numbers in the same order.
_SAME = words("clone detach alias contiguous view _unsafe_view reshape squeeze unsqueeze _to_copy")


@dataclass(frozen=True)
class Searched:
    """What an output's positions count.

    Attributes:
        pair: the operator that searched.
        source: the node that it searched in.
        dim: along which dimension; None for all elements in memory order.
        planes: how many last dimensions are counted together; 0 for one or all.
    """

    pair: Node
    source: Node
    dim: int | None
    planes: int = 0

    def values(self, tensor: Tensor, index: Tensor) -> Tensor:
        """What stands in the searched tensor at these positions, which are within it."""
        if self.planes:
            flat = tensor.flatten(-self.planes)
            return flat.gather(-1, index.flatten(-self.planes)).view_as(index)
        if self.dim is None:
            return tensor.reshape(-1)[index.reshape(-1)].view_as(index)
        kept = index if index.dim() == tensor.dim() else index.unsqueeze(self.dim)
        return tensor.gather(self.dim, kept).view_as(index)

    def possible(self, index: Tensor) -> Tensor:
        """Mask of the positions that this operator could have given, whatever the values."""
        shape = self.source.out[0].shape
        within = (index >= 0) & (index < self._reach(shape))
        name = base(self.pair.op)
        if self.planes:
            return within & _in_windows(self.pair, shape[-self.planes :], index)
        if name in ("cummax", "cummin") and self.dim is not None:
            return within & (index <= _places(index, self.dim))
        if name in ("topk", "sort") and self.dim is not None:
            ordered = index.sort(self.dim).values
            twice = (ordered.diff(dim=self.dim) == 0).any(self.dim, keepdim=True)
            return within & ~twice
        return within

    def _reach(self, shape: Sequence[int]) -> int:
        counted = shape[-self.planes :] if self.planes else shape
        if self.dim is not None:
            counted = (shape[self.dim],)
        return int(torch.Size(counted).numel())


def searched(graph: Graph, output: int) -> Searched | None:
    """What this output's positions count; None where it holds no positions that are known."""
    node = graph.node(graph.outputs[output])
    while base(node.op) in _SAME:
        node = graph.node(_first(node))
    if base(node.op) in _ALONE and node.args:
        return Searched(node, graph.node(_first(node)), _dim(node, _ALONE[base(node.op)]))
    if node.op != "getitem" or node.args[1] != Scalar(value=1):
        return None
    pair = graph.node(_first(node))
    name = base(pair.op)
    if name in _POOLS:
        return Searched(pair, graph.node(_first(pair)), None, _POOLS[name])
    if name not in _BESIDE or "stable" in dict(pair.kwargs):
        return None
    return Searched(pair, graph.node(_first(pair)), _dim(pair, _BESIDE[name], -1))


def as_good(
    graph: Graph,
    found: Searched,
    got: Tensor,
    best: Tensor,
    inputs: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    *,
    bound: float,
    chunk_elements: int,
    rounding: float = 0.0,
) -> Tensor:
    """Mask of the positions in `got` that are right beside `best`.

    Args:
        graph: the task's.
        found: what the output counts.
        got: the candidate's output, of integers.
        best: the truth's, or PyTorch's own.
        inputs: of the forward, in the task's types.
        weights: as they are before the forward.
        bound: how many times PyTorch's own error a value may be off.
        chunk_elements: how many elements are compared at a time.
        rounding: of a coarser type that the person allowed.
    """
    index, right = got.long(), best.to(got.device).long()
    if found.pair.out:
        shape = found.pair.out[-1].shape
        index, right = index.reshape(shape), right.reshape(shape)
    own = evaluate(graph, found.source.name, inputs, weights)
    if own is None:
        return torch.zeros_like(got, dtype=torch.bool)
    possible = found.possible(index)
    index = torch.where(possible, index, right)
    if found.source.op == "input" or not own.dtype.is_floating_point:
        good = _equal(found.values(own, index), found.values(own, right))
        return (possible & good).view_as(got)
    exact = evaluate(graph, found.source.name, inputs, weights, in_float64=True)
    if exact is None:
        return torch.zeros_like(got, dtype=torch.bool)
    off = distance(own, own, exact, chunk_elements, rounding)
    step = bound * max(off.own_worst, off.rounding)
    ours, theirs = found.values(exact, index), found.values(exact, right)
    near = (ours - theirs).abs() <= step * (ours.abs() + theirs.abs() + 2 * off.scale)
    return (possible & (near | _equal(ours, theirs))).view_as(got)


def _equal(ours: Tensor, theirs: Tensor) -> Tensor:
    return (ours == theirs) | (ours.isnan() & theirs.isnan())


def evaluate(
    graph: Graph,
    name: str,
    inputs: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    *,
    in_float64: bool = False,
) -> Tensor | None:
    """The value of one node, or None where the graph does not hold all it needs.

    In the task's own types, or with every fraction in float64, whatever types the graph names.
    """
    wide: Callable[[Tensor], Tensor] = _widened if in_float64 else _as_it_is
    given = dict(zip(graph.inputs, inputs, strict=True))
    order = _ancestors(graph, name)
    if any(draws(node.op) for node in order):
        return None
    last = {needed: node.name for node in order for needed in reads(node)}
    known: dict[str, Tensor | Sequence[Tensor]] = {}
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if in_float64 else usual)
    try:
        for node in order:
            if node.name in given:
                known[node.name] = wide(given[node.name])
            elif node.op == "weight":
                known[node.name] = wide(weights[node.target or ""].clone())  # may be written
            else:
                known[node.name] = _apply(node, known, in_float64=in_float64)
            for needed in reads(node):
                if last[needed] == node.name:
                    del known[needed]
    except (LookupError, AttributeError):
        return None
    finally:
        torch.set_default_dtype(usual)
    value = known[name]
    return value if isinstance(value, Tensor) else None


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _first(node: Node) -> str:
    first = node.args[0]
    return first.node if isinstance(first, Ref) else ""


def _dim(node: Node, position: int, default: int | None = None) -> int | None:
    chosen = dict(node.kwargs).get("dim")
    if chosen is None and len(node.args) > position:
        chosen = node.args[position]
    value = chosen.value if isinstance(chosen, Scalar) else default
    return int(value) if isinstance(value, int) else None


def _places(index: Tensor, dim: int) -> Tensor:
    """Of every element its place along a dimension, to be broadcast."""
    shape = [1] * index.dim()
    shape[dim] = index.shape[dim]
    return torch.arange(index.shape[dim], device=index.device).view(shape)


def _in_windows(pair: Node, extents: Sequence[int], index: Tensor) -> Tensor:
    """Whether each position lies in the window that its place in the output stands for."""
    inside = torch.ones_like(index, dtype=torch.bool)
    count = len(extents)
    for axis in reversed(range(count)):
        at = index % extents[axis]
        index = index // extents[axis]
        place = _places(index, index.dim() - count + axis)
        if base(pair.op).startswith("adaptive"):
            outs = place.numel()
            begin = place * extents[axis] // outs
            end = ((place + 1) * extents[axis] + outs - 1) // outs
            inside &= (at >= begin) & (at < end)
            continue
        size, step, padding, dilation = (_window(pair, which, axis) for which in range(1, 5))
        tap = at - (place * step - padding)
        inside &= (tap >= 0) & (tap <= (size - 1) * dilation) & (tap % dilation == 0)
    return inside


def _window(pair: Node, which: int, axis: int) -> int:
    """A pooling's size (1), stride (2), padding (3) or dilation (4) along one axis."""
    argument = pair.args[which] if len(pair.args) > which else ListArg(items=())
    items = argument.items if isinstance(argument, ListArg) else (argument,)
    if not items:  # a stride that is not given is the size
        return _window(pair, 1, axis) if which == 2 else (0 if which == 3 else 1)
    item = items[axis] if len(items) > 1 else items[0]
    return int(item.value) if isinstance(item, Scalar) and item.value is not None else 1


def _ancestors(graph: Graph, name: str) -> list[Node]:
    needed = {name}
    order: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed |= reads(node)
            order.append(node)
    return order[::-1]


def _apply(
    node: Node, known: Mapping[str, Tensor | Sequence[Tensor]], *, in_float64: bool
) -> Tensor | Sequence[Tensor]:
    arguments = [_value(argument, known, in_float64=in_float64) for argument in node.args]
    if node.op == "getitem":
        result: Tensor = arguments[0][arguments[1]]  # type: ignore[index]
        return result
    namespace, packet, overload = node.op.split(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    named = {key: _value(value, known, in_float64=in_float64) for key, value in node.kwargs}
    answer: Tensor | Sequence[Tensor] = operator(*arguments, **named)
    return answer


def _value(
    argument: Arg, known: Mapping[str, Tensor | Sequence[Tensor]], *, in_float64: bool
) -> object:
    if isinstance(argument, Ref):
        return known[argument.node]
    if isinstance(argument, ListArg):
        return [_value(item, known, in_float64=in_float64) for item in argument.items]
    if isinstance(argument, DTypeArg):
        widened = in_float64 and argument.value.is_floating
        return torch.float64 if widened else getattr(torch, argument.value.value)
    return argument.value
