"""What rewrites of graphs work on: shapes refined to common parts, and a graph being rewritten.

`Parts` is a shape cut finer: every dimension as the parts that views above or below it tell apart.
Parts of size 1 do not exist. Two shapes of the same elements have a common refinement unless
their dimensions overlap (6 as 2 x 3 and as 3 x 2), and then there is none.

`Sketch` is a graph being rewritten: who uses what, and the nodes that replace one node. A
replacement is a list of new nodes whose last carries the old node's name, so that no reader
changes. Nodes that nobody reads any more are dropped at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.lower.nests.views import refine
from kernelwright.tools.types import (
    Arg,
    DType,
    DTypeArg,
    Graph,
    ListArg,
    Node,
    Ref,
    Scalar,
    TensorSpec,
)
from kernelwright.tools.types.graph import refs


@dataclass(frozen=True)
class Parts:
    """Parts of each dimension of a shape, and which parts (counted from the first) are summed."""

    dims: tuple[tuple[int, ...], ...]
    summed: frozenset[int]

    @property
    def flat(self) -> tuple[int, ...]:
        """All parts in order."""
        return tuple(size for dim in self.dims for size in dim)

    @property
    def kept(self) -> tuple[int, ...]:
        """All parts, those summed with size 1: the shape of a sum."""
        return tuple(1 if at in self.summed else size for at, size in enumerate(self.flat))

    def of(self, dim: int) -> range:
        """Which parts belong to a dimension."""
        start = sum(len(parts) for parts in self.dims[:dim])
        return range(start, start + len(self.dims[dim]))

    def all_summed(self, dim: int) -> bool:
        """Whether a dimension is summed whole."""
        return all(at in self.summed for at in self.of(dim))

    def none_summed(self, dim: int) -> bool:
        """Whether nothing of a dimension is summed."""
        return not any(at in self.summed for at in self.of(dim))

    def lifted(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The shape in parts of a tensor broadcast to this one; None for another tensor."""
        shape = (1,) * (len(self.dims) - len(shape)) + tuple(shape)
        if len(shape) != len(self.dims):
            return None
        result: list[int] = []
        for size, parts in zip(shape, self.dims, strict=True):
            result += [1] * len(parts) if size == 1 else list(parts)
        return tuple(result)

    def viewed(self, shape: Sequence[int]) -> Parts | None:
        """The same elements under another shape; None where the two overlap."""
        finer = refine(self.flat, [size for size in shape if size > 1])
        if finer is None:
            return None
        summed, at = set[int](), 0
        for number, size in enumerate(self.flat):
            while size > 1:
                size //= finer[at]
                summed |= {at} if number in self.summed else set()
                at += 1
        return Parts(_grouped(finer, shape), frozenset(summed))


def whole(shape: Sequence[int], dims: Sequence[int]) -> Parts:
    """A shape in its own dimensions, of which some are summed."""
    parts = tuple((size,) if size > 1 else () for size in shape)
    wanted = {dim % len(shape) for dim in dims}
    first = Parts(parts, frozenset())
    return Parts(parts, frozenset(at for dim in wanted for at in first.of(dim)))


def _grouped(sizes: Sequence[int], shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    left, result = list(sizes), list[tuple[int, ...]]()
    for size in shape:
        parts: list[int] = []
        while size > 1:
            parts.append(left.pop(0))
            size //= parts[-1]
        result.append(tuple(parts))
    return tuple(result)


def refined(shape: Sequence[int], old: Parts, new: Parts) -> tuple[int, ...]:
    """A shape in old parts (1 where broadcast) in the finer parts of `new`."""
    result: list[int] = []
    left = list(new.flat)
    for size, part in zip(shape, old.flat, strict=True):
        while part > 1:
            finer = left.pop(0)
            result.append(1 if size == 1 else finer)
            part //= finer
    return tuple(result)


def nested(outer: Parts, shape: Sequence[int], dims: set[int], *, kept: bool) -> Parts:
    """Parts of what was summed over `dims` before; `kept` if those stayed with size 1."""
    given, found = iter(outer.dims), list[tuple[int, ...]]()
    summed, number = set[int](), 0
    for at, size in enumerate(shape):
        if at in dims:
            found.append((size,) if size > 1 else ())
            summed |= {sum(map(len, found)) - 1} if size > 1 else set()
            if kept:
                next(given)
            continue
        parts = next(given)
        for _ in parts:
            if number in outer.summed:
                summed.add(sum(map(len, found)) + (number - _start(outer, number)))
            number += 1
        found.append(parts)
    return Parts(tuple(found), frozenset(summed))


def _start(outer: Parts, number: int) -> int:
    """The first part of the dimension that a part belongs to."""
    return next(of.start for of in map(outer.of, range(len(outer.dims))) if number in of)


Shape = tuple[int, ...]
_SOURCES = ("input", "weight", "constant")


Index = tuple[dict[str, Node], dict[str, list[str]]]
# Every rewrite asks about every node of one graph, which may have thousands.
_latest: list[tuple[Graph, Index]] = []


def _indexed(graph: Graph) -> Index:
    """The nodes by their names, and the names of those that read each."""
    known = _latest[0] if _latest else None
    if known is None or known[0] is not graph:
        users: dict[str, list[str]] = {}
        for node in graph.nodes:
            for name in dict.fromkeys(refs(node)):
                users.setdefault(name, []).append(node.name)
        known = graph, ({node.name: node for node in graph.nodes}, users)
        _latest[:] = [known]
    return known[1]


class Sketch:
    """A graph and the new nodes of one replacement."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        nodes, self._users = _indexed(graph)
        self._nodes = dict(nodes)
        self._taken = set(nodes)
        self.kept = {*graph.outputs, *(mutation.node for mutation in graph.mutations)}
        self.new: list[Node] = []

    def node(self, name: str) -> Node:
        """A node of the graph or a new one."""
        return self._nodes[name]

    def users(self, name: str) -> tuple[Node, ...]:
        """The nodes of the graph that read a node."""
        return tuple(self._nodes[user] for user in self._users.get(name, ()))

    def alone(self, name: str) -> bool:
        """Whether a node is read by one node and not returned: without that one it can go."""
        return len(self._users.get(name, ())) == 1 and name not in self.kept

    def shape(self, arg: Arg) -> Shape:
        """The shape of a tensor; () of a number."""
        return self._nodes[arg.node].out[0].shape if isinstance(arg, Ref) else ()

    def call(
        self,
        op: str,
        args: Sequence[Arg],
        shape: Sequence[int],
        named: Sequence[tuple[str, Arg]] = (),
    ) -> Ref:
        """A new node of that shape, in the type of its first tensor."""
        return Ref(node=self._called(op, args, [shape], named).name)

    def call_many(
        self,
        op: str,
        args: Sequence[Arg],
        shapes: Sequence[Sequence[int]],
        named: Sequence[tuple[str, Arg]] = (),
    ) -> tuple[Ref, ...]:
        """The results of a new node that has several."""
        made = self._called(op, args, shapes, named)
        return tuple(self._result(made.name, at, spec) for at, spec in enumerate(made.out))

    def _called(
        self,
        op: str,
        args: Sequence[Arg],
        shapes: Sequence[Sequence[int]],
        named: Sequence[tuple[str, Arg]],
    ) -> Node:
        like = self._nodes[next(name for arg in args for name in _names(arg))].out[0]
        out = tuple(TensorSpec(shape=tuple(shape), dtype=like.dtype) for shape in shapes)
        name = self._name(op)
        node = Node(name=name, op=f"aten.{op}", args=tuple(args), kwargs=tuple(named), out=out)
        self._add(node)
        return node

    def like(
        self, node: Node, args: Sequence[Arg], named: Sequence[tuple[str, Arg]], *shape: int
    ) -> Ref:
        """A new node that is like one, on other arguments, in another shape where one is given."""
        name = self._name(node.op.split(".", 1)[1])
        out = (node.out[0].model_copy(update={"shape": shape}),) if shape else node.out
        changes = {"name": name, "args": tuple(args), "kwargs": tuple(named), "out": out}
        self._add(node.model_copy(update=changes))
        return Ref(node=name)

    def _name(self, op: str) -> str:
        plain = op.split(".")[0].strip("_")
        count = 1
        while f"{plain}_by_algebra_{count}" in self._taken:
            count += 1
        name = f"{plain}_by_algebra_{count}"
        self._taken.add(name)
        return name

    def view(self, x: Ref, shape: Sequence[int]) -> Ref:
        """Another shape of the same elements; `x` itself where it has that shape."""
        shape = tuple(shape)
        return x if self.shape(x) == shape else self.call("view.default", (x, sizes(shape)), shape)

    def mul(self, x: Ref, y: Arg) -> Ref:
        """A product."""
        return self._pointwise("mul.Tensor", x, y)

    def div(self, x: Ref, y: Arg) -> Ref:
        """A quotient, broadcast."""
        return self._pointwise("div.Tensor", x, y)

    def add(self, x: Ref, y: Arg) -> Ref:
        """A sum of two, broadcast."""
        return self._pointwise("add.Tensor", x, y)

    def sub(self, x: Ref, y: Arg) -> Ref:
        """A difference, broadcast."""
        return self._pointwise("sub.Tensor", x, y)

    def both(self, x: Ref, y: Ref) -> Ref:
        """Whether two truth values hold, broadcast."""
        return self._pointwise("logical_and.default", x, y)

    def where(self, condition: Ref, then: Ref, other: Ref) -> Ref:
        """One of two tensors of one type, broadcast."""
        shape = broadcast(self.shape(then), self.shape(other))
        dtype = self._nodes[then.node].out[0].dtype
        name = self._name("where")
        spec = TensorSpec(shape=broadcast(self.shape(condition), shape), dtype=dtype)
        args = (condition, then, other)
        self._add(Node(name=name, op="aten.where.self", args=args, out=(spec,)))
        return Ref(node=name)

    def neg(self, x: Ref) -> Ref:
        """The negative."""
        return self.call("neg.default", (x,), self.shape(x))

    def _pointwise(self, op: str, x: Ref, y: Arg) -> Ref:
        return self.call(op, (x, y), broadcast(self.shape(x), self.shape(y)))

    def total(self, x: Ref, dims: Sequence[int]) -> Ref:
        """The sum over some dimensions, which stay with size 1."""
        shape = self.shape(x)
        if not dims:
            return x
        kept = tuple(1 if at in dims else size for at, size in enumerate(shape))
        return self.call("sum.dim_IntList", (x, sizes(dims), Scalar(value=True)), kept)

    def product(self, a: Ref, b: Ref, bias: Ref | None = None) -> Ref:
        """A matrix product, with what is added to it."""
        shape = (self.shape(a)[0], self.shape(b)[1])
        if bias is None:
            return self.call("mm.default", (a, b), shape)
        return self.call("addmm.default", (bias, a, b), shape)

    def cut(self, x: Ref, dim: int, start: int, stop: int, step: int = 1) -> Ref:
        """Every `step`-th position of a dimension, from `start` to before `stop`."""
        shape = list(self.shape(x))
        if (start, step) == (0, 1) and stop >= shape[dim]:
            return x
        shape[dim] = -(-(stop - start) // step)
        numbers = tuple(Scalar(value=value) for value in (dim, start, stop, step))
        return self.call("slice.Tensor", (x, *numbers), shape)

    def permute(self, x: Ref, order: Sequence[int]) -> Ref:
        """Dimensions in another order."""
        shape = [self.shape(x)[at] for at in order]
        return self.call("permute.default", (x, sizes(order)), shape)

    def packed(self, x: Ref) -> Ref:
        """The same tensor with its elements one after the other."""
        named = (("memory_format", Scalar(value="contiguous_format")),)
        return self.call("clone.default", (x,), self.shape(x), named)

    def transposed(self, x: Ref) -> Ref:
        """A matrix with rows and columns exchanged; what it was made of, if that is what it is."""
        node = self.node(x.node)
        is_turned = node.op == "aten.permute.default" and node.args[1] == sizes((1, 0))
        source = node.args[0] if is_turned else None
        return source if isinstance(source, Ref) else self.permute(x, (1, 0))

    def cast(self, x: Ref, dtype: DType) -> Ref:
        """The same numbers in another type."""
        name = self._name("to_copy")
        spec = TensorSpec(shape=self.shape(x), dtype=dtype)
        named = (("dtype", DTypeArg(value=dtype)),)
        self._add(Node(name=name, op="aten._to_copy.default", args=(x,), kwargs=named, out=(spec,)))
        return Ref(node=name)

    def full(self, like: str, count: int, value: float) -> Ref:
        """A vector of one number, in the type of a node."""
        dtype = self._nodes[like].out[0].dtype
        name = self._name("full")
        node = Node(
            name=name,
            op="aten.full.default",
            args=(sizes((count,)), Scalar(value=value)),
            kwargs=(("dtype", DTypeArg(value=dtype)),),
            out=(TensorSpec(shape=(count,), dtype=dtype),),
        )
        self._nodes[name] = node
        self.new.append(node)
        return Ref(node=name)

    def moments(self, x: Ref, dims: Sequence[int]) -> tuple[Ref, Ref]:
        """Variance (uncorrected) and mean over some dimensions, which stay with size 1."""
        kept = tuple(1 if at in dims else size for at, size in enumerate(self.shape(x)))
        named = (("correction", Scalar(value=0)), ("keepdim", Scalar(value=True)))
        made = self.call_many("var_mean.correction", (x, sizes(dims)), (kept, kept), named)
        return made[0], made[1]

    def _result(self, of: str, at: int, spec: TensorSpec) -> Ref:
        name = self._name("getitem")
        args = (Ref(node=of), Scalar(value=at))
        self._add(Node(name=name, op="getitem", args=args, out=(spec,)))
        return Ref(node=name)

    def _add(self, node: Node) -> None:
        self._nodes[node.name] = node
        self.new.append(node)

    def finished(self, name: str, result: Ref) -> Graph:
        """The graph with a node replaced by what was made since, without what nobody reads."""
        return self.all_finished({name: result})

    def all_finished(self, results: Mapping[str, Ref]) -> Graph:
        """The same for several nodes; what is new must need nothing after the first of them."""
        nodes: list[Node] = []
        new = list(self.new)
        for node in self.graph.nodes:
            result = results.get(node.name)
            nodes += [] if result is None else [*new, _renamed(node, result)]
            new = new if result is None else []
            nodes += [node] if result is None else []
        return self.graph.model_copy(update={"nodes": _used(nodes, self.kept)})

    def replaced(self, results: Mapping[str, Node]) -> Graph:
        """The graph with nodes of their names in the place of others, in an order that holds."""
        nodes = [results.get(node.name, node) for node in self.graph.nodes]
        ordered = _ordered([*nodes, *self.new])
        return self.graph.model_copy(update={"nodes": _used(ordered, self.kept)})


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    """Every node after those that it reads, and else as they are."""
    named, done = {node.name: node for node in nodes}, dict[str, Node]()
    for first in nodes:
        pending = [first]
        while pending:
            missing = [named[name] for name in refs(pending[-1]) if name not in done]
            if not missing:
                node = pending.pop()
                done[node.name] = node
            pending += missing
    return list(done.values())


def _renamed(old: Node, result: Ref) -> Node:
    """What was made, under the old node's name and in its shape."""
    (spec,) = old.out
    args = (result, sizes(spec.shape))
    return Node(name=old.name, op="aten.view.default", args=args, out=(spec,))


def _used(nodes: Sequence[Node], kept: set[str]) -> tuple[Node, ...]:
    wanted, result = set(kept), list[Node]()
    for node in reversed(nodes):
        if node.name in wanted or node.op == "input":
            result.append(node)
            wanted.update(refs(node))
    return tuple(reversed(result))


def _names(arg: Arg) -> list[str]:
    if isinstance(arg, ListArg):
        return [name for item in arg.items for name in _names(item)]
    return [arg.node] if isinstance(arg, Ref) else []


def sizes(values: Sequence[int]) -> ListArg:
    """A list of integers as an argument."""
    return ListArg(items=tuple(Scalar(value=int(value)) for value in values))


def broadcast(a: Shape, b: Shape) -> Shape:
    """The shape that two shapes are broadcast to."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def leaf(node: Node) -> bool:
    """Whether a node is given rather than computed."""
    return node.op in _SOURCES
