"""Follows what is certain about values through a graph, whatever the inputs are.

Three things about every node: an interval that all its elements lie in, what it copies (the same
elements in the same order, as a maximum over one element does), and whether it only looks after
its source. Weights and inputs are taken for finite and otherwise unknown, so what is certain here
holds for every draw. Errs on the safe side: what it does not know is anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelwright.tools.types import Arg, Graph, ListArg, Node, Ref, Scalar, Value
from kernelwright.tools.types.graph import base, words

_REGROUPS = words("view _unsafe_view unsqueeze squeeze alias clone")
_SELECTS = words("permute transpose expand slice select flip repeat index index_select gather")
_REDUCTIONS = words("amax amin sum mean prod")
_KEEPS_EXTREMES = words("amax amin mean max_pool2d_with_indices cummax cummin")
_GETS_FIRST = words("native_dropout max_pool2d_with_indices max_pool3d_with_indices cummax cummin")


class Interval(Value):
    """All elements lie in it; one point where they are all that number."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def point(self) -> float | None:
        """The number that every element is; None when they may differ."""
        return self.low if self.low == self.high and math.isfinite(self.low) else None


ANY = Interval()


class Known(Value):
    """What is certain about one node; `copies` is the first node with the same elements."""

    range: Interval
    copies: str


class Ranges:
    """Everything certain about a graph's nodes."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.name: node for node in graph.nodes}
        self._known: dict[str, Known] = {}
        for node in graph.nodes:
            self._known[node.name] = self._learn(node)

    def of(self, name: str) -> Known:
        """What is certain about a node."""
        return self._known[name]

    def _learn(self, node: Node) -> Known:
        copied = self._copied(node)
        if copied is not None:
            return self._known[copied]
        return Known(range=self._range(node), copies=node.name)

    def _copied(self, node: Node) -> str | None:
        """The source whose elements this node has in the same order, if that is certain."""
        name, first = base(node.op), _first(node)
        if first is None or self._numel(first) != node.out[0].numel:
            return None
        if self._nodes[first].out[0].dtype != node.out[0].dtype:
            return None
        if name == "clone" and node.kwargs:
            return None  # it asks for another layout: moving the elements is work
        if name in _REGROUPS or name in _REDUCTIONS or name == "expand":
            return first
        if name in ("mul", "div") and self._is(node, 1, 1.0):
            return first
        if name in ("add", "sub") and self._is(node, 1, 0.0):
            return first
        if name == "add" and self._is(node, 0, 0.0):
            return _name(node.args[1])
        return self._unchanged(node, name, first)

    def _unchanged(self, node: Node, name: str, first: str) -> str | None:
        """An operator that has nothing to do, as every value is in its range already."""
        have = self._known[first].range
        if name == "where":
            return self._one_branch(node)
        if name == "relu" and have.low >= 0:
            return first
        if name == "abs" and have.low >= 0:
            return first
        if name == "clamp" and have != ANY:
            low, high = _clamp_bounds(node)
            return first if low <= have.low and high >= have.high else None
        if name in ("maximum", "minimum"):
            other = self._range_of(node.args[1])
            idle = have.low >= other.high if name == "maximum" else have.high <= other.low
            return first if idle and other.point is not None else None
        return None

    def _one_branch(self, node: Node) -> str | None:
        """`where(|x| == inf, 0, x)` guards against infinities; finite values pass it."""
        condition, chosen = _name(node.args[0]), _name(node.args[2])
        test = self._nodes[condition] if condition else None
        if chosen is None or test is None or base(test.op) != "eq":
            return None
        return chosen if self._is(test, 1, math.inf) else None

    def _range(self, node: Node) -> Interval:
        if not node.out or not (node.out[0].dtype.is_floating or node.op.startswith("aten.full")):
            return ANY
        rule = _RULES.get(base(node.op))
        return rule(self, node) if rule is not None else ANY

    def _range_of(self, arg: Arg) -> Interval:
        if isinstance(arg, Ref):
            return self._known[arg.node].range
        if isinstance(arg, Scalar) and isinstance(arg.value, (int, float)):
            return Interval(low=float(arg.value), high=float(arg.value))
        return ANY

    def _is(self, node: Node, position: int, number: float) -> bool:
        if len(node.args) <= position:
            return False
        arg = node.args[position]
        if dict(node.kwargs).get("alpha") not in (None, Scalar(value=1)):
            return False
        if isinstance(arg, Scalar):
            return isinstance(arg.value, (int, float)) and float(arg.value) == number
        return self._range_of(arg).point == number

    def _numel(self, name: str) -> int:
        return self._nodes[name].out[0].numel

    def same(self, left: Arg, right: Arg, node: Node) -> bool:
        """Whether two arguments of a pointwise node are equal element by element."""
        one, two = _name(left), _name(right)
        if one is None or two is None:
            return False
        whole = self._numel(one) == self._numel(two) == node.out[0].numel
        return whole and self._known[one].copies == self._known[two].copies


def _first(node: Node) -> str | None:
    return _name(node.args[0]) if node.args else None


def _name(arg: Arg) -> str | None:
    return arg.node if isinstance(arg, Ref) else None


def _clamp_bounds(node: Node) -> tuple[float, float]:
    values = [arg.value if isinstance(arg, Scalar) else None for arg in node.args[1:3]]
    named = {key: arg.value for key, arg in node.kwargs if isinstance(arg, Scalar)}
    low = values[0] if values else named.get("min")
    high = values[1] if len(values) > 1 else named.get("max")
    unknown = any(isinstance(arg, Ref) for arg in node.args[1:])
    if unknown:
        return math.nan, math.nan
    return _number(low, -math.inf), _number(high, math.inf)


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) else otherwise


def _keeps(known: Ranges, node: Node) -> Interval:
    return known._range_of(node.args[0]) if node.args else ANY


def _clamp(known: Ranges, node: Node) -> Interval:
    low, high = _clamp_bounds(node)
    if math.isnan(low):
        return ANY
    have = known._range_of(node.args[0])
    return Interval(low=min(max(have.low, low), high), high=max(min(have.high, high), low))


def _rising(function: Callable[[float], float]) -> Callable[[Ranges, Node], Interval]:
    """The rule of a function that grows with its argument."""

    def rule(known: Ranges, node: Node) -> Interval:
        have = known._range_of(node.args[0])
        return Interval(low=_at(function, have.low), high=_at(function, have.high))

    return rule


def _at(function: Callable[[float], float], value: float) -> float:
    try:
        return function(value)
    except (OverflowError, ValueError):
        return math.copysign(math.inf, value)


def _log(value: float) -> float:
    return -math.inf if value <= 0 else math.log(value)


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value)) if value > -700 else 0.0


def _add(known: Ranges, node: Node) -> Interval:
    if dict(node.kwargs):
        return ANY
    left, right = (known._range_of(arg) for arg in node.args[:2])
    return _ordered(left.low + right.low, left.high + right.high)


def _sub(known: Ranges, node: Node) -> Interval:
    if dict(node.kwargs):
        return ANY
    if known.same(node.args[0], node.args[1], node):
        return Interval(low=0.0, high=0.0)
    left, right = (known._range_of(arg) for arg in node.args[:2])
    return _ordered(left.low - right.high, left.high - right.low)


def _mul(known: Ranges, node: Node) -> Interval:
    left, right = (known._range_of(arg) for arg in node.args[:2])
    if 0.0 in (left.point, right.point):
        return Interval(low=0.0, high=0.0)
    if known.same(node.args[0], node.args[1], node):
        return Interval(low=0.0)
    return _corners(left, right, lambda a, b: a * b)


def _div(known: Ranges, node: Node) -> Interval:
    if dict(node.kwargs):
        return ANY
    left, right = (known._range_of(arg) for arg in node.args[:2])
    if right.low <= 0 <= right.high:
        return ANY
    return _corners(left, right, lambda a, b: a / b)


def _corners(
    left: Interval, right: Interval, function: Callable[[float, float], float]
) -> Interval:
    values = [function(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    # Infinity times zero: the value is finite in truth, and then the product is zero.
    values = [0.0 if math.isnan(value) else value for value in values]
    return Interval(low=min(values), high=max(values))


def _ordered(low: float, high: float) -> Interval:
    return ANY if math.isnan(low) or math.isnan(high) else Interval(low=low, high=high)


def _abs(known: Ranges, node: Node) -> Interval:
    have = known._range_of(node.args[0])
    ends = (abs(have.low), abs(have.high))
    return Interval(low=0.0 if have.low <= 0 <= have.high else min(ends), high=max(ends))


def _negate(known: Ranges, node: Node) -> Interval:
    have = known._range_of(node.args[0])
    return Interval(low=-have.high, high=-have.low)


def _extreme(pick: Callable[[float, float], float]) -> Callable[[Ranges, Node], Interval]:
    def rule(known: Ranges, node: Node) -> Interval:
        left, right = (known._range_of(arg) for arg in node.args[:2])
        return Interval(low=pick(left.low, right.low), high=pick(left.high, right.high))

    return rule


def _sum(known: Ranges, node: Node) -> Interval:
    have = known._range_of(node.args[0])
    source = _first(node)
    assert source is not None
    count = max(1, known._numel(source) // max(1, node.out[0].numel))
    return Interval(low=have.low * count, high=have.high * count)


def _variance(known: Ranges, node: Node) -> Interval:
    """Nothing varies among equal values, nor does one value alone."""
    source = _first(node)
    assert source is not None
    alone = known._numel(source) == node.out[0].numel
    corrected = dict(node.kwargs).get("correction") != Scalar(value=0)
    still = known._range_of(node.args[0]).point is not None or alone
    return Interval(low=0.0, high=0.0) if still and not (alone and corrected) else Interval(low=0.0)


def _getitem(known: Ranges, node: Node) -> Interval:
    source = known._nodes[_first(node) or ""]
    index = node.args[1]
    first = isinstance(index, Scalar) and index.value == 0
    name = base(source.op)
    if name == "var_mean":
        return _variance(known, source) if first else known._range_of(source.args[0])
    return known._range_of(source.args[0]) if first and name in _GETS_FIRST else ANY


def _dropout(known: Ranges, node: Node) -> Interval:
    """What is dropped is zero, what stays is scaled up: zeros stay zeros."""
    still = known._range_of(node.args[0]).point == 0.0
    return Interval(low=0.0, high=0.0) if still else ANY


def _full(known: Ranges, node: Node) -> Interval:
    return known._range_of(node.args[1])


def _where(known: Ranges, node: Node) -> Interval:
    left, right = (known._range_of(arg) for arg in node.args[1:3])
    return Interval(low=min(left.low, right.low), high=max(left.high, right.high))


def _cat(known: Ranges, node: Node) -> Interval:
    parts = node.args[0].items if isinstance(node.args[0], ListArg) else ()
    ranges = [known._range_of(part) for part in parts]
    if not ranges:
        return ANY
    return Interval(low=min(r.low for r in ranges), high=max(r.high for r in ranges))


def _contraction(known: Ranges, node: Node) -> Interval:
    """A product with nothing but zeros is zero; the added term, if any, is looked at apart."""
    name = base(node.op)
    factors = node.args[1:3] if name in ("addmm", "baddbmm") else node.args[:2]
    added = node.args[0] if name in ("addmm", "baddbmm") else None
    if name == "convolution" and len(node.args) > 2 and isinstance(node.args[2], Ref):
        added = node.args[2]
    if all(known._range_of(factor).point != 0.0 for factor in factors):
        return ANY
    return known._range_of(added) if added is not None else Interval(low=0.0, high=0.0)


_BETWEEN = {"tanh": math.tanh, "erf": math.erf, "exp": math.exp, "sigmoid": _sigmoid, "log": _log}

_RULES: dict[str, Callable[[Ranges, Node], Interval]] = {
    **{name: _rising(function) for name, function in _BETWEEN.items()},
    **dict.fromkeys((*_REGROUPS, *_SELECTS, *_KEEPS_EXTREMES), _keeps),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "convolution"), _contraction),
    "relu": _rising(lambda value: max(0.0, value)),
    "expm1": _rising(math.expm1),
    "clamp": _clamp,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "abs": _abs,
    "neg": _negate,
    "maximum": _extreme(max),
    "minimum": _extreme(min),
    "sum": _sum,
    "var": _variance,
    "getitem": _getitem,
    "native_dropout": _dropout,
    "full": _full,
    "where": _where,
    "cat": _cat,
}
