"""What a rewrite is, of a loop and of a traced graph, and the built-in rewrites of loops.

A rewrite holds for every input: it changes how a result is computed, never what it is apart from
rounding, and each gives its reason. Strategies name the rewrite they want; `rewrites_for` lists
those that change a given loop. The rewrites of graphs stand in `algebra`; a family of kernels may
bring its own.

Products that the compiler could fuse into a difference are rounded by themselves. In
`a * b - c * d` the compiler rounds one product and takes the other exactly. Where the two are
nearly equal, the rounding of that one is all that is left: it has the same sign wherever the
factors are alike, and a sum over many elements adds it up. Rounded both, equal products cancel to
zero, as they do operator by operator (a divergence of two nearly equal distributions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kernelwright.tools.codegen.ir import ReduceKind, Stmt, results
from kernelwright.tools.codegen.ir.loops import Loop, loop_label, without_unread
from kernelwright.tools.types import DType, Graph, Node


@dataclass(frozen=True)
class LoopRewrite:
    """One rewrite of a loop: `change` answers None where it does not apply.

    `gain` says in a language's own words what it saves.
    """

    name: str
    change: Callable[[Loop], Loop | None]
    gain: str


@dataclass(frozen=True)
class GraphRewrite:
    """One rewrite of a graph: `change` rewrites one node of it, or answers None."""

    name: str
    title: str
    proof: str
    conditions: str
    change: Callable[[Graph, Node], Graph | None]


_PRODUCTS = frozenset({"mul", "square"})


def rounded_alone(loop: Loop) -> frozenset[str]:
    """The products of which a difference has one on either side."""
    known = {stmt.name: stmt for stmt in loop.body}
    found: set[str] = set()
    for stmt in loop.body:
        if stmt.op == "sub" and stmt.dtype.is_floating:
            left, right = (_products(name, known) for name in stmt.args)
            if left and right:
                found |= left | right
    return frozenset(found)


def _products(name: str, known: Mapping[str, Stmt]) -> set[str]:
    """The products that a value is, or is chosen or negated from."""
    stmt = known.get(name)
    if stmt is None:
        return set()
    if stmt.op in _PRODUCTS:
        return {name}
    if stmt.op not in ("where", "neg"):
        return set()
    values = stmt.args[1:] if stmt.op == "where" else stmt.args
    return {found for value in values for found in _products(value, known)}


def rewrites_for(loop: Loop) -> tuple[str, ...]:
    """Names of the rewrites that apply to the loop."""
    return tuple(name for name, change in _REWRITES.items() if change(loop) is not None)


def rewrite(loop: Loop, name: str) -> Loop:
    """The loop rewritten; ValueError when there is no such rewrite or it does not apply."""
    if name not in _REWRITES:
        raise ValueError(f"unknown rewrite {name!r}; known are {', '.join(_REWRITES)}")
    changed = _REWRITES[name](loop)
    if changed is None:
        raise ValueError(f"rewrite {name!r} does not apply to loop {loop.name}")
    return changed


def online_softmax(loop: Loop) -> Loop | None:
    """A maximum and the sum of exp(x - maximum) become one `softmax` reduction.

    Holds because a partial sum can be carried to a larger maximum m' by the factor
    exp(m - m'): the sum over a row is the same whichever way it is grouped. It saves one pass.
    """
    found = _softmax_pairs(loop)
    if not found:
        return None
    body = list(loop.body)
    names: dict[str, str] = {}
    for top, total in found:
        at = body.index(top)
        body[at] = top.model_copy(update={"reduce": ReduceKind.SOFTMAX})
        body.remove(total)
        names[total.name] = f"{top.name}_sum"
    return _finished(loop, [_renamed(stmt, names) for stmt in body], names)


def _softmax_pairs(loop: Loop) -> list[tuple[Stmt, Stmt]]:
    """(maximum, sum) of every sum of exp(x - max x); one sum for each maximum."""
    defined = {stmt.name: stmt for stmt in loop.body}
    pairs: dict[str, tuple[Stmt, Stmt]] = {}
    for total in loop.body:
        if total.reduce is not ReduceKind.SUM:
            continue
        power = defined.get(total.args[0])
        shifted = defined.get(power.args[0]) if power and power.op == "exp" else None
        if shifted is None or shifted.op != "sub":
            continue
        top = defined.get(shifted.args[1])
        if top and top.reduce is ReduceKind.MAX and top.args[0] == shifted.args[0]:
            pairs.setdefault(top.name, (top, total))
    return list(pairs.values())


def moments(loop: Loop) -> Loop | None:
    """A sum, and the sum of squared distances from its mean, become one `moments` reduction.

    Holds by definition: `moments` gives the mean and the sum of (x - mean)^2. Its partial
    results combine exactly (Chan's update), so one pass replaces two.
    """
    defined = {stmt.name: stmt for stmt in loop.body}
    for squares in loop.body:
        mean = _mean_of_squares(loop, defined, squares)
        if mean is not None:
            return _with_moments(loop, mean, squares)
    return None


def _mean_of_squares(loop: Loop, defined: Mapping[str, Stmt], squares: Stmt) -> Stmt | None:
    """The statement of the mean that `squares` sums distances from."""
    square = defined.get(squares.args[0]) if squares.reduce is ReduceKind.SUM else None
    distance = defined.get(square.args[0]) if square and square.op == "square" else None
    if distance is None or distance.op != "sub":
        return None
    mean = defined.get(distance.args[1])
    if mean is None or len(mean.args) != 2:
        return None
    total, count = defined.get(mean.args[0]), defined.get(mean.args[1])
    if total is None or total.reduce is not ReduceKind.SUM or total.args[0] != distance.args[0]:
        return None
    return mean if count is not None and _divides_by(mean, count, loop.columns) else None


def _divides_by(mean: Stmt, count: Stmt, columns: int) -> bool:
    if count.op != "const" or not isinstance(count.value, float):
        return False
    wanted = float(columns) if mean.op == "div" else 1.0 / columns
    return mean.op in ("div", "mul") and count.value == wanted


def _with_moments(loop: Loop, mean: Stmt, squares: Stmt) -> Loop:
    total = loop.stmt(mean.args[0])
    others = [s for s in loop.body if s.name != mean.name and total.name in s.args]
    kept = [total] if others or any(s.value == total.name for s in loop.stores) else []
    both = mean.model_copy(
        update={"op": "reduce", "args": total.args, "reduce": ReduceKind.MOMENTS}
    )
    names = {squares.name: f"{mean.name}_m2"}
    body: list[Stmt] = []
    for stmt in loop.body:
        if stmt is total:
            body += [both, *kept]
        elif stmt.name not in (mean.name, squares.name):
            body.append(_renamed(stmt, names))
    return _finished(loop, body, names)


def multiply_by_reciprocal(loop: Loop) -> Loop | None:
    """Elements divided by a row-level value are multiplied by its reciprocal, made once a row.

    Holds up to one more rounding (at most one unit in the last place each): a / b and
    a * (1 / b) agree where 1 / b neither overflows nor is subnormal. Divisors below 1e-38 are
    where it can differ, so it is applied only to divisors that are sums of exponentials or
    square roots of something at least as large as a positive constant.
    """
    levels = loop.levels()
    rows = [
        stmt
        for stmt in loop.body
        if stmt.op == "div"
        and levels[stmt.name] == "element"
        and levels[stmt.args[1]] == "row"
        and _safe_divisor(loop, stmt.args[1])
    ]
    if not rows:
        return None
    return _reciprocals(loop, {stmt.args[1] for stmt in rows}, {stmt.name for stmt in rows})


def _reciprocals(loop: Loop, divisors: set[str], changed: set[str]) -> Loop:
    body: list[Stmt] = []
    for stmt in loop.body:
        if stmt.name in changed:
            args = (stmt.args[0], f"{stmt.args[1]}_inv")
            body.append(stmt.model_copy(update={"op": "mul", "args": args}))
            continue
        body.append(stmt)
        for name in sorted(divisors & set(results(stmt))):
            inverse = f"{name}_inv"
            body.append(Stmt(name=inverse, op="reciprocal", dtype=stmt.dtype, args=(name,)))
    return _finished(loop, body, {})


def _safe_divisor(loop: Loop, name: str) -> bool:
    """At least about 1e-30: a softmax's sum is at least 1, a root of x + eps at least that."""
    stmt = loop.stmt(name)
    if stmt.reduce is ReduceKind.SOFTMAX:
        return name.endswith("_sum")
    if stmt.reduce is ReduceKind.SUM:
        return any(total.name == stmt.name for _, total in _softmax_pairs(loop))
    if stmt.op == "sqrt":
        return _bounded_below(loop, stmt.args[0])
    return _bounded_below(loop, name)


def _bounded_below(loop: Loop, name: str) -> bool:
    """Whether a value is something not negative plus a positive constant."""
    stmt = loop.stmt(name)
    if stmt.op not in ("add", "maximum"):
        return False
    constants = [loop.stmt(arg) for arg in stmt.args if loop.stmt(arg).op == "const"]
    positive = any(isinstance(c.value, float) and c.value >= 1e-30 for c in constants)
    if stmt.op == "maximum":
        return positive
    others = [arg for arg in stmt.args if loop.stmt(arg).op != "const"]
    return positive and all(_not_negative(loop, arg) for arg in others)


def _not_negative(loop: Loop, name: str) -> bool:
    stmt = loop.stmt(name)
    if stmt.reduce is ReduceKind.MOMENTS:
        return name.endswith("_m2")
    if stmt.op in ("square", "abs", "exp", "sqrt"):
        return True
    if stmt.reduce in (ReduceKind.SUM, ReduceKind.MAX, ReduceKind.MIN):
        return _not_negative(loop, stmt.args[0])
    if stmt.op in ("div", "mul"):
        return all(_not_negative(loop, arg) or _positive(loop.stmt(arg)) for arg in stmt.args)
    return False


def _positive(stmt: Stmt) -> bool:
    return stmt.op == "const" and isinstance(stmt.value, float) and stmt.value > 0


def base_two(loop: Loop) -> Loop | None:
    """exp(x) becomes exp2(x * log2 e), which is what the hardware computes.

    Holds for all x: exp(x) = 2^(x log2 e). The product rounds once more, a relative error of up
    to |x| units in the last place of the result, so it is for arguments of moderate size such
    as differences from a maximum; it is applied to float32 exponentials of those only.
    """
    defined = {stmt.name: stmt for stmt in loop.body}
    tops = {stmt.name for stmt in loop.body if stmt.reduce in (ReduceKind.MAX, ReduceKind.SOFTMAX)}
    powers = [
        stmt
        for stmt in loop.body
        if stmt.op == "exp"
        and stmt.dtype is DType.FLOAT32
        and (shifted := defined.get(stmt.args[0])) is not None
        and shifted.op == "sub"
        and shifted.args[1] in tops
    ]
    if not powers:
        return None
    body: list[Stmt] = []
    for stmt in loop.body:
        body += _based_on_two(stmt) if stmt in powers else [stmt]
    return _finished(loop, body, {})


def _based_on_two(stmt: Stmt) -> list[Stmt]:
    scale = Stmt(name=f"{stmt.name}_l2e", op="const", dtype=stmt.dtype, value=math.log2(math.e))
    scaled = Stmt(
        name=f"{stmt.name}_2", op="mul", dtype=stmt.dtype, args=(stmt.args[0], scale.name)
    )
    return [scale, scaled, stmt.model_copy(update={"op": "exp2", "args": (scaled.name,)})]


def _renamed(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    changes: dict[str, object] = {"args": tuple(names.get(arg, arg) for arg in stmt.args)}
    if stmt.access is not None:
        strides = tuple(
            s.model_copy(update={"by": names.get(s.by, s.by)}) for s in stmt.access.strides
        )
        changes["access"] = stmt.access.model_copy(update={"strides": strides})
    return stmt.model_copy(update=changes)


def _finished(loop: Loop, body: Iterable[Stmt], names: Mapping[str, str]) -> Loop:
    """The loop with a new body, without statements that nothing uses any more."""
    stores = tuple(
        store.model_copy(update={"value": names.get(store.value, store.value)})
        for store in loop.stores
    )
    changed = without_unread(loop.model_copy(update={"body": tuple(body), "stores": stores}))
    return changed.model_copy(update={"family": loop_label(changed)})


Change = Callable[[Loop], Loop | None]


def _both(first: Change, second: Change) -> Change:
    def change(loop: Loop) -> Loop | None:
        once = first(loop)
        return None if once is None else second(once)

    return change


_REWRITES: Mapping[str, Change] = {
    "online_softmax": online_softmax,
    "moments": moments,
    "multiply_by_reciprocal": multiply_by_reciprocal,
    "base_two": base_two,
    "online_softmax+multiply_by_reciprocal": _both(online_softmax, multiply_by_reciprocal),
}
