"""The outline of a model that is traced in parts: that of each part, side by side.

The whole runs once, and every part is then run operator by operator on what it was given there. The
parts' graphs stand beside each other in one outline, so that regions are found, compared and
counted across parts; nothing connects two parts but the user's own code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import fx

from kernelwright.tools.tasks.outline import looked_at, node_times, whole_ms
from kernelwright.tools.tasks.parts.find import Calls, part_graph, recorded
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types import Graph, Task
from kernelwright.tools.types.outline import NodeSeen, Outline
from kernelwright.tools.types.task import Part


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
        graph, found = _one(reference, part, f"p{number}_", calls.get(part.path), whole)
        graphs.append(graph)
        seen += found
    return Outline(
        graph=_beside(graphs),
        seen=tuple(seen),
        whole_ms=whole_ms(reference, arguments),
        parts=tuple(graphs),
    )


def _one(
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
