"""A graph that torch.compile traced, as an outline in which regions can be found.

Parameters and buffers, which dynamo makes inputs of its graph, are weights again: that is how the
tasks of the library know them. What cannot be said as one functional graph of tensors is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn

from kernelwright.tools.candidates.plan import ADMITTED
from kernelwright.tools.tasks.graph.aten_graph import trace_outline
from kernelwright.tools.tasks.graph.convert import names_of, simplify, to_graph
from kernelwright.tools.tasks.graph.random_draws import random_operators
from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.tasks.regions.partition import is_view
from kernelwright.tools.types import Graph, refuse
from kernelwright.tools.types.graph import refs


@dataclass(frozen=True)
class Outlined:
    """The graph, its nodes in torch's own, and what stands for each of the compiled inputs.

    `places` has the placeholder of every input, in the order in which the compiled graph is called;
    None for one that nothing reads.
    """

    graph: Graph
    nodes: dict[str, fx.Node]
    traced: Traced
    places: tuple[str | None, ...]


class _Held(nn.Module):
    """A dynamo graph whose weights are a module's own again."""

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[object], held: Sequence[bool]) -> None:
        super().__init__()
        self._gm = [gm]
        self._held = tuple(held)
        for number, (value, is_held) in enumerate(zip(inputs, held, strict=True)):
            if is_held and isinstance(value, nn.Parameter):
                self.register_parameter(f"w{number}", value)
            elif is_held and isinstance(value, torch.Tensor):
                self.register_buffer(f"w{number}", value)

    def forward(self, *given: torch.Tensor) -> object:
        """The graph's results."""
        left = iter(given)
        full = [
            getattr(self, f"w{number}") if is_held else next(left)
            for number, is_held in enumerate(self._held)
        ]
        return self._gm[0](*full)


def outlined(gm: fx.GraphModule, inputs: Sequence[object]) -> Outlined:
    """The outline of a dynamo graph.

    Raises:
        RefusedError: it has other inputs or results than tensors of known shapes, draws random
            numbers, writes to what it is given or hands it out.
    """
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        raise refuse("an input is no tensor")
    placeholders = gm.graph.find_nodes(op="placeholder")
    held = [
        isinstance(value, nn.Parameter) or "_buffers_" in node.name
        for node, value in zip(placeholders, inputs, strict=True)
    ]
    given = [value for value, is_held in zip(inputs, held, strict=True) if not is_held]
    if not given:
        raise refuse("it computes on weights alone")
    # Dynamo's own tracing goes on around this one, and its fake tensors are none of ours.
    with torch._guards.tracing(None), torch.random.fork_rng(devices=[]):
        traced, _ = trace_outline(_Held(gm, inputs, held), given, ADMITTED)
    if random_operators(traced.graph):
        raise refuse("it draws random numbers")
    if traced.mutations or traced.constants:
        raise refuse("it updates a buffer, or holds a tensor of its own")
    simplify(traced)
    names = [f"x{number}" for number in range(len(given))]
    graph = to_graph(traced, names, with_strides=True)
    _refuse_aliases(graph)
    nodes = {name: node for node, name in names_of(traced, names).items()}
    at_weight = {target: node.name for node in graph.nodes if (target := node.target)}
    left = iter(names)
    places = tuple(
        at_weight.get(f"w{number}") if is_held else next(left)
        for number, is_held in enumerate(held)
    )
    return Outlined(graph, nodes, traced, places)


def _refuse_aliases(graph: Graph) -> None:
    """An input that is handed out again, or a view of one, has to stay that very memory."""
    nodes = {node.name: node for node in graph.nodes}
    for name in graph.outputs:
        at = nodes[name]
        while is_view(at):
            at = nodes[refs(at)[0]]
        if at.op in ("input", "weight", "constant"):
            raise refuse("it returns an input, or a view of one")
