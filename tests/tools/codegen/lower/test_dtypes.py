"""PyTorch's types: what is computed in what, and where values wrap or round."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.tools.types import DType

Check = Callable[..., Any]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype: torch.dtype, check: Check) -> None:
    checked = check(
        nn.Sequential(nn.LayerNorm(8), nn.SiLU()).to(dtype), torch.randn(4, 8).to(dtype)
    )
    (loop,) = checked.program.loops
    assert {stmt.dtype for stmt in loop.body} == {DType.FLOAT32}
    assert {store.access.dtype.value for store in loop.stores} == {str(dtype).split(".")[1]}


def test_a_detour_through_half_is_not_taken(check: Check) -> None:
    checked = check(lambda x: (x.half().float() * 2).half(), torch.randn(4, 6).half())
    (loop,) = checked.program.loops
    assert all(stmt.op != "cast" for stmt in loop.body)


def test_float64_stays_float64(check: Check) -> None:
    checked = check(lambda x: torch.softmax(x, -1), torch.randn(4, 6, dtype=torch.float64))
    (loop,) = checked.program.loops
    assert {stmt.dtype for stmt in loop.body} == {DType.FLOAT64}


def test_integers_divide_and_compare_like_pytorch(check: Check) -> None:
    x = torch.randint(-9, 9, (4, 5))
    check(lambda x: (x // 3 + x % 5, x / 2, (x > 2) & (x < 5), x > 1.5, x.clamp(-2, 3), -x), x)


def test_sums_of_small_integers_and_flags_are_int64(check: Check) -> None:
    x = torch.randint(0, 100, (4, 50), dtype=torch.uint8)
    check(lambda x: (x.sum(1), (x > 3).sum(1), (x > 3).float().mean(1), x.amax(1)), x)


def test_int32_wraps_where_pytorch_wraps(check: Check) -> None:
    x = torch.randint(0, 90000, (4, 5), dtype=torch.int32)
    check(lambda x: (x * x * x).to(torch.int64) + 1, x)


def test_flags_become_numbers(check: Check) -> None:
    x = torch.randn(4, 5)
    check(
        lambda x: ((x > 0) * 2.0, (x > 0).float() + 1, (x > 0).any(1), (x > 0).all(), x.bool()), x
    )


def test_a_zero_dimensional_tensor_does_not_promote(check: Check) -> None:
    scale = torch.tensor(2.5, dtype=torch.float64)
    assert check(lambda x, s: x * s, torch.randn(4, 5), scale).results[0].dtype == torch.float32


def test_specials_survive(check: Check) -> None:
    x = torch.tensor([[float("nan"), 1.0, -0.0], [float("inf"), -float("inf"), 2.0]])
    check(lambda x: (torch.relu(x), x.clamp(-1, 1), torch.nan_to_num(x), x.amax(1), x.argmax(1)), x)
