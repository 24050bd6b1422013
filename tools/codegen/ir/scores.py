"""What attention makes of a score before it is weighed: a pointwise loop over all scores.

The loop reads `product`, a tensor that nobody makes, where the product of a query and a key is
meant, and stores one value for each: what a softmax is taken of, or the weight itself. Everything
else that it reads lies in memory or is computed from positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelwright.tools.codegen.ir.bounds import Bound, bounds_of
from kernelwright.tools.codegen.ir.loops import Access, Axis, Loop, Stmt, Stride, without_unread
from kernelwright.tools.types import Value

# The nodes of a graph: attention, and the tensor that stands for products of queries and keys.
ATTENTION_CALL = "aten.scaled_dot_product_attention.default"  # the library's
ATTENTION, SCORES = "kernelwright.attention.default", "kernelwright.scores.default"
# The heaviest functions, in plain operations; all others are one.
_COSTS = {
    "tanh": 20, "pow": 40, "div": 8, "exp": 4, "exp2": 2, "log": 8, "log2": 4, "sigmoid": 6,
    "erf": 20, "sqrt": 4, "rsqrt": 2, "sin": 20, "cos": 20, "load": 4, "const": 0, "index": 0,
}  # fmt: skip


class ScoreFunction(Value):
    """A function of one score, of its place and of what lies in memory for it.

    `sides` are the sizes of queries and keys: the loop's one store goes to a tensor of all scores,
    keys fastest. Without a softmax the values are the weights.
    """

    loop: Loop
    product: str
    sides: tuple[int, int]
    is_softmax: bool

    @property
    def score(self) -> Stmt:
        """The statement that reads the product."""
        (found,) = (s for s in self.loop.body if s.access and s.access.buffer == self.product)
        return found

    @property
    def value(self) -> str:
        """What is made of it."""
        return self.loop.stores[0].value

    @property
    def nothing(self) -> float:
        """What a score is that does not count."""
        return -math.inf if self.is_softmax else 0.0

    @property
    def reads(self) -> tuple[Access, ...]:
        """What lies in memory."""
        found = (stmt.access for stmt in self.loop.body if stmt.access is not None)
        return tuple(one for one in found if one.buffer != self.product)

    @property
    def operations(self) -> int:
        """Plain operations of a score, about."""
        return sum(_COSTS.get(stmt.op, 1) for stmt in self.loop.body)

    def axes(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]:
        """Batches and heads, queries and keys, the fastest axis of each last."""
        queries, keys = self.sides
        store = self.loop.stores[0].access
        order = sorted(self.loop.outer, key=lambda axis: -store.step(axis.name))
        sides: tuple[list[Axis], list[Axis], list[Axis]] = ([], [], [])
        for axis in order:
            step = store.step(axis.name)
            sides[2 if step < keys else 1 if step < keys * queries else 0].append(axis)
        return tuple(sides[0]), tuple(sides[1]), tuple(sides[2])

    def renamed(self, names: Mapping[str, str]) -> ScoreFunction:
        """The same on other buffers; the product has none."""
        known = {self.product: "scores", self.loop.stores[0].access.buffer: "weights", **names}
        loop = self.loop.on_buffers(known).model_copy(update={"name": ""})
        return self.model_copy(update={"loop": loop, "product": "scores"})

    def without_future(self) -> ScoreFunction | None:
        """The function where a query comes after a key, if elsewhere nothing counts; else None."""
        last = next(stmt for stmt in self.loop.body if stmt.name == self.value)
        if last.op != "where":
            return None
        condition, *values = last.args
        bounds = bounds_of(condition, self.loop.body)
        empty = [self._is_nothing(name) for name in values]
        if bounds is None or len(bounds) != 1 or empty.count(True) != 1:
            return None
        bound = bounds[0].elsewhere if empty[0] else bounds[0]
        if not self._is_past(bound):
            return None
        store = self.loop.stores[0].model_copy(update={"value": values[empty.index(False)]})
        loop = without_unread(self.loop.model_copy(update={"stores": (store,)}))
        found = self.model_copy(update={"loop": loop})
        return (
            found if any(s.access and s.access.buffer == self.product for s in loop.body) else None
        )

    def counted_where(self) -> tuple[Bound, ...]:
        """Bounds that hold wherever a score counts; there may be other conditions."""
        known = {stmt.name: stmt for stmt in self.loop.body}
        found: list[Bound] = []
        last = known[self.value]
        while last.op == "where":
            condition, *values = last.args
            empty = [self._is_nothing(name) for name in values]
            if empty.count(True) != 1:
                break
            found += _bounds(condition, known, self.loop.body, holds=empty[1])
            last = known[values[empty.index(False)]]
        return tuple(found)

    @property
    def is_causal(self) -> bool:
        """Whether keys behind their query never count."""
        return any(self._is_past(bound) for bound in self.counted_where())

    @property
    def window(self) -> int | None:
        """How far before its query a key counts, at most; None where there is no end."""
        _, rows, columns = self.axes()
        ahead = Bound(offset=0, steps=()).plus(self._past(), -1)
        ends = [
            bound.offset
            for bound in self.counted_where()
            if _ordered(bound.steps) == _ordered(ahead.steps) and bound.offset >= 0
        ]
        return min(ends, default=None) if rows and columns else None

    def _is_nothing(self, name: str) -> bool:
        stmt = next(one for one in self.loop.body if one.name == name)
        return stmt.op == "const" and stmt.value == self.nothing

    def _is_past(self, bound: Bound) -> bool:
        """Whether it says that the key is not behind the query."""
        return bound.offset == 0 and _ordered(bound.steps) == _ordered(self._past().steps)

    def _past(self) -> Bound:
        """How far a key is before its query."""
        _, rows, columns = self.axes()
        store = self.loop.stores[0].access
        steps = [Stride(by=a.name, step=store.step(a.name) // self.sides[1]) for a in rows]
        steps += [Stride(by=axis.name, step=-store.step(axis.name)) for axis in columns]
        return Bound(offset=0, steps=tuple(steps))

    def slope(self) -> float:
        """The most that a value changes by when its score does, times that; inf if not known."""
        known = {self.score.name: 1.0}
        constants = {
            s.name: abs(float(s.value))
            for s in self.loop.body
            if s.op == "const" and s.value is not None
        }
        for stmt in self.loop.body:
            if stmt.name not in known and stmt.access is None:
                known[stmt.name] = _slope(stmt, known, constants)
        return known[self.value]


def _bounds(
    condition: str, known: Mapping[str, Stmt], body: Sequence[Stmt], *, holds: bool
) -> list[Bound]:
    """Bounds of positions that follow from a condition, or from its opposite."""
    stmt = known[condition]
    if stmt.op == ("logical_and" if holds else "logical_or"):
        return [one for name in stmt.args for one in _bounds(name, known, body, holds=holds)]
    if stmt.op == "logical_not":
        return _bounds(stmt.args[0], known, body, holds=not holds)
    found = bounds_of(condition, body) or ()
    if len(found) != 1:
        return []
    return [found[0] if holds else found[0].elsewhere]


def _ordered(strides: Sequence[Stride]) -> list[tuple[str, int]]:
    return sorted((one.by, one.step) for one in strides)


# Functions that never change by more than their argument.
_GENTLE = frozenset({"tanh", "relu", "abs", "neg", "cast", "sin", "cos", "atan", "asinh", "tf32"})


def _slope(stmt: Stmt, known: Mapping[str, float], constants: Mapping[str, float]) -> float:
    given = [known.get(name, 0.0) for name in stmt.args]
    if not any(given):
        return 0.0
    if stmt.op in _GENTLE:
        return given[0]
    if stmt.op in ("add", "sub"):
        return sum(given)
    if stmt.op in ("maximum", "minimum", "where"):
        return max(given) if stmt.op != "where" or not given[0] else math.inf
    if stmt.op == "sigmoid":
        return given[0] / 4
    if stmt.op == "mul" and stmt.args[1] in constants:
        return given[0] * constants[stmt.args[1]]
    if stmt.op == "mul" and stmt.args[0] in constants:
        return given[1] * constants[stmt.args[0]]
    if stmt.op == "div" and constants.get(stmt.args[1]):
        return given[0] / constants[stmt.args[1]]
    if stmt.op == "fma":
        left = [constants.get(name) for name in stmt.args[:2]]
        for factor, moved in zip(left, reversed(given[:2]), strict=True):
            if factor is not None:
                return factor * moved + given[2]
        return given[2] if not any(given[:2]) else math.inf
    return math.inf
