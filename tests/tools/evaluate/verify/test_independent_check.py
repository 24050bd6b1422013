"""The float64 check of `benchmarks/judge`, which the judge is held against, must itself tell."""

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).parents[4] / "benchmarks" / "judge"


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


check, modules = _script("float64_check"), _script("random_modules")
Change = Callable[[Tensor, Tensor], Tensor]


class Product(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y


def _refused(change: Change, dtype: torch.dtype = torch.float32) -> dict[str, str]:
    """By draw, what is said of a product that is computed as `change` has it."""
    inputs = [torch.randn(40, 300, dtype=dtype), torch.randn(300, 50, dtype=dtype)]

    def call(given: Sequence[Tensor], weights: Mapping[str, Tensor]) -> list[Tensor]:
        return [change(*given)]

    found = check.Float64Check(Product(), inputs, "cpu", 1).findings(call)
    return {one.draw: one.refused for one in found if not one.skipped}


def _one_small_row_off(x: Tensor, y: Tensor) -> Tensor:
    """The row of the smallest results is a thousandth too large."""
    answer = x @ y
    row = int(answer.abs().sum(1).argmin())
    answer[row] *= 1.001
    return answer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_same_product_in_another_order_is_right(dtype: torch.dtype) -> None:
    said = _refused(lambda x, y: (x.float().flip(1) @ y.float().flip(0)).to(dtype), dtype)
    assert len(said) >= 6
    assert not any(said.values())


def test_rows_are_measured_by_their_own_size() -> None:
    assert all(_refused(_one_small_row_off).values())


def test_factors_of_eleven_bits_are_refused() -> None:
    said = _refused(lambda x, y: check._to_tf32(x) @ check._to_tf32(y))
    assert all(said.values())


def test_an_answer_that_is_not_finite_is_refused_where_pytorch_is_finite() -> None:
    assert "not finite" in _refused(lambda x, y: (x @ y).fill_(float("inf")))["normal"]


def test_a_number_draws_the_same_module_in_every_process() -> None:
    drawn = [modules.module(7, number) for number in range(40)]
    assert drawn == [modules.module(7, number) for number in range(40)]
    assert len({one.family for one in drawn}) > 8
