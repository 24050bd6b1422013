"""Attention with a score function of its own: what changes scores, gathered in one loop.

The graph says it in two nodes (`algebra.scored_attention`): a tensor of scores that nobody makes,
and attention, of what pointwise functions made of that tensor. Here those functions are inlined
into one loop, and what is only computed from positions with them, so that it is stored nowhere: a
causal mask, the distances of ALiBi. What reads memory more than once for a score, or is heavy and
changes with every one, is made before and read.

Where a score is read at another place than its own, or the functions are no one loop, the call is
left as it is, and no language has that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.ir.scores import ATTENTION, SCORES, ScoreFunction
from kernelwright.tools.codegen.lower.fusion.inline import digits, inlined
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Expr
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write, loop_of, where_of
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.library import cost
from kernelwright.tools.types import DType, Node, TensorSpec

# Values of one score: beyond that registers spill.
_MOST_VALUES = 120
_HEAVY_WORDS = """
    exp expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc
    lgamma pow atan2 fmod remainder tanh
"""
_HEAVY = frozenset(_HEAVY_WORDS.split())


def _scores(context: Context, node: Node, arguments: Arguments) -> None:
    view = context.buffer(node.name, node.out[0])
    context.unmade.add(view.buffer)
    context.values[node.name] = (view,)


def _attention(context: Context, node: Node, arguments: Arguments) -> None:
    query, key, value, made = (context.value(arguments.tensor(at)) for at in range(4))
    query, key, value = (context.in_plan(one) for one in (query, key, value))
    nest = _Chain(context).nest(node, made)
    loop = loop_of(context.pool, nest, f"{node.name}_scores")
    score = _score_of(context, nest)
    function = ScoreFunction(
        loop=loop,
        product=where_of(score).buffer,
        sides=(made.shape[-2], made.shape[-1]),
        is_softmax=arguments.flag(4),
    )
    result = context.buffer(node.name, node.out[0])
    uses = [query.buffer, key.buffer, value.buffer, *(one.buffer for one in function.reads)]
    moved, _ = cost(context, uses, node)
    context.values[node.name] = (result,)
    context.add(line=PlanLine(
        text=f"{result.buffer} = attention({query.text}, {key.text}, {value.text})",
        makes=(result.buffer,), uses=tuple(dict.fromkeys(uses)), operator=ATTENTION,
        cost_bytes=moved, cost_flops=2 * prod(made.shape) * (query.shape[-1] + value.shape[-1]),
        scores=function,
    ))  # fmt: skip


def _score_of(context: Context, nest: Nest) -> Expr:
    """The read of the score; refuses any other place than that of what is made of it."""
    scores = [one for one in nest.loads if where_of(one).buffer in context.unmade]
    if len(scores) != 1 or where_of(scores[0]).terms != nest.writes[0].address.terms:
        raise UnlikeError("scores are read at other places than their own")
    return scores[0]


class _Chain:
    """Inlines what changes scores, of one translation."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._made: dict[str, Nest | None] = {}
        for step in context.steps:
            for buffer in step.targets:
                # A tensor written in parts has no one producer.
                self._made[buffer] = None if buffer in self._made else step.nest
        self._complete: dict[str, Nest] = {}

    def nest(self, node: Node, made: View) -> Nest:
        """One nest over all scores that stores what is made of them."""
        context = self._context
        space = context.space([made], made.shape)
        spec = TensorSpec(shape=made.shape, dtype=DType.FLOAT32)
        weights = context.buffer(f"{node.name}_weights", spec)
        value = context.load(space.addresses[0], DType.FLOAT32)
        nest = self._inlined(Nest(space.names(), (), (Write(space.at(weights), value),)))
        if len(nest.exprs) > _MOST_VALUES:
            raise UnlikeError("too much is done to a score")
        return nest

    def _inlined(self, nest: Nest) -> Nest:
        refused: set[Expr] = set()
        while True:
            load = next(
                (one for one in nest.loads if one not in refused and self._producer(one)), None
            )
            if load is None:
                return nest
            producer = self._producer(load)
            new = inlined(self._context.ops, nest, load, producer) if producer else None
            if new is None or len(new.exprs) > _MOST_VALUES:
                refused.add(load)
            else:
                nest = new

    def _producer(self, load: Expr) -> Nest | None:
        """What makes a tensor, completed, if it should be computed where it is read."""
        name = where_of(load).buffer
        found = self._made.get(name)
        if found is None or found.inner or len(found.writes) != 1 or name in self._context.stored:
            return None
        if digits(found.writes[0].address) is None:
            return None
        if name not in self._complete:
            self._complete[name] = self._inlined(found)
        complete = self._complete[name]
        return complete if self._is_of_scores(complete) or self._is_cheap(complete) else None

    def _is_of_scores(self, nest: Nest) -> bool:
        return bool(nest.reads & self._context.unmade)

    def _is_cheap(self, nest: Nest) -> bool:
        """Whether computing it again for every score is no dearer than reading it.

        What changes along one axis alone is computed once for many scores.
        """
        varies = nest.dependences()
        wide = [one for one in nest.exprs if len(varies[one]) > 1]
        reads = sum(one.op == "load" for one in wide)
        return reads <= 1 and not any(one.op in _HEAVY for one in wide)


SCORED: Mapping[str, Callable[[Context, Node, Arguments], None]] = {
    SCORES: _scores,
    ATTENTION: _attention,
}
