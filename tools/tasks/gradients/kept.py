"""Splits a training step's graph: what the forward keeps, and what the backward computes again.

Where computing a value again would take a product, convolution or attention, it is kept, as
autograd keeps it; then a step has a forward of its own that returns what it keeps beside its
results. Pointwise operators and views of what is kept are computed again, as they cost the backward
less to compute than to read: a value is kept itself only where what it is made of is larger.
A forward without such operators keeps nothing: its backward reads the arguments once more.
Not covered: the least memory over the whole step, which a cut through the graph would find.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import fx
from torch._ops import OpOverload

from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.tasks.regions.partition import CONTRACTIONS
from kernelwright.tools.types.graph import words

# Computed again for nothing, though PyTorch's tags do not say so.
_CHEAP = words(
    "_to_copy _unsafe_view clone getitem masked_fill new_full new_ones new_zeros full_like "
    "ones_like zeros_like where"
)


@dataclass(frozen=True)
class Step:
    """A forward and its backward as one graph.

    Attributes:
        traced: the graph; its outputs are the results, then the updates, then the gradients.
        results: what the forward returns.
        updates: what it writes into buffers.
        gradients: what the backward returns.
        upstream: the placeholders of the results' gradients.
    """

    traced: Traced
    results: tuple[fx.Node, ...]
    updates: tuple[fx.Node, ...]
    gradients: tuple[fx.Node, ...]
    upstream: tuple[fx.Node, ...]

    @property
    def nodes(self) -> list[fx.Node]:
        """Its operators, in order."""
        return [node for node in self.traced.graph.nodes if node.op == "call_function"]


@dataclass(frozen=True)
class Split:
    """Which operators each direction carries out, in order.

    Attributes:
        forward: they make results, updates and what is kept; none where nothing is kept.
        kept: what the backward is given beside arguments, results and their gradients.
        backward: they make the gradients.
    """

    forward: tuple[fx.Node, ...]
    kept: tuple[fx.Node, ...]
    backward: tuple[fx.Node, ...]


def split(step: Step, *, may_keep: bool) -> Split:
    """Where to cut a step; `may_keep` is whether its forward could return more than results."""
    nodes = step.nodes
    needed = _before(step.gradients, step.results)
    after = _behind(nodes, step.upstream)
    again = [node for node in needed if node not in after]
    ends = (*step.results, *step.updates)
    made = all(node.op != "placeholder" for node in ends)
    distinct = len(set(ends)) == len(ends)
    costly = any(_name(node) in CONTRACTIONS for node in again)
    if not (may_keep and made and distinct and costly):
        return Split((), (), _in_order(nodes, needed))
    crossing = {
        read
        for node in needed
        if node in after
        for read in node.all_input_nodes
        if read in needed and read not in after
    }
    sources = _sources(nodes, step.results, after)
    kept = _in_order(nodes, {source for node in crossing for source in sources[node]})
    return Split(
        forward=_in_order(nodes, _before((*ends, *kept), ())),
        kept=kept,
        backward=_in_order(nodes, _before(step.gradients, (*step.results, *kept))),
    )


def make_empty_anew(graph: fx.Graph) -> None:
    """Tensors without elements, as a batch norm saves in evaluation mode, need not be kept."""
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and not value.numel():
            with graph.inserting_after(node):
                made = graph.call_function(
                    torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype}
                )
            made.meta["val"] = value
            node.replace_all_uses_with(made)


def _sources(
    nodes: Sequence[fx.Node], results: Collection[fx.Node], after: Collection[fx.Node]
) -> dict[fx.Node, frozenset[fx.Node]]:
    """What each of the forward's nodes is to be computed from again; itself where it is kept."""
    found: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in nodes:
        if node in after:
            continue
        itself = frozenset((node,))
        below = frozenset[fx.Node]().union(*(found.get(at, ()) for at in node.all_input_nodes))
        if node in results:
            found[node] = frozenset()
        elif not _is_cheap(node) or (_is_tensor(node) and _bytes(below) > _bytes(itself)):
            found[node] = itself
        else:
            found[node] = below
    return found


def _is_cheap(node: fx.Node) -> bool:
    name, target = _name(node), node.target
    if name == "getitem":  # of several results each is kept by itself
        return all(_is_cheap(at) for at in node.all_input_nodes)
    if name in _CHEAP or not node.all_input_nodes:
        return True
    return isinstance(target, OpOverload) and (target.is_view or torch.Tag.pointwise in target.tags)


def _is_tensor(node: fx.Node) -> bool:
    """Whether it has one result; of several, each is looked at by itself."""
    return isinstance(node.meta["val"], torch.Tensor)


def _bytes(nodes: Iterable[fx.Node]) -> int:
    values = (node.meta["val"] for node in nodes)
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))


def _name(node: fx.Node) -> str:
    if isinstance(node.target, OpOverload):
        return str(node.target).split(".")[1]
    return str(getattr(node.target, "__name__", node.target))


def _behind(nodes: Iterable[fx.Node], starts: Iterable[fx.Node]) -> set[fx.Node]:
    """What is computed from these."""
    found = set(starts)
    for node in nodes:
        if any(read in found for read in node.all_input_nodes):
            found.add(node)
    return found


def _before(ends: Iterable[fx.Node], given: Collection[fx.Node]) -> set[fx.Node]:
    """The operators that these are computed with, but for what is given."""
    found: set[fx.Node] = set()
    waiting = [node for node in ends if node not in given]
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node not in found:
            found.add(node)
            waiting.extend(read for read in node.all_input_nodes if read not in given)
    return found


def _in_order(nodes: Iterable[fx.Node], chosen: Collection[fx.Node]) -> tuple[fx.Node, ...]:
    return tuple(node for node in nodes if node in chosen)
