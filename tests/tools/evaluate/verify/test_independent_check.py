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


LAYOUTS = {
    "every other": torch.zeros(3, 8)[:, ::2],
    "beside others": torch.zeros(3, 8)[:, :5],
    "turned and beside others": torch.zeros(2, 5, 9)[..., :4].transpose(1, 2),
    "repeated": torch.zeros(3, 1).expand(3, 4),
    "overlapping": torch.zeros(10).unfold(0, 4, 2),
    "a single number": torch.zeros(()),
    "nothing": torch.zeros(3, 0, 2)[:, :, :1],
    "fp16": torch.zeros(4, 6, dtype=torch.float16)[::2, 1:],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_stride_is_kept(name: str) -> None:
    like = LAYOUTS[name]
    values = torch.randn(like.shape, dtype=torch.float64)
    made = check.laid_out(values, like)
    assert (made.shape, made.stride(), made.dtype) == (like.shape, like.stride(), like.dtype)
    if name == "repeated":
        values = values[:, :1].expand(3, 4)
    if name != "overlapping":
        assert bool((made == values.to(like.dtype)).all())
    assert not made.isnan().any()


def test_a_callable_sees_the_strides_of_the_example() -> None:
    seen = set()

    def call(given: Sequence[Tensor], weights: Mapping[str, Tensor]) -> list[Tensor]:
        seen.add(given[0].stride())
        return [given[0] @ given[1]]

    inputs = [torch.randn(40, 70)[:, ::2], torch.randn(35, 50)]
    found = list(check.Float64Check(Product(), inputs, "cpu", 1).findings(call))
    assert seen == {(70, 2)}
    assert not any(one.refused for one in found)


def test_draws_do_not_depend_on_earlier_ones() -> None:
    layer = nn.Linear(20, 30)
    weights: list[Tensor] = []

    def call(given: Sequence[Tensor], named: Mapping[str, Tensor]) -> list[Tensor]:
        weights.append(named["weight"].clone())
        return [layer(*given)]

    one = check.Float64Check(layer, [torch.randn(8, 20)], "cpu", 1)
    for draws in (["normal"], check.SPREAD, ["normal"]):
        list(one.findings(call, draws))
    assert torch.equal(weights[0], weights[-check.REPEATS_OF_FEW])


def test_opposites_cancel_in_sums_over_axes_of_one_length_and_are_no_neighbours() -> None:
    source = torch.Generator().manual_seed(1)
    x, y = (check._cancelling(shape, source) for shape in ((5, 300), (7, 300)))
    assert bool((x.sum(1).abs() < 0.05 * x.abs().sum(1)).all())
    assert bool(((x.abs() @ y.t()).abs() < 0.05 * (x.abs() @ y.t().abs())).all())
    neighbours = (x[:, 1:] + x[:, :-1]).abs() < 0.05 * x[:, 1:].abs()
    assert neighbours.float().mean() < 0.1


def test_one_lucky_sum_before_an_exp_refuses_no_other_order() -> None:
    class Steep(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.exp(4.0 * (x @ y))

    def call(given: Sequence[Tensor], weights: Mapping[str, Tensor]) -> list[Tensor]:
        x, y = given
        return [torch.exp(4.0 * (x.flip(1) @ y.flip(0)))]

    inputs = [torch.randn(4, 12), torch.randn(12, 5)]
    for seed in range(10):
        found = check.Float64Check(Steep(), inputs, "cpu", seed).findings(call, ["normal"])
        assert not any(one.refused for one in found)


def _overflowing(places: int, own_places: int) -> tuple[str, int]:
    """What is said where so many results are infinite, and so many of PyTorch's own besides."""
    own = torch.ones(100, 100)
    own.view(-1)[:own_places] = float("inf")
    got = own.clone()
    got.view(-1)[own_places : own_places + places] = float("inf")
    total = check._Totals(torch.float32)
    refused = total.add(got, own, own.double())
    return refused, total.at_edge


def test_few_places_at_the_edge_of_overflow_are_counted_and_not_refused() -> None:
    assert _overflowing(3, 1) == ("", 3)
    assert _overflowing(20, 2000) == ("", 20)


def test_more_than_a_hundredth_of_what_overflows_is_refused() -> None:
    assert "not finite in 4 places" in _overflowing(4, 1)[0]
    assert "not finite in 21 places" in _overflowing(21, 2000)[0]
    assert "not finite in 1 places" in _overflowing(1, 0)[0]


def test_a_number_draws_the_same_module_in_every_process() -> None:
    drawn = [modules.module(7, number) for number in range(40)]
    assert drawn == [modules.module(7, number) for number in range(40)]
    assert len({one.family for one in drawn}) > 8
