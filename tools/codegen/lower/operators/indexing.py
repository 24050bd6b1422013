"""ATen's indexed reads: gather, index_select, embedding, index, and shifted copies (pad, cat).

A tensor is read at computed positions along some dimensions and as it stands along the others. A
padded or partly replaced tensor reads at a position that is clamped into range and chooses
by a `where`, so that no read is out of bounds. Indices outside a tensor are not checked: the
reference raises for them, and a task's inputs are drawn in range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, Space, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import (
    NARROW,
    Address,
    Affine,
    Expr,
    Term,
    address,
    computed,
)
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write, affine
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.types import DType, Node, Ref, TensorSpec

Meaning = Callable[[Context, Node, Arguments], None]


def store(context: Context, node: Node, space: Space, value: Expr) -> None:
    """Writes a node's only result over a space of its shape."""
    spec = node.out[0]
    made = context.buffer(node.name, TensorSpec(shape=spec.shape, dtype=spec.dtype))
    value = context.ops.cast(value, computed(spec.dtype))
    if value.op == "const" and spec.dtype not in NARROW:
        context.fills[made.buffer] = value
    context.add(Nest(space.names(), (), (Write(space.at(made), value),)))
    context.values[node.name] = (made,)


def position(context: Context, space: Space, dim: int) -> Expr:
    """The position along a dimension of a space, as an integer expression."""
    terms, step = [], 1
    for name, size in reversed(space.axes[dim]):
        terms.append(Term(name, step, size))
        step *= size
    return affine(context.ops, Affine(0, tuple(terms)))


def _single(context: Context, view: View, dims: Sequence[int]) -> View:
    """The view, copied unless each of these dimensions is one stride."""
    if all(len(view.dims[dim]) <= 1 for dim in dims):
        return view
    return context.copy(view)


def _term(view: View, dim: int, at: Expr) -> list[Term]:
    return [Term(at, atom.step, atom.size) for atom in view.dims[dim]]


def _joined(fixed: Address, terms: Sequence[Term]) -> Address:
    return address(fixed.buffer, fixed.dtype, fixed.offset, [*fixed.terms, *terms])


def _without(view: View, dims: Sequence[int]) -> View:
    """The view at position 0 of some dimensions, which become size 1."""
    kept = tuple(() if at in dims else dim for at, dim in enumerate(view.dims))
    return View(view.buffer, view.dtype, view.offset, kept, None)


def _gather(context: Context, node: Node, arguments: Arguments) -> None:
    x, index = context.value(arguments.tensor(0)), context.value(arguments.tensor(2))
    if not x.dims:
        raise UnlikeError("gather of a 0-dimensional tensor")
    dim = arguments.integer(1) % len(x.dims)
    x = _single(context, x, range(len(x.dims)))
    rest = _without(x, [dim])
    for at, size in enumerate(index.shape):
        if at != dim and size != x.shape[at]:
            narrowed = views.narrow(rest, at, 0, size)
            rest = rest if narrowed is None else narrowed
    space = context.space([rest, index], index.shape)
    at_index = context.load(space.addresses[1], DType.INT64)
    store(
        context,
        node,
        space,
        context.read(_joined(space.addresses[0], _term(x, dim, at_index))),
    )


def _index_select(context: Context, node: Node, arguments: Arguments) -> None:
    x, index = context.value(arguments.tensor(0)), context.value(arguments.tensor(2))
    if not x.dims:
        raise UnlikeError("index_select of a 0-dimensional tensor")
    _taken(context, node, x, {arguments.integer(1) % len(x.dims): index}, wrap=False)


def _embedding(context: Context, node: Node, arguments: Arguments) -> None:
    table, index = context.value(arguments.tensor(0)), context.value(arguments.tensor(1))
    _taken(context, node, table, {0: index}, wrap=False)


def _index(context: Context, node: Node, arguments: Arguments) -> None:
    x = context.value(arguments.tensor(0))
    found = {at: context.value(r) for at, r in enumerate(arguments.tensors(1)) if r is not None}
    if not found or any(not _integral(view.dtype) for view in found.values()):
        raise UnlikeError("a mask makes a shape that depends on values")
    _taken(context, node, x, found, wrap=True)


def _integral(dtype: DType) -> bool:
    return dtype in (DType.INT64, DType.INT32, DType.INT16, DType.INT8)


def _taken(context: Context, node: Node, x: View, index: Mapping[int, View], *, wrap: bool) -> None:
    """Reads x at index tensors in some dimensions and everywhere in the others.

    The indices' broadcast shape takes the place of the first indexed dimension when these are
    neighbours, else it stands in front: PyTorch's rule.
    """
    x = _single(context, x, list(index))
    shape = node.out[0].shape
    first, last = min(index), max(index)
    together = last - first + 1 == len(index)
    at = first if together else 0
    rank = max(len(view.dims) for view in index.values())
    before = [dim for dim in range(len(x.dims)) if dim not in index]
    fixed = views.permute(_without(x, list(index)), [*index, *before])
    for _ in index:
        fixed = views.squeeze(fixed, 0)
    for extra in range(rank):
        fixed = views.unsqueeze(fixed, at + extra)
    placed = [_in_place(view, at, rank, len(shape)) for view in index.values()]
    space = context.space([fixed, *placed], shape)
    terms: list[Term] = []
    for dim, where in zip(index, space.addresses[1:], strict=True):
        position_ = context.load(where, DType.INT64)
        size = x.shape[dim]
        if wrap:
            ops = context.ops
            position_ = ops(
                "where", ops("lt", position_, 0), ops("add", position_, size), position_
            )
        terms += _term(x, dim, position_)
    store(context, node, space, context.read(_joined(space.addresses[0], terms)))


def _in_place(view: View, at: int, rank: int, total: int) -> View:
    """An index tensor broadcast to the result's rank."""
    for _ in range(rank - len(view.dims)):
        view = views.unsqueeze(view, 0)
    for _ in range(total - at - rank):
        view = views.unsqueeze(view, len(view.dims))
    return view


def _cat(context: Context, node: Node, arguments: Arguments) -> None:
    """One nest for each piece, into its part of the result, which lies as a piece does."""
    spec = node.out[0]
    pieces = [context.value(ref) for ref in arguments.tensors(0) if ref is not None]
    pieces = [piece for piece in pieces if prod(piece.shape)]
    dim = arguments.integer(1, "dim", 0) % len(spec.shape)
    fills = [context.fills.get(piece.buffer) for piece in pieces]
    if fills.count(None) == 1:
        _cat_of_fills(context, node, pieces, fills, dim)
        return
    made, start = _buffer_like(context, node, pieces), 0
    for piece in pieces:
        part = views.narrow(made, dim, start, piece.shape[dim])
        if part is None:
            raise UnlikeError("a piece of no stride")
        space = context.space([piece], piece.shape)
        value = context.load(space.addresses[0], spec.dtype)
        context.add(Nest(space.names(), (), (Write(space.at(part), value),)))
        start += piece.shape[dim]
    context.values[node.name] = (made,)


def _buffer_like(context: Context, node: Node, pieces: list[View]) -> View:
    """Of a node's shape, with the channels last where those of a piece are, if it may lie so."""
    spec = node.out[0]
    rank = len(spec.shape)
    is_last = rank > 2 and any(piece.dims[1] and piece.dims[1][-1].step == 1 for piece in pieces)
    if not (context.lowering.channels_last and is_last) or node.name in context.kept:
        return context.buffer(node.name, TensorSpec(shape=spec.shape, dtype=spec.dtype))
    shape = tuple(spec.shape[at] for at in views.channels_last(rank))
    made = context.buffer(node.name, TensorSpec(shape=shape, dtype=spec.dtype))
    return views.permute(made, views.channels_first(rank))


def _cat_of_fills(
    context: Context, node: Node, pieces: list[View], fills: list[Expr | None], dim: int
) -> None:
    """Padding in other words: one tensor and constants, so it can be read instead of stored."""
    real = fills.index(None)
    start = sum(piece.shape[dim] for piece in pieces[:real])
    x = _single(context, pieces[real], [dim])
    space = context.space([_without(x, [dim])], node.out[0].shape)
    ops, place = context.ops, position(context, space, dim)
    clamped = _clamped(context, ops("sub", place, start), x.shape[dim])
    where = _joined(space.addresses[0], _term(x, dim, clamped))
    value, end = context.load(where, node.out[0].dtype), 0
    for piece, fill in zip(pieces, fills, strict=True):
        begin, end = end, end + piece.shape[dim]
        if fill is not None:
            inside = ops("logical_and", ops("ge", place, begin), ops("lt", place, end))
            value = ops("where", inside, ops.cast(fill, value.dtype), value)
    store(context, node, space, value)


def _clamped(context: Context, at: Expr, size: int) -> Expr:
    return context.ops("minimum", context.ops("maximum", at, 0), size - 1)


def _pad(context: Context, node: Node, arguments: Arguments) -> None:
    x, widths = context.value(arguments.tensor(0)), arguments.integers(1, "pad") or ()
    fill = arguments.number(2, "value", 0.0)
    shape, rank = node.out[0].shape, len(node.out[0].shape)
    padded = {rank - 1 - at // 2: widths[at] for at in range(0, len(widths), 2)}
    padded = {d: low for d, low in padded.items() if shape[d] != x.shape[d] or low}
    x = _single(context, x, list(padded))
    space = context.space([_without(x, list(padded))], shape)
    ops, inside, terms = context.ops, None, list[Term]()
    for dim, low in padded.items():
        at = ops("sub", position(context, space, dim), low)
        within = ops("logical_and", ops("ge", at, 0), ops("lt", at, x.shape[dim]))
        inside = within if inside is None else ops("logical_and", inside, within)
        terms += _term(x, dim, _clamped(context, at, x.shape[dim]))
    value = context.read(_joined(space.addresses[0], terms))
    store(context, node, space, value if inside is None else ops("where", inside, value, fill))


def _slice_scatter(context: Context, node: Node, arguments: Arguments) -> None:
    x, source = context.value(arguments.tensor(0)), context.value(arguments.tensor(1))
    dim = arguments.integer(2, "dim", 0) % len(x.dims)
    size, step = x.shape[dim], arguments.integer(5, "step", 1)
    start = arguments.integer(3, "start", 0)
    start = max(0, start + size) if start < 0 else min(start, size)
    source = _single(context, source, [dim])
    count = source.shape[dim]
    space = context.space([x, _without(source, [dim])], x.shape)
    ops, at = context.ops, position(context, space, dim)
    from_start = ops("sub", at, start)
    inside = ops("logical_and", ops("ge", at, start), ops("lt", at, start + count * step))
    if step != 1:
        inside = ops("logical_and", inside, ops("eq", ops("remainder", from_start, step), 0))
        from_start = ops("truncdiv", from_start, step)
    terms = _term(source, dim, _clamped(context, from_start, count))
    new = context.load(_joined(space.addresses[1], terms), x.dtype)
    store(context, node, space, ops("where", inside, new, context.read(space.addresses[0])))


def _select_scatter(context: Context, node: Node, arguments: Arguments) -> None:
    x, source = context.value(arguments.tensor(0)), context.value(arguments.tensor(1))
    dim = arguments.integer(2, "dim") % len(x.dims)
    space = context.space([x, views.unsqueeze(source, dim)], x.shape)
    chosen = context.ops(
        "eq", position(context, space, dim), arguments.integer(3, "index") % x.shape[dim]
    )
    new = context.load(space.addresses[1], x.dtype)
    value = context.ops("where", chosen, new, context.read(space.addresses[0]))
    store(context, node, space, value)


def _triangle(upper: bool) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        x, diagonal = context.value(arguments.tensor(0)), arguments.integer(1, "diagonal", 0)
        space = context.space([x], x.shape)
        rank = len(x.dims)
        row, column = (position(context, space, rank - back) for back in (2, 1))
        limit = context.ops("add", row, diagonal)
        kept = context.ops("ge" if upper else "le", column, limit)
        value = context.read(space.addresses[0])
        zero = context.pool.const(0, value.dtype)
        store(context, node, space, context.ops("where", kept, value, zero))

    return meaning


def _filled(value: float | None, at: int = 0) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        number = arguments.number(at, "fill_value") if value is None else value
        space = context.space([], node.out[0].shape)
        store(context, node, space, context.pool.const(number, computed(node.out[0].dtype)))

    return meaning


def _scalar_tensor(context: Context, node: Node, arguments: Arguments) -> None:
    _filled(arguments.number(0, "s"))(context, node, arguments)


def _fill(context: Context, node: Node, arguments: Arguments) -> None:
    other = arguments.get(1, "value")
    if not isinstance(other, Ref):
        _filled(arguments.number(1, "value"))(context, node, arguments)
        return
    space = context.space([context.value(other)], node.out[0].shape)
    store(context, node, space, context.load(space.addresses[0], node.out[0].dtype))


def _arange(context: Context, node: Node, arguments: Arguments) -> None:
    alone = len(arguments.node.args) == 1
    start = 0.0 if alone else arguments.number(0, "start")
    step = arguments.number(2, "step", 1)
    space = context.space([], node.out[0].shape)
    dtype = computed(node.out[0].dtype)
    at = context.ops.cast(position(context, space, 0), dtype)
    kind = float if dtype.is_floating else int
    value = context.ops("add", context.ops("mul", at, kind(step)), kind(start))
    store(context, node, space, value)


def _iota(context: Context, node: Node, arguments: Arguments) -> None:
    start, step = arguments.integer(1, "start", 0), arguments.integer(2, "step", 1)
    space = context.space([], node.out[0].shape)
    value = context.ops("mul", position(context, space, 0), step)
    store(context, node, space, context.ops("add", value, start))


def _eye(context: Context, node: Node, arguments: Arguments) -> None:
    space = context.space([], node.out[0].shape)
    same = context.ops("eq", position(context, space, 0), position(context, space, 1))
    store(context, node, space, context.ops.cast(same, computed(node.out[0].dtype)))


INDEXING: Mapping[str, Meaning] = {
    "gather": _gather,
    "index_select": _index_select,
    "embedding": _embedding,
    "index": _index,
    "cat": _cat,
    "constant_pad_nd": _pad,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "triu": _triangle(upper=True),
    "tril": _triangle(upper=False),
    "full": _filled(None, 1),
    "full_like": _filled(None, 1),
    "new_full": _filled(None, 2),
    # What was never written may hold anything, so also zeros.
    **dict.fromkeys(
        ("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty"), _filled(0.0)
    ),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _filled(1.0)),
    "scalar_tensor": _scalar_tensor,
    "fill": _fill,
    "arange": _arange,
    "iota": _iota,
    "eye": _eye,
}


class Placed:
    """Reads `x` in a space of `shape`, which has x's rank and differs from it along `dims` only.

    Positions must lie inside the tensor: what may lie outside is clamped and chosen by a `where`.
    """

    def __init__(
        self, context: Context, x: View, shape: Sequence[int], dims: Sequence[int]
    ) -> None:
        if any(len(x.dims[dim]) > 1 for dim in dims):
            x = context.copy(x)
        self._context, self._x = context, x
        still = tuple(() if at in dims else dim for at, dim in enumerate(x.dims))
        fixed = View(x.buffer, x.dtype, x.offset, still, None)
        self.space = context.space([fixed], shape)

    def size(self, dim: int) -> int:
        """The tensor's own size along a dimension."""
        return self._x.shape[dim]

    def at(self, dim: int) -> Expr:
        """Where the space is along a dimension."""
        return position(self._context, self.space, dim)

    def clamped(self, dim: int, place: Expr) -> Expr:
        """The nearest position inside the tensor."""
        ops = self._context.ops
        return ops("minimum", ops("maximum", place, 0), self.size(dim) - 1)

    def read(self, places: Mapping[int, Expr]) -> Expr:
        """The element at these positions."""
        (fixed,) = self.space.addresses
        terms = list(fixed.terms)
        for dim, place in places.items():
            terms += [Term(place, atom.step, atom.size) for atom in self._x.dims[dim]]
        return self._context.read(address(fixed.buffer, fixed.dtype, fixed.offset, terms))
