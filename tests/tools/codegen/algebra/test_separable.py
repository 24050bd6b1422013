"""Windows whose weight a module makes of factors slide along one side after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kernelwright.tools.codegen.algebra import rewritten
from kernelwright.tools.types import Graph

NAME = "separable_window"


def r(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def outer(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    weight = (a[:, None] * b[None, :]).expand(3, 1, len(a), len(b)).contiguous()
    return F.conv2d(x, weight, padding=(len(a) // 2, len(b) // 2), groups=3)


def product(x: torch.Tensor, a: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    window = a.unsqueeze(1).mm(a.unsqueeze(1).t()).unsqueeze(0).unsqueeze(0)
    weight = window.repeat(3, 1, 1, 1)
    return F.conv2d(x, weight, bias, stride=(2, 3), dilation=(1, 2), groups=3)


def by_channel(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, a.view(3, 1, -1, 1) * b.view(1, 1, 1, -1), padding=(4, 4), groups=3)


def summed(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, (a[:, None] + b[None, :]).expand(3, 1, -1, -1), groups=3)


def masked(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A factor that varies along both sides."""
    return F.conv2d(x, (a * b[None, :]).expand(3, 1, -1, -1), groups=3)


def kernels(graph: Graph) -> list[tuple[int, ...]]:
    """The windows of its convolutions, in order."""
    shapes = {node.name: node.out[0].shape for node in graph.nodes}
    found = (node for node in graph.nodes if node.op == "aten.convolution.default")
    return [shapes[node.args[1].node][2:] for node in found]  # type: ignore[union-attr]


WINDOWS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], Any]] = {
    "an outer product": (outer, (r(2, 3, 17, 19), r(9), r(11)), [(1, 11), (9, 1)]),
    "a matrix product": (product, (r(2, 3, 25, 31), r(9), r(3)), [(1, 9), (9, 1)]),
    "a column for each channel": (
        by_channel,
        (r(2, 3, 17, 19), r(3, 9), r(9)),
        [(1, 9), (9, 1)],
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_of_factors_is_two_passes(name: str, traced: Callable[..., Any]) -> None:
    function, inputs, sides = WINDOWS[name]
    one = traced(function, *inputs)
    changed, used = rewritten(one.graph)
    assert NAME in {rewrite.name for rewrite in used}
    assert kernels(changed) == sides
    one.agrees(changed)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (summed, (r(2, 3, 17, 19), r(9), r(9))),
        (masked, (r(2, 3, 17, 19), r(9, 9), r(9))),
        (outer, (r(2, 3, 17, 19), r(5), r(5))),  # two passes would take longer
        (lambda x, w: F.conv2d(x, w, groups=3), (r(2, 3, 17, 19), r(3, 1, 9, 9))),
    ],
)
def test_other_windows_stay_whole(
    function: Callable[..., torch.Tensor], inputs: Any, traced: Callable[..., Any]
) -> None:
    _, used = rewritten(traced(function, *inputs).graph)
    assert NAME not in {rewrite.name for rewrite in used}
