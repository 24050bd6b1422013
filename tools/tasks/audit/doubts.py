"""Badges that the traced graph alone earns: constant, void, unused, idle operators, randomness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kernelwright.tools.tasks.audit.ranges import Ranges
from kernelwright.tools.tasks.audit.unreached import Ran
from kernelwright.tools.types import Graph, Node
from kernelwright.tools.types.audit import Badge, Doubt
from kernelwright.tools.types.operators import base, refs, words

_SOURCES = ("input", "weight", "constant")
_VIEWS = words("view permute transpose expand unsqueeze squeeze slice select alias _unsafe_view")
# What a person may have called, by how the graph spells it.
_SPELT = {
    "amax": words("amax max logsumexp _softmax _log_softmax"),
    "amin": words("amin min"),
    "sum": words("sum mean logsumexp _softmax _log_softmax"),
    "prod": words("prod"),
    "relu": words("relu relu_"),
    "clamp": words("clamp clamp_ clamp_min clamp_max clamp_min_ clamp_max_ hardtanh hardtanh_"),
    "maximum": words("maximum max"),
    "minimum": words("minimum min"),
}
_MAY_CANCEL = words("sub mul")


def graph_badges(
    graph: Graph, ran: Ran | None = None, random: Sequence[str] = ()
) -> tuple[Badge, ...]:
    """What is certain without running anything.

    Args:
        graph: the traced forward.
        ran: what the forward ran on fake tensors, where that could be watched.
        random: operators that draw random numbers.
    """
    ranges = Ranges(graph)
    found = [*_constant(graph, ranges), *_void(graph, ranges), *_unused(graph)]
    found += [*_idle(graph, ranges, ran or Ran()), *_side_effects(graph, random)]
    return tuple(found)


def _constant(graph: Graph, ranges: Ranges) -> Iterator[Badge]:
    points = [ranges.of(name).range.point for name in graph.outputs]
    told = [(i, point) for i, point in enumerate(points) if point is not None]
    for number, point in told:
        name = "the output" if len(points) == 1 else f"output {number}"
        size = graph.node(graph.outputs[number]).out[0].numel
        reason = f"every one of the {size} elements of {name} is {point:g}, whatever the inputs are"
        yield Badge(name=Doubt.CONSTANT, reason=f"{reason}; {_why(graph, ranges, number)}")


def _why(graph: Graph, ranges: Ranges, output: int) -> str:
    """The first operator on the way to the output whose value is settled."""
    needed = _ancestors(graph, graph.outputs[output])
    computed = _reached_by_inputs(graph)
    for node in graph.nodes:
        point = ranges.of(node.name).range.point
        if node.name in needed & computed and point is not None:
            return f"its {base(node.op)} ({node.name}) can only be {point:g}"
    return "nothing on the way to it reads an input"


def _void(graph: Graph, ranges: Ranges) -> Iterator[Badge]:
    """Nothing to compute: every output is an input or a weight again, or a view of one."""
    nodes = {node.name: node for node in graph.nodes}
    sources = [_source(name, nodes, ranges) for name in graph.outputs]
    if all(source is not None for source in sources):
        names = ", ".join(dict.fromkeys(_label(source) for source in sources if source))
        yield Badge(
            name=Doubt.VOID, reason=f"there is nothing to compute: the forward returns {names}"
        )


def _source(name: str, nodes: dict[str, Node], ranges: Ranges) -> Node | None:
    node = nodes[ranges.of(name).copies]
    while base(node.op) in _VIEWS:
        node = nodes[ranges.of(refs(node)[0]).copies]
    return node if node.op in _SOURCES else None


def _label(node: Node) -> str:
    return f"{node.op} {node.target or node.name} as it is"


def _unused(graph: Graph) -> Iterator[Badge]:
    used = {name for node in graph.nodes for name in refs(node)} | set(graph.outputs)
    for name in graph.inputs:
        if name not in used:
            yield Badge(name=Doubt.INSENSITIVE, reason=f"the forward does not use {name}")


def _idle(graph: Graph, ranges: Ranges, ran: Ran) -> Iterator[Badge]:
    said = list(_idle_words(graph, ranges, ran))
    if ran.dead:
        counted = Counter(ran.dead)
        names = ", ".join(f"{n} ({k} times)" if k > 1 else n for n, k in counted.items())
        said.append(f"reaching no result: {names}")
    if said:
        yield Badge(name=Doubt.DEAD_OPERATORS, reason="; ".join(said))


def _idle_words(graph: Graph, ranges: Ranges, ran: Ran) -> Iterator[str]:
    reached = _reached_by_inputs(graph)
    own = _own_spellings(graph, ran)
    idle = [
        node.name
        for node in graph.nodes
        if base(node.op) in own and ranges.of(node.name).copies != node.name
    ]
    if idle:
        yield f"changing nothing: {', '.join(idle)}"
    cancelled = [
        f"{node.name} (always {ranges.of(node.name).range.point:g})"
        for node in graph.nodes
        if base(node.op) in _MAY_CANCEL
        and node.name in reached
        and ranges.of(node.name).range.point is not None
        and all(ranges.of(name).range.point is None for name in refs(node))
    ]
    if cancelled:
        yield f"cancelling out: {', '.join(cancelled)}"


def _own_spellings(graph: Graph, ran: Ran) -> set[str]:
    """Operators of the graph that the forward itself called.

    Where the graph has more of them than were called, some belong to the spelling of another
    operator (a clamp inside hardswish), which nobody could leave out.
    """
    there = Counter(base(node.op) for node in graph.nodes)
    called = {name: sum(ran.names.count(own) for own in calls) for name, calls in _SPELT.items()}
    return {name for name, count in called.items() if 0 < there[name] <= count}


def _side_effects(graph: Graph, random: Sequence[str]) -> Iterator[Badge]:
    if graph.mutations:
        names = ", ".join(mutation.target for mutation in graph.mutations)
        yield Badge(name=Doubt.UPDATES_BUFFERS, reason=f"the forward updates {names}")
    if random:
        names = ", ".join(random)
        yield Badge(name=Doubt.DRAWS_RANDOM, reason=f"the forward draws random numbers in {names}")


def _reached_by_inputs(graph: Graph) -> set[str]:
    reached = set(graph.inputs)
    for node in graph.nodes:
        if reached.intersection(refs(node)):
            reached.add(node.name)
    return reached


def _ancestors(graph: Graph, name: str) -> set[str]:
    needed = {name}
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(refs(node))
    return needed
