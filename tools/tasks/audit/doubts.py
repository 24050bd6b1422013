"""Badges that the traced graph alone earns: constant, void, unused, idle operators, randomness.

Operators of a forward that reach neither a result nor a buffer are found by watching one forward on
fake tensors and walking back from what it returned. Memory decides: an operator counts where
something live shares storage with what it wrote, so that views and in-place writes are on the safe
side. What torch would never run (Python that is not reached) is not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.tasks.audit.ranges import Ranges
from kernelwright.tools.types import Graph, Node
from kernelwright.tools.types.graph import base, refs, words
from kernelwright.tools.types.task import Badge, Doubt


@dataclass(frozen=True)
class _Call:
    """One operator that ran: the storages that it read, wrote anew, or wrote in place."""

    name: str
    read: frozenset[int]
    made: frozenset[int]
    written: frozenset[int]

    @property
    def computes(self) -> bool:
        """Whether it is more than a view."""
        return bool((self.made - self.read) | self.written)


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotation
    """Notes every operator while it is active; enter it after the fake mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[_Call] = []
        # A storage that is freed would give its address to another one.
        self._kept: list[torch.UntypedStorage] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator and note it."""
        named = dict(kwargs or {})
        result = func(*args, **named)
        given = self._storages([*args, *named.values()])
        written = [
            value
            for argument, value in zip(func._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        name = func._schema.name.removeprefix("aten::")
        self._calls.append(_Call(name, given, self._storages(result), self._storages(written)))
        return result

    def dead(self, results: object, state: Iterable[torch.Tensor]) -> tuple[str, ...]:
        """Names of the operators that neither `results` nor `state` depend on, in order."""
        live = set(self._storages(results)) | set(self._storages(list(state)))
        dead: list[str] = []
        for call in reversed(self._calls):
            acts = not call.made  # an assertion: what it looks at matters
            if acts or live & (call.made | call.written):
                live |= call.read
            elif call.computes and not call.name.startswith("empty"):  # room, not work
                dead.append(call.name)
        return tuple(reversed(dead))

    @property
    def names(self) -> tuple[str, ...]:
        """The operators that ran, in order."""
        return tuple(call.name for call in self._calls)

    def _storages(self, values: object) -> frozenset[int]:
        tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        self._kept += storages
        return frozenset(storage._cdata for storage in storages)


@dataclass(frozen=True)
class Ran:
    """Operators of one forward as PyTorch has them, and those that no result depends on."""

    names: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()


def watched(forward: Callable[[], object], state: Iterable[torch.Tensor]) -> tuple[object, Ran]:
    """The results of a forward, and what ran in it."""
    with OperatorWatch() as watch:
        results = forward()
    return results, Ran(watch.names, watch.dead(results, state))


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
    graph: Graph,
    ran: Ran | None = None,
    random: Sequence[str] = (),
    unkept: Sequence[str] = (),
) -> tuple[Badge, ...]:
    """What is certain without running anything.

    Args:
        graph: the traced forward.
        ran: what the forward ran on fake tensors, where that could be watched.
        random: operators that draw random numbers.
        unkept: those among them whose order only PyTorch itself keeps.
    """
    ranges = Ranges(graph)
    found = [*_constant(graph, ranges), *_void(graph, ranges), *_unused(graph)]
    found += [*_idle(graph, ranges, ran or Ran()), *_side_effects(graph, random, unkept)]
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


def _side_effects(graph: Graph, random: Sequence[str], unkept: Sequence[str]) -> Iterator[Badge]:
    if graph.mutations:
        names = ", ".join(mutation.target for mutation in graph.mutations)
        yield Badge(name=Doubt.UPDATES_BUFFERS, reason=f"the forward updates {names}")
    if random:
        reason = f"the forward draws random numbers in {', '.join(unkept or random)}"
        if not unkept:
            reason += ": compared with the generator's state fixed"
        yield Badge(name=Doubt.DRAWS_RANDOM, reason=reason)


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
