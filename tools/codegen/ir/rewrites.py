"""What a rewrite is, of a loop and of a traced graph, and the built-in rewrites of loops.

A rewrite holds for every input: it changes how a result is computed, never what it is apart from
rounding, and each gives its reason. Strategies name the rewrite they want. The rewrites of graphs
stand in `algebra`; a family of kernels may bring its own.

Products that the compiler could fuse into a difference are rounded by themselves. In
`a * b - c * d` the compiler rounds one product and takes the other exactly. Where the two are
nearly equal, the rounding of that one is all that is left: it has the same sign wherever the
factors are alike, and a sum over many elements adds it up. Rounded both, equal products cancel to
zero, as they do operator by operator (a divergence of two nearly equal distributions). So are
products that an exponential is taken of: `exp(a * b - top)` with the largest of the rounded
products as `top` is one for that product, and not what its rounding makes of it, which is infinite
where products are of some 1e10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kernelwright.tools.codegen.ir import ReduceKind, Stmt
from kernelwright.tools.codegen.ir.loops import Loop, loop_label, without_unread
from kernelwright.tools.types import Graph, Node


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
    """One rewrite of a graph: `change` rewrites one node of it, or answers None.

    `architectures` are those with kernels for what it makes; none names all. With `is_apart` what
    it makes is nothing that a library computes: it makes a form of its own.
    """

    name: str
    title: str
    proof: str
    conditions: str
    change: Callable[[Graph, Node], Graph | None]
    architectures: tuple[str, ...] = ()
    is_apart: bool = False

    def is_for(self, architecture: str | None) -> bool:
        """Whether it is for devices of that architecture."""
        return not self.architectures or architecture in self.architectures


_PRODUCTS = frozenset({"mul", "square"})
_EXPONENTIALS = frozenset({"exp", "exp2", "expm1"})


def rounded_alone(loop: Loop) -> frozenset[str]:
    """Products of which a difference has one on either side, or that an exponential is taken of."""
    known = {stmt.name: stmt for stmt in loop.body}
    raised = {name for stmt in loop.body if stmt.op in _EXPONENTIALS for name in stmt.args}
    found: set[str] = set()
    for stmt in loop.body:
        if stmt.op == "reduce" and stmt.reduce is ReduceKind.SOFTMAX:
            found |= _products(stmt.args[0], known)
        if stmt.op == "sub" and stmt.dtype.is_floating:
            left, right = (_products(name, known) for name in stmt.args)
            if (left and right) or stmt.name in raised:
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
        if total.op != "reduce" or total.reduce is not ReduceKind.SUM:
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
    is_sum = squares.op == "reduce" and squares.reduce is ReduceKind.SUM
    square = defined.get(squares.args[0]) if is_sum else None
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

_REWRITES: Mapping[str, Change] = {
    "online_softmax": online_softmax,
    "moments": moments,
}
