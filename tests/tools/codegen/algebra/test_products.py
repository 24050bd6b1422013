"""Diagonal products, pools, folded scales and regrouped products are the same in real numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.tools.codegen.algebra import rewritten

Trace = Callable[..., Any]


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def eye(a: torch.Tensor) -> torch.Tensor:
    return torch.eye(4, dtype=a.dtype) * a


DIAGONAL = {
    "rows": (lambda a, b: torch.diag(a) @ b, (4,), (4, 5)),
    "columns": (lambda a, b: b @ torch.diag(a), (4,), (3, 4)),
    "of square operands": (lambda a, b: torch.diag(a) @ b, (4,), (4, 4)),
    "a batch": (lambda a, b: b @ torch.diag_embed(a), (2, 4), (2, 3, 4)),
    "the diagonal of a matrix": (lambda a, b: torch.diag(torch.diag(a)) @ b, (4, 4), (4, 5)),
    "a matrix times one": (lambda a, b: eye(a) @ b, (4, 4), (4, 5)),
    "a column times one": (lambda a, b: eye(a) @ b, (4, 1), (4, 5)),
}
OTHER = {
    "one off the diagonal": (lambda a, b: torch.diag(a, 1) @ b, (3,), (4, 5)),
    "a triangle": (lambda a, b: torch.tril(a) @ b, (4, 4), (4, 5)),
    "the other diagonal": (lambda a, b: torch.diag(a).flip(0) @ b, (4,), (4, 5)),
    "all but the diagonal": (lambda a, b: (a * (1 - torch.eye(4).double())) @ b, (4, 4), (4, 5)),
}


@pytest.mark.parametrize("name", DIAGONAL)
def test_a_diagonal_product_is_a_scaling(name: str, traced: Trace) -> None:
    function, *shapes = DIAGONAL[name]
    task = traced(function, *(r(*shape) for shape in shapes))
    changed, rewrites = rewritten(task.graph)
    assert [rewrite.name for rewrite in rewrites] == ["diagonal_product"]
    assert not [
        node for node in changed.nodes if node.op in ("aten.mm.default", "aten.bmm.default")
    ]
    task.agrees(changed)


@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_diagonal_is_multiplied(name: str, traced: Trace) -> None:
    function, *shapes = OTHER[name]
    assert rewritten(traced(function, *(r(*shape) for shape in shapes)).graph)[1] == ()


def settled(part: nn.Module) -> nn.Module:
    """With statistics and weights that are not those of the beginning."""
    for tensor in (*part.parameters(), *part.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2.0)
    return part


def call(part: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = part(x)
    return result


def norm_of(part: nn.Module, norm: nn.Module) -> nn.Module:
    return nn.Sequential(part, norm.eval())


FOLDED = {
    "a norm with given statistics": (norm_of(nn.Conv2d(3, 6, 2), nn.BatchNorm2d(6)), call),
    "by groups, without bias": (
        norm_of(nn.Conv2d(3, 6, 2, groups=3, bias=False), nn.BatchNorm2d(6)), call),
    "a number": (nn.Conv2d(3, 6, 2), lambda part, x: 3 - part(x) / 2),
    "without bias": (nn.Conv2d(3, 6, 2, bias=False), lambda part, x: -part(x) * 2),
    "of a linear map": (
        norm_of(nn.Linear(5, 7), nn.BatchNorm1d(7)), lambda part, x: part(x[:, 0, 0])),
    "between linear maps": (nn.Linear(5, 5), lambda part, x: part(part(x[0, 0]) * part.bias)),
    "of one output": (nn.Linear(5, 1), lambda part, x: part.bias - part(x[0, 0])),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_scales_and_shifts_fold_into_the_weight(name: str, traced: Trace) -> None:
    part, function = FOLDED[name]
    task = traced(function, r(4, 3, 4, 5), part=settled(part))
    changed, rewrites = rewritten(task.graph)
    assert [rewrite.name for rewrite in rewrites] == ["fold_into_weights"]
    last = next(node for node in changed.nodes if node.name in changed.outputs)
    made = ("aten.view.default", "aten.addmm.default")
    assert last.op in made, "what is returned is what the library made"
    task.agrees(changed)


KEPT = {
    "statistics of the batch": (nn.Sequential(nn.Conv2d(3, 6, 2), nn.BatchNorm2d(6)), call),
    "an activation follows": (nn.Conv2d(3, 6, 2), lambda part, x: (part(x) * 2).relu()),
    "along space": (nn.Conv2d(3, 6, 2), lambda part, x: part(x) * x[0, 0, 0, :4]),
    "one over it": (nn.Conv2d(3, 6, 2), lambda part, x: 1 / part(x)),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_depends_on_the_outputs_is_not_folded(name: str, traced: Trace) -> None:
    part, function = KEPT[name]
    assert rewritten(traced(function, r(4, 3, 4, 5), part=part).graph)[1] == ()


def pool(stride: int, **more: object) -> Callable[..., torch.Tensor]:
    return lambda part, x: F.avg_pool1d(part(x).unsqueeze(1), 3, stride, **more).squeeze(1).relu()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_pool_over_features_pools_the_weight(stride: int, bias: bool, traced: Trace) -> None:
    task = traced(pool(stride), r(4, 5), part=nn.Linear(5, 12, bias=bias))
    changed, rewrites = rewritten(task.graph)
    assert [rewrite.name for rewrite in rewrites] == ["pool_after_linear_map"]
    task.agrees(changed)


def test_a_padded_pool_stays(traced: Trace) -> None:
    task = traced(pool(3, padding=1), r(4, 5), part=nn.Linear(5, 12))
    assert rewritten(task.graph)[1] == ()


@pytest.mark.parametrize("bias", [True, False])
def test_products_go_the_cheaper_way(bias: bool, traced: Trace) -> None:
    wide = nn.Sequential(nn.Linear(3, 40, bias=bias), nn.Linear(40, 4, bias=bias))
    task = traced(call, r(2, 30, 3), part=wide)
    changed, rewrites = rewritten(task.graph)
    assert [rewrite.name for rewrite in rewrites] == ["regroup_products"]
    task.agrees(changed)
    narrow = nn.Sequential(nn.Linear(30, 2), nn.Linear(2, 40))
    assert rewritten(traced(call, r(5, 30), part=narrow).graph)[1] == ()
