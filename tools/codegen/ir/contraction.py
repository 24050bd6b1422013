"""A product of matrices read off a loop: two operands, the sum of their products, what follows.

A contraction is no form of its own. It is a loop that sums `left * right` over its inner axes (the
depth) and stores what it makes of the sum. Outer axes are told apart by the operands: those that
both vary with are the batch, those of the left one alone the rows, those of the right one alone
the columns. The columns are the side along which results lie together in memory. Each operand and
the epilogue come with all the statements that they are computed from, so masks, scales, casts and
activations before and after the product are there to be printed.

A matrix times a vector has no columns (or no rows) and is one of these too; whether a kernel for it
is worth it is for families to say. Not here: sums of products of which a factor stands still along
the depth, products of three matrices, and loops that reduce anything besides.

Rows (or columns) of several axes are one axis where their factor walks them as one, whatever an
epilogue reads or stores: a gate for each image, say, or a position's embedding for all images. What
does not walk so is addressed by the parts of the merged position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import product
from math import prod

from kernelwright.tools.codegen.ir.bounds import Bound, bound_of
from kernelwright.tools.codegen.ir.loops import (
    Access,
    Axis,
    Loop,
    ReduceKind,
    Stmt,
    Store,
    axis_names,
    by_falling_stride,
    indices,
    operands,
    results,
    statements_behind,
    varies_along,
)
from kernelwright.tools.codegen.ir.merged_axes import (
    MergedAxis,
    by_merged_axes,
    merged_whole,
    with_merged_axes,
)
from kernelwright.tools.types import DType, Value

_ROUNDED = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8_E4M3FN)  # to what factors are
PRODUCT = "product"  # what a person would call a loop that was lowered from one
_PROBES, _MOST_PROBED = 32, 3  # positions along an axis to ask bounds at; axes too many for that


class Operand(Value):
    """One factor: the statement `value`, and everything it is computed from.

    `body` is in topological order and holds the loads. `access` is where the operand lies, when it
    is nothing but a load without a condition (half types become float32 on the way).
    """

    value: str
    body: tuple[Stmt, ...]
    access: Access | None = None

    @property
    def loads(self) -> tuple[Access, ...]:
        """What is read from memory."""
        return tuple(stmt.access for stmt in self.body if stmt.access is not None)

    @property
    def dtype(self) -> DType | None:
        """The type that lies in memory; None where the loads disagree, or there is none."""
        found = {access.dtype for access in self.loads}
        return found.pop() if len(found) == 1 else None

    def contiguous(self, axes: Iterable[Axis]) -> bool:
        """Whether most elements that are read lie next to each other along one of these axes."""
        names = [axis.name for axis in axes]
        widest = max(self.loads, key=lambda access: len(access.strides), default=None)
        return widest is not None and any(abs(widest.step(name)) == 1 for name in names)


class Statistics(Value):
    """What a kernel keeps of all that a product makes, and what is stored of that.

    `name` is the reduction of the kind `kind` of `value`, where `when` holds ("" for everywhere),
    over the axes `along`. It is known when every tile is done: `body` is computed from it then, in
    topological order, and `stores` are made at every position of the other axes.
    """

    name: str
    kind: ReduceKind
    dtype: DType
    value: str
    when: str
    along: tuple[str, ...]
    body: tuple[Stmt, ...]
    stores: tuple[Store, ...]


class Contraction(Value):
    """A loop's product of matrices; sizes are the products of the axes' sizes.

    `left` varies with batch, rows and depth, `right` with batch, columns and depth. `total` names
    the statement of the sum, and `dtype` is the type that it is computed in. `precision` is the
    type that the module multiplies in, whatever lies in memory: an operand that it casts to a half
    type may be rounded to it; `sums` is what the sum may be kept in. `is_tf32` says that the module
    rounds float32 operands to TF32, so eleven significant bits of each are enough. `epilogue` holds
    what the stores need besides the sum, in topological order: computed from it, or read with it;
    `statistics` are taken of these on the way. `merged` are rows and columns that are made of
    several of the loop's axes, by whose names the epilogue may read and store as well.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    left: Operand
    right: Operand
    total: str
    dtype: DType
    precision: DType
    epilogue: tuple[Stmt, ...]
    stores: tuple[Store, ...]
    is_tf32: bool = False
    sums: DType = DType.FLOAT32
    statistics: Statistics | None = None
    merged: tuple[MergedAxis, ...] = ()

    def parts_of(self, axis: Axis) -> tuple[Axis, ...]:
        """The loop's axes that a merged one is made of, the outermost first; () of any other."""
        return next((one.parts for one in self.merged if one.axis.name == axis.name), ())

    def names_of(self, axes: Iterable[Axis]) -> frozenset[str]:
        """The names that accesses move along some axes by: their own, and those of their parts."""
        every = [one for axis in axes for one in (axis, *self.parts_of(axis))]
        return frozenset(one.name for one in every)

    @property
    def counted(self) -> tuple[str, ...]:
        """The values of each result that statistics take."""
        found = self.statistics
        return () if found is None else (found.value, *[found.when] * bool(found.when))

    @property
    def folds(self) -> tuple[Stmt, ...]:
        """What the epilogue reduces over rows or columns, in order."""
        return tuple(stmt for stmt in self.epilogue if stmt.op == "fold")

    @property
    def batches(self) -> int:
        """Number of products."""
        return _size(self.batch)

    @property
    def m(self) -> int:
        """Rows of one product."""
        return _size(self.rows)

    @property
    def n(self) -> int:
        """Columns of one product."""
        return _size(self.columns)

    @property
    def k(self) -> int:
        """Summands of one result."""
        return _size(self.depth)

    @property
    def flops(self) -> int:
        """Operations of the product alone, a multiply-add counted as two."""
        return 2 * self.batches * self.m * self.n * self.k

    @cached_property
    def needed_share(self) -> float:
        """The share of results that depend on their sums, of some evenly spread ones."""
        bounds = needed_where(self)
        axes = [axis for axis in (*self.rows, *self.columns) if any(b.moves(axis) for b in bounds)]
        lines = ([(axis.name, axis.size * at // _PROBES) for at in range(_PROBES)] for axis in axes)
        points = [dict(point) for point in product(*lines)] if len(axes) < _MOST_PROBED else [{}]
        return sum(all(b.holds(point) for b in bounds) for point in points) / len(points)

    @property
    def is_matrix_product(self) -> bool:
        """Whether both operands are matrices: each element of either is used more than once."""
        return self.m > 1 and self.n > 1


def _size(axes: Iterable[Axis]) -> int:
    return prod(axis.size for axis in axes)


def contraction_of(loop: Loop) -> Contraction | None:
    """The product that a loop computes; None where it computes anything else."""
    found = _sum_of_products(loop)
    if found is None:
        return None
    merged = with_merged_axes(loop)
    contraction = _read(merged, merged.stmt(found.name))
    return _with_merged_sides(contraction) if contraction is not None else None


def _sum_of_products(loop: Loop) -> Stmt | None:
    """The one statement that reduces, if it sums floating-point products."""
    reducing = [stmt for stmt in loop.body if stmt.op in ("reduce", "scan")]
    if len(reducing) != 1 or reducing[0].reduce is not ReduceKind.SUM:
        return None
    (total,) = reducing
    factors = loop.stmt(total.args[0])
    is_product = factors.op == "mul" and factors.dtype.is_floating
    return total if is_product and factors.args[0] != factors.args[1] else None


def _read(loop: Loop, total: Stmt) -> Contraction | None:
    varies, depth = varies_along(loop), {axis.name for axis in loop.inner}
    factors = loop.stmt(total.args[0]).args
    (first, precision), (second, _) = (_unrounded(loop, factor) for factor in factors)
    if not depth or not depth <= varies[first] & varies[second]:
        return None
    if {axis.name for axis in loop.outer} != (varies[first] | varies[second]) - depth:
        return None  # results repeated along an axis that no operand knows
    left, right = _ordered_factors(loop, first, second, varies)
    statistics = _statistics(loop)
    taken = statistics.stores if statistics is not None else ()
    stores = tuple(store for store in loop.stores if store not in taken)
    epilogue = _epilogue(loop, total, stores, statistics)
    if any(varies[stmt.name] & depth for stmt in epilogue) or _stores_along(loop, depth):
        return None
    # Of results that are never stored, axes lie as the factors have them.
    guides = [store.access for store in stores] or [s.access for s in loop.body if s.access]
    sides = {
        "batch": varies[left] & varies[right],
        "rows": varies[left] - varies[right],
        "columns": varies[right] - varies[left],
    }
    groups = {side: _group(loop.outer, names, guides) for side, names in sides.items()}
    folded = {name for s in epilogue if s.op == "fold" for name in s.along}  # lies together
    groups = {k: tuple(sorted(v, key=lambda one: one.name in folded)) for k, v in groups.items()}
    operand_left, operand_right = _operand(loop, left), _operand(loop, right)
    walks = [*operand_left.loads, *operand_right.loads]
    return Contraction(
        batch=groups["batch"],
        rows=groups["rows"],
        columns=groups["columns"],
        depth=_group(loop.inner, depth, walks),
        left=operand_left,
        right=operand_right,
        total=total.name,
        dtype=total.dtype,
        precision=precision,
        epilogue=epilogue,
        stores=stores,
        is_tf32=all(loop.stmt(factor).op == "tf32" for factor in factors),
        sums=loop.sums,
        statistics=statistics,
    )


def _with_merged_sides(found: Contraction) -> Contraction:
    """The product with rows, or columns, of one axis where their factor walks them as one.

    Not what statistics or folds are taken over, nor where a position is computed with. Batches stay
    as they are: each factor may go through them in its own way.
    """
    bodies = (*found.left.body, *found.right.body, *found.epilogue)
    apart = {stmt.args[0] for stmt in bodies if stmt.op == "index"}
    apart |= {name for stmt in found.folds for name in stmt.along}
    sides = {"rows": (found.rows, found.left), "columns": (found.columns, found.right)}
    whole = {
        name: one
        for name, (axes, operand) in sides.items()
        if not apart & {axis.name for axis in axes}
        and (one := merged_whole(axes, operand.loads)) is not None
    }
    if not whole or found.statistics is not None:
        return found
    merged = tuple(whole.values())
    stores = (by_merged_axes(one.access, merged) for one in found.stores)
    return found.model_copy(
        update={
            **{name: (one.axis,) for name, one in whole.items()},
            "left": _factor_by(found.left, merged),
            "right": _factor_by(found.right, merged),
            "epilogue": _body_by(found.epilogue, merged),
            "stores": tuple(
                one.model_copy(update={"access": access})
                for one, access in zip(found.stores, stores, strict=True)
            ),
            "merged": merged,
        }
    )


def _body_by(body: tuple[Stmt, ...], merged: tuple[MergedAxis, ...]) -> tuple[Stmt, ...]:
    """Statements whose accesses move along merged axes."""
    return tuple(
        one.model_copy(update={"access": by_merged_axes(one.access, merged)})
        if one.access is not None
        else one
        for one in body
    )


def _factor_by(factor: Operand, merged: tuple[MergedAxis, ...]) -> Operand:
    access = by_merged_axes(factor.access, merged) if factor.access is not None else None
    return factor.model_copy(update={"body": _body_by(factor.body, merged), "access": access})


def _statistics(loop: Loop) -> Statistics | None:
    """What the loop keeps of all results; what is stored of it is computed from nothing else."""
    taken = next((stmt for stmt in loop.body if stmt.op == "statistic"), None)
    if taken is None or taken.reduce is None:
        return None
    known = {*results(taken)}
    for stmt in loop.body:
        known |= {stmt.name} if known & {*stmt.args} else set()
    stores = tuple(store for store in loop.stores if store.value in known)
    behind = _behind(loop, [store.value for store in stores], taken.name)
    return Statistics(
        name=taken.name,
        kind=taken.reduce,
        dtype=taken.dtype,
        value=taken.args[0],
        when=taken.args[1] if len(taken.args) > 1 else "",
        along=taken.along,
        body=tuple(stmt for stmt in behind if stmt is not taken),
        stores=stores,
    )


def _unrounded(loop: Loop, factor: str) -> tuple[str, DType]:
    """A factor before it is rounded, and the type that is multiplied in."""
    stmt = loop.stmt(factor)
    if stmt.op == "tf32":
        return stmt.args[0], stmt.dtype
    if stmt.op == "cast" and stmt.dtype in _ROUNDED:
        return stmt.args[0], stmt.dtype
    return factor, stmt.dtype


def _ordered_factors(
    loop: Loop, first: str, second: str, varies: Mapping[str, frozenset[str]]
) -> tuple[str, str]:
    """(left, right): results lie next to each other along an axis of the right one alone."""
    alone = varies[first] ^ varies[second]
    written = max(
        (store.access for store in loop.stores),
        key=lambda access: len(access.strides),
    )
    along = [axis.name for axis in loop.outer if axis.name in alone and written.step(axis.name)]
    nearest = min(along, key=lambda name: abs(written.step(name)), default="")
    return (second, first) if nearest in varies[first] - varies[second] else (first, second)


def _group(
    axes: Iterable[Axis], names: Iterable[str], guides: Iterable[Access]
) -> tuple[Axis, ...]:
    """The axes of these names, by falling stride."""
    wanted = frozenset(names)
    steps = [lambda axis, guide=guide: guide.step(axis.name) for guide in guides]
    return tuple(by_falling_stride((axis for axis in axes if axis.name in wanted), steps))


def _operand(loop: Loop, name: str) -> Operand:
    body = _behind(loop, [name], "")
    load = body[0]
    alone = len(body) == 1 and load.access is not None and not load.args
    return Operand(value=name, body=body, access=load.access if alone else None)


def _epilogue(
    loop: Loop, total: Stmt, stores: Iterable[Store], statistics: Statistics | None
) -> tuple[Stmt, ...]:
    axes, wanted = axis_names(loop), list[str]()
    for store in stores:
        wanted += [name for name in (store.value, store.when) if name]
        wanted += indices(store.access, axes)
    if statistics is not None:
        wanted += [name for name in (statistics.value, statistics.when) if name]
    behind = _behind(loop, wanted, total.name)
    return tuple(stmt for stmt in behind if stmt.name != total.name)


def _behind(loop: Loop, names: Iterable[str], closed: str) -> tuple[Stmt, ...]:
    """What values are computed from, in the loop's order; `closed` is not looked behind."""
    axes, known = axis_names(loop), {name: s for s in loop.body for name in results(s)}
    found = statements_behind(
        names, known, lambda stmt: operands(stmt, axes), opened=lambda stmt: stmt.name != closed
    )
    return tuple(stmt for stmt in loop.body if stmt.name in found)


def _stores_along(loop: Loop, depth: set[str]) -> bool:
    return any(store.access.step(name) for store in loop.stores for name in depth)


def needed_where(contraction: Contraction) -> tuple[Bound, ...]:
    """Where results depend on the sum: positions within all of these bounds; () for everywhere.

    A triangle of a product, `where(column >= row, sum, 0)`, needs no sum below its diagonal,
    whatever the operands hold there. Masks of operands bound nothing: zero times infinity is none.
    """
    known = {stmt.name: stmt for stmt in contraction.epilogue}
    bounds: list[Bound] = []
    for stmt in contraction.epilogue:
        if stmt.op == "where" and not _reached(contraction, without=stmt.name):
            behind = {contraction.total, *_dependent(contraction, without="")}
            condition, then, other = (arg in behind for arg in stmt.args)
            bound = bound_of(stmt.args[0], known)
            if bound is not None and not condition and then != other:
                bounds.append(bound if then else bound.elsewhere)
    return tuple(bounds)


def _dependent(contraction: Contraction, without: str) -> set[str]:
    """The statements that depend on the sum, not counting those that do by way of one of them."""
    found: set[str] = set()
    for stmt in contraction.epilogue:
        reads = {
            *stmt.args,
            *(stride.by for stride in (stmt.access.strides if stmt.access else ())),
        }
        if reads & {contraction.total, *found} and stmt.name != without:
            found.add(stmt.name)
    return found


def _reached(contraction: Contraction, without: str) -> bool:
    """Whether a store depends on the sum other than by way of one statement."""
    found = {contraction.total, *_dependent(contraction, without)}
    stored = {store.value for store in contraction.stores} | {*contraction.counted}
    stored |= {stride.by for store in contraction.stores for stride in store.access.strides}
    return bool(found & stored)
