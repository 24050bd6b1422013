"""Runs a model operator by operator and writes down what each took: where the time goes.

The outline is exported with the operators whole that eager PyTorch runs as one, and carried out on
the real weights and arguments. Every operator is timed by itself, on a GPU by events and with the
device kept busy, so that shares are the device's; of several runs the least counts, which other
programs disturb least. Values are looked at in a run of their own.

Of a model that is traced in parts, the whole runs once, and every part is then run operator by
operator on what it was given there. The parts' graphs stand beside each other in one outline, so
that regions are found, compared and counted across parts; nothing connects two parts but the user's
own code.

Not covered: caches are warm, as they are inside a model, and views count with what they cost.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import fx
from torch.fx.node import Argument

from kernelwright.tools.tasks.graph.aten_graph import trace_outline
from kernelwright.tools.tasks.graph.convert import names_of, simplify, to_graph
from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.tasks.loading.packing import flattened
from kernelwright.tools.tasks.parts import Calls, part_graph, recorded
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types import Graph, Task
from kernelwright.tools.types.outline import NodeSeen, Outline
from kernelwright.tools.types.task import Part

_RUNS, _MOST_S = 5, 8.0

Env = dict[fx.Node, object]
# What carries one operator out is told the node and how to call it, and answers its result.
Around = Callable[[fx.Node, Callable[[], object]], object]


def outline_of(
    reference: Reference, task: Task, arguments: Sequence[object], whole: Collection[str]
) -> Outline:
    """The forward of a reference as an outline, with times and values of a real run.

    Args:
        reference: the module on its device.
        task: what it is.
        arguments: of one call.
        whole: names of the operators to keep whole.

    Raises:
        RefusedError: the forward cannot be exported.
    """
    with flattened(reference.module, task.name) as flat:
        traced, placeholders = trace_outline(reference.module, arguments, whole)
    traced = replace(traced, structure=flat.structure)
    simplify(traced)
    inputs = [spec.name for spec in task.tensor_inputs]
    names = names_of(traced, inputs)
    graph = to_graph(traced, inputs, with_strides=True)
    saved = reference.snapshot()
    try:
        with torch.no_grad():
            given = _given(traced, placeholders, reference, arguments)
            values = looked_at(traced.graph, given, names)
            times = node_times(traced.graph, given, reference.device)
            took_ms = whole_ms(reference, arguments)
    finally:
        reference.restore(saved)
    seen = tuple(
        values.get(name, NodeSeen(name=name)).model_copy(update={"time_ms": times.get(node, 0.0)})
        for node, name in names.items()
        if node.op != "output"
    )
    return Outline(graph=graph, seen=seen, whole_ms=took_ms)


def _given(
    traced: Traced,
    placeholders: Sequence[fx.Node],
    reference: Reference,
    arguments: Sequence[object],
) -> Env:
    """The value of every placeholder: arguments, live weights, baked-in constants."""
    tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
    by_name = dict(zip(traced.inputs, tensors, strict=True))
    weights = reference.weights()
    given: Env = {}
    for node in placeholders:
        if node.name in by_name:
            given[node] = by_name[node.name]
        elif node.name in traced.weights:
            given[node] = weights[traced.weights[node.name]]
        elif node.name in traced.constants:
            given[node] = traced.constants[node.name].to(reference.device)
    return given


def _run(graph: fx.Graph, given: Env, around: Around) -> None:
    """Carry a graph out; what nothing reads any more is freed, as in the forward itself."""
    values = dict(given)
    last = _last_uses(graph)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        values[node] = around(node, partial(_carried_out, node, values))
        for done in last.get(node, ()):
            values.pop(done, None)


def _carried_out(node: fx.Node, values: Env) -> object:
    def value(at: fx.Node) -> Argument:
        return cast("Argument", values[at])

    args = cast("Sequence[object]", fx.map_arg(node.args, value))
    named = cast("Mapping[str, object]", fx.map_arg(dict(node.kwargs), value))
    return cast("Callable[..., object]", node.target)(*args, **named)


def _last_uses(graph: fx.Graph) -> Mapping[fx.Node, list[fx.Node]]:
    last: dict[fx.Node, list[fx.Node]] = {}
    order = {node: place for place, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op == "call_function" and node.users:
            final = max(node.users, key=lambda user: order[user])
            last.setdefault(final, []).append(node)
    return last


def looked_at(graph: fx.Graph, given: Env, names: Mapping[fx.Node, str]) -> dict[str, NodeSeen]:
    """What the values of every tensor look like."""
    seen = {names[node]: _look(names[node], value) for node, value in given.items()}

    def look(node: fx.Node, call: Callable[[], object]) -> object:
        result = call()
        seen[names[node]] = _look(names[node], result)
        return result

    _run(graph, given, look)
    return seen


def _look(name: str, value: object) -> NodeSeen:
    if isinstance(value, (tuple, list)):
        value = value[0] if value else None
    if not isinstance(value, torch.Tensor) or not value.numel() or value.is_complex():
        return NodeSeen(name=name)
    if value.dtype is torch.bool:
        value = value.to(torch.uint8)
    if not value.is_floating_point():
        return NodeSeen(name=name, minimum=float(value.min()), maximum=float(value.max()))
    finite = value[torch.isfinite(value)].double()
    if not finite.numel():
        return NodeSeen(name=name)
    return NodeSeen(
        name=name,
        minimum=float(finite.min()),
        maximum=float(finite.max()),
        mean=float(finite.mean()),
        deviation=float(finite.std(correction=0)),
    )


def node_times(graph: fx.Graph, given: Env, device: str) -> dict[fx.Node, float]:
    """The least time of every operator in milliseconds; the first run warms up."""
    runs: dict[fx.Node, list[float]] = {}
    began = time.perf_counter()
    for number in range(_RUNS + 1):
        took = _device_times(graph, given) if device == "cuda" else _host_times(graph, given)
        for node, spent in took.items() if number else ():
            runs.setdefault(node, []).append(spent)
        if number and time.perf_counter() - began > _MOST_S:
            break
    return {node: min(spent) for node, spent in runs.items()}


def _host_times(graph: fx.Graph, given: Env) -> dict[fx.Node, float]:
    took: dict[fx.Node, float] = {}

    def clock(node: fx.Node, call: Callable[[], object]) -> object:
        start = time.perf_counter_ns()
        result = call()
        took[node] = (time.perf_counter_ns() - start) / 1e6
        return result

    _run(graph, given, clock)
    return _counted(took)


# Cycles for which a GPU is kept busy, so that the host has issued a good part before it begins.
_AHEAD_CYCLES = 20_000_000


def _device_times(graph: fx.Graph, given: Env) -> dict[fx.Node, float]:
    events: dict[fx.Node, tuple[torch.Event, torch.Event]] = {}

    def clock(node: fx.Node, call: Callable[[], object]) -> object:
        start = torch.Event("cuda", enable_timing=True)
        stop = torch.Event("cuda", enable_timing=True)
        start.record()
        result = call()
        stop.record()
        events[node] = start, stop
        return result

    torch.cuda._sleep(_AHEAD_CYCLES)  # type: ignore[no-untyped-call]
    _run(graph, given, clock)
    torch.cuda.synchronize()
    return _counted({node: start.elapsed_time(stop) for node, (start, stop) in events.items()})


def _counted(took: dict[fx.Node, float]) -> dict[fx.Node, float]:
    """Without what only picks one of several results."""
    return {node: spent for node, spent in took.items() if node.target is not operator.getitem}


def whole_ms(reference: Reference, arguments: Sequence[object]) -> float:
    """A whole call by the wall clock, the device idle before and after."""
    took = []
    began = time.perf_counter()
    for number in range(_RUNS + 1):
        start = time.perf_counter()
        reference.forward(arguments)
        if reference.device == "cuda":
            torch.cuda.synchronize()
        took.append((time.perf_counter() - start) * 1e3)
        if number and time.perf_counter() - began > _MOST_S:
            break
    return min(took[1:])


def outline_in_parts(
    reference: Reference, task: Task, arguments: Sequence[object], whole: Collection[str]
) -> Outline:
    """The parts' forwards as an outline, with times and values of a real run.

    Args:
        reference: the module on its device.
        task: with parts.
        arguments: of one call of the whole.
        whole: names of the operators to keep whole.

    Raises:
        RefusedError: a part cannot be exported.
    """
    with recorded(reference.module, keep=True) as calls:
        reference.forward(arguments)
    graphs: list[Graph] = []
    seen: list[NodeSeen] = []
    for number, part in enumerate(task.parts):
        graph, found = _outlined_part(reference, part, f"p{number}_", calls.get(part.path), whole)
        graphs.append(graph)
        seen += found
    return Outline(
        graph=_beside(graphs),
        seen=tuple(seen),
        whole_ms=whole_ms(reference, arguments),
        parts=tuple(graphs),
    )


def _outlined_part(
    reference: Reference, part: Part, prefix: str, calls: Calls | None, whole: Collection[str]
) -> tuple[Graph, list[NodeSeen]]:
    """A part's graph and what its nodes did; empty where this run did not call it."""
    if calls is None or calls.arguments is None:
        return Graph(nodes=(), inputs=(), outputs=()), []
    module = reference.module.get_submodule(part.path)
    with torch.no_grad():
        traced = part_graph(module, calls.arguments, prefix, whole)
        weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        given: dict[fx.Node, object] = traced.given(calls.arguments, weights)
        values = looked_at(traced.graph, given, traced.names)
        times = node_times(traced.graph, given, reference.device)
    seen = [
        values.get(name, NodeSeen(name=name)).model_copy(
            update={"time_ms": part.calls * times.get(node, 0.0)}
        )
        for node, name in traced.names.items()
        if node.op != "output"
    ]
    return traced.under(part.path), seen


def _beside(graphs: Sequence[Graph]) -> Graph:
    return Graph(
        nodes=tuple(node for graph in graphs for node in graph.nodes),
        inputs=tuple(name for graph in graphs for name in graph.inputs),
        outputs=tuple(name for graph in graphs for name in graph.outputs),
        output_structure="tuple",
        is_tf32=all(graph.is_tf32 for graph in graphs),
    )
