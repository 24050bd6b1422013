"""Windows over normalised rows take the rows' reductions into their own loop, and read once."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.tools.codegen.library.forms.forms import slides
from kernelwright.tools.codegen.lower import Lowering, lower

Check = Callable[..., Any]
Function = Callable[[torch.Tensor], torch.Tensor]
r = torch.randn


def shape(*sizes: int) -> torch.Tensor:
    return r(sizes, generator=torch.Generator().manual_seed(5))


ABSORBED: dict[str, tuple[Function, torch.Tensor]] = {
    "layer norm, average pool": (
        nn.Sequential(nn.LayerNorm(8), nn.AvgPool3d(2), nn.GELU()), shape(2, 3, 4, 6, 8)),
    "layer norm of two dimensions, pooled across them": (
        nn.Sequential(nn.LayerNorm([6, 8]), nn.MaxPool3d((2, 3, 1))), shape(2, 3, 4, 6, 8)),
    "layer norm far from zero": (
        lambda x: F.avg_pool2d(F.layer_norm(x + 300, (12,)), (1, 4)), shape(2, 3, 5, 12)),
    "softmax over channels, two pools": (
        nn.Sequential(nn.Softmax(1), nn.MaxPool2d(2), nn.MaxPool2d(2)), shape(2, 5, 13, 11)),
    "softmax along what is pooled": (
        lambda x: F.max_pool1d(x.softmax(2), 3), shape(3, 4, 15)),
    "log-softmax, rows left over": (
        lambda x: F.avg_pool2d(x.log_softmax(3), (3, 1)), shape(2, 3, 8, 10)),
    "root mean square, a step beyond the window": (
        lambda x: F.max_pool2d(x * x.square().mean(3, keepdim=True).rsqrt(), (2, 1), (3, 1)),
        shape(2, 3, 9, 16)),
    "the largest of a row": (
        lambda x: F.avg_pool2d(x / x.abs().amax(2, keepdim=True), (1, 2)), shape(2, 3, 7, 12)),
    "halves": (
        lambda x: F.avg_pool2d(x.float().softmax(3), 2).half(), shape(2, 3, 6, 8).half()),
    "a transposed tensor": (
        lambda x: F.max_pool2d(x.transpose(1, 3).softmax(1), 2), shape(2, 6, 8, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", ABSORBED)
def test_rows_under_a_window_are_reduced_where_they_are_read(
    name: str, check: Check, interpret: Any
) -> None:
    function, x = ABSORBED[name]
    checked = check(function, x)
    assert slides(checked.program)
    program = lower(checked.graph, lowering=Lowering(one_pass=True))
    parameters = function.named_parameters() if isinstance(function, nn.Module) else ()
    weights = {key: value.detach() for key, value in parameters}
    (mine,), _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=5e-5)
    (loop,) = program.loops
    assert loop.inner, "the rows' axis is reduced in the window's loop"


KEPT: dict[str, tuple[Function, torch.Tensor]] = {
    "windows that overlap": (lambda x: F.max_pool2d(x.softmax(1), 3, 1), shape(2, 4, 7, 9)),
    "a row that windows do not cover": (lambda x: F.avg_pool1d(x.softmax(2), 2), shape(2, 3, 9)),
    "a running sum": (lambda x: F.max_pool1d(x.cumsum(2), 2), shape(2, 3, 8)),
    "a position": (lambda x: F.max_pool1d(x - x.argmax(2, keepdim=True), 2), shape(2, 3, 8)),
}


@pytest.mark.parametrize("name", KEPT)
def test_rows_that_several_windows_need_are_reduced_once(name: str, check: Check) -> None:
    function, x = KEPT[name]
    program = lower(check(function, x).graph, lowering=Lowering(one_pass=True))
    assert len(program.loops) > 1
    assert any(not loop.inner for loop in program.loops)
