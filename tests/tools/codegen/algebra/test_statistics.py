"""What is wanted of a tensor's parts and of the whole is taken in one pass over it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from kernelwright.tools.codegen.algebra import rewritten
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.types import Graph

SHAPE = (3, 4, 5, 6)
SIZE = 3 * 4 * 5 * 6


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def reading_reductions(graph: Graph) -> int:
    """How many loops that reduce read the whole tensor."""
    loops = [loop for loop in lower(graph).loops if loop.inner]
    return sum(loop.rows * loop.columns == SIZE for loop in loops)


def less_its_mean(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean((2, 3), keepdim=True)


Task = Callable[..., Any]
TAILS: dict[str, tuple[Task, nn.Module | None]] = {
    "batch norm, then its mean over space": (lambda n, x: n(x).mean((2, 3)), nn.BatchNorm2d(4)),
    "group norm, then its sum over space": (lambda n, x: n(x).sum((2, 3)), nn.GroupNorm(2, 4)),
    "group norm, less its mean over space": (
        lambda n, x: less_its_mean(n(x)),
        nn.GroupNorm(2, 4),
    ),
    "the mean first, the norm after": (
        lambda n, x: x.mean((2, 3), keepdim=True).sigmoid() * n(x),
        nn.BatchNorm2d(4),
    ),
    "two norms of one tensor": (
        lambda x: functional.instance_norm(x) + functional.layer_norm(x, SHAPE[1:]),
        None,
    ),
    "variances of two sizes": (
        lambda x: x.var((2, 3)) + x.var((1, 2, 3), keepdim=True)[..., 0, 0],
        None,
    ),
    "a single degree of freedom": (
        lambda x: x.var((0, 2, 3), correction=89) + x.var((2, 3), correction=29),
        None,
    ),
    "sums of two sizes": (lambda x: x.sum((2, 3)) / x.sum((0, 2, 3)), None),
    "a sum and the whole": (lambda x: x.sum((1, 2)) - x.sum(), None),
}


@pytest.mark.parametrize("name", TAILS)
def test_both_statistics_come_of_one_pass(name: str, traced: Callable[..., Any]) -> None:
    function, norm = TAILS[name]
    for parameter in norm.parameters() if norm is not None else ():
        nn.init.normal_(parameter)
    task = traced(lambda *args: function(*args[:-1], args[-1].tanh()), tensor(*SHAPE), part=norm)
    changed, rewrites = rewritten(task.graph)
    assert "statistics_of_parts" in {rewrite.name for rewrite in rewrites}
    task.agrees(changed)
    assert reading_reductions(changed) == 1 < reading_reductions(task.graph)


KEPT: dict[str, Task] = {
    "along other dimensions": lambda x: x.sum((1, 2)) + x.var((2, 3))[:, :1],
    "along the same": lambda x: x.var((2, 3)) + x.sum((2, 3)),
    "of another tensor": lambda x: x.exp().sum((2, 3)) + x.var((1, 2, 3))[:, None],
    "of short parts": lambda x: x.sum(3)[..., 0] + x.var((2, 3)),
    "of another order": lambda x: (
        x.permute(1, 0, 2, 3).reshape(12, 30).sum(1)[0] + x.sum((1, 2, 3))
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_statistics_without_common_parts_stay(name: str, traced: Callable[..., Any]) -> None:
    task = traced(KEPT[name], tensor(*SHAPE))
    assert "statistics_of_parts" not in {rewrite.name for rewrite in rewritten(task.graph)[1]}


@pytest.mark.parametrize("kind", ["far from zero", "one far from all"])
def test_no_digits_are_lost_that_one_statistic_alone_keeps(
    kind: str, recorder: Callable[[], Any], run: Any
) -> None:
    graph = recorder()
    values = tensor(*SHAPE)
    if kind == "far from zero":
        values += 1e4
    else:
        values[0, :, 0, 0] = 1e6
    x = graph.input(values.float())
    fine = graph.call("sum.dim_IntList", x, [2, 3])
    coarse = graph.call("var.correction", x, [0, 2, 3])
    changed, _ = rewritten(graph.graph(fine, coarse))
    mine, held = run(changed, graph.inputs), graph.values[x].double()
    eps = torch.finfo(torch.float32).eps
    off = (mine[fine] - held.sum((2, 3))).abs()
    assert (off <= 4 * eps * held.abs().sum((2, 3))).all()
    off = (mine[coarse] - held.var((0, 2, 3))).abs()
    assert (off <= 4 * eps * held.var((0, 2, 3))).all()
