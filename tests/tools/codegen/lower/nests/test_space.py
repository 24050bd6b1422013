"""Common axes of several views, and what has none."""

import torch

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.types import TensorSpec

from ...quick_tracing import graph_of


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Regrouped(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.view(3, 4, 5).transpose(0, 1).reshape(12, 5)
        return x + y.view(4, 3, 5).transpose(0, 1).reshape(12, 5)


def test_an_operator_whose_tensors_do_not_broadcast_is_left_to_the_library() -> None:
    graph = graph_of(Sum(), (torch.ones(2, 4, 3), torch.ones(2, 4, 3)))
    nodes = tuple(
        node.model_copy(update={"out": (TensorSpec(shape=(2, 8, 3), dtype=node.out[0].dtype),)})
        if node.name == graph.inputs[0]
        else node
        for node in graph.nodes
    )
    program = lower(graph.model_copy(update={"nodes": nodes}), graph.inputs)
    assert not program.loops
    assert any(isinstance(step, PlanLine) for step in program.steps)


def test_views_without_common_axes_are_copied() -> None:
    graph = graph_of(Regrouped(), (torch.ones(12, 5), torch.ones(12, 5)))
    program = lower(graph, graph.inputs)
    assert program.loops
    assert not [step for step in program.steps if isinstance(step, PlanLine)]
