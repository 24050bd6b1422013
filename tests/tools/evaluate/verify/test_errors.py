"""Distance from the truth: relative to PyTorch's own, and blind to nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.evaluate.verify import reasons
from kernelwright.tools.evaluate.verify.errors import (
    allclose,
    apart,
    distance,
    distances,
    finite,
    wrong_elements,
)
from kernelwright.tools.evaluate.verify.reasons import placement, wrong_values

CHUNK = 64


def triple(shape: tuple[int, ...] = (8, 33), dtype: torch.dtype = torch.float32):
    truth = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    own = truth.to(dtype)
    return own.clone(), own, truth


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_same_result_has_the_same_error(dtype: torch.dtype) -> None:
    got, own, truth = triple(dtype=dtype)
    assert distance(got, own, truth, CHUNK).ratio == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_rounding_more_is_allowed_and_a_hundred_are_not(dtype: torch.dtype) -> None:
    _, own, truth = triple(dtype=dtype)
    eps = torch.finfo(dtype).eps
    assert distance((truth * (1 + eps)).to(dtype), own, truth, CHUNK).ratio <= 4
    assert distance((truth * (1 + 100 * eps)).to(dtype), own, truth, CHUNK).ratio > 4


@given(st.integers(0, 8 * 33 - 1))
def test_a_single_wrong_element_is_found_wherever_it_is(where: int) -> None:
    got, own, truth = triple()
    got.view(-1)[where] += 1e-3
    found = distance(got, own, truth, CHUNK)
    assert found.ratio > 100
    assert found.worst_index == (where // 33, where % 33)
    mask = wrong_elements(got, own, truth, found, 4.0, CHUNK)
    assert int(mask.sum()) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_misplaced_nan_or_infinity_is_infinitely_wrong(value: float) -> None:
    got, own, truth = triple()
    got[3, 4] = value
    found = distance(got, own, truth, CHUNK)
    assert found.ratio == float("inf")
    assert found.worst_index == (3, 4)
    assert found.misplaced == 1


def test_infinities_where_pytorch_has_them_are_right() -> None:
    got, own, truth = triple()
    for tensor in (got, own, truth):
        tensor[0, 0], tensor[1, 1] = float("inf"), float("nan")
    assert distance(got, own, truth, CHUNK).ratio == 1.0
    got[0, 0] = float("-inf")
    assert distance(got, own, truth, CHUNK).misplaced == 1


def test_where_pytorch_overflows_a_right_finite_result_is_no_error() -> None:
    got, own, truth = triple()
    own[2, 2] = float("inf")
    assert distance(got, own, truth, CHUNK).misplaced == 0


def test_all_zeros_is_right_only_for_zeros() -> None:
    zero = torch.zeros(5)
    assert distance(zero, zero, zero.double(), CHUNK).ratio == 1.0
    assert distance(zero + 0.1, zero, zero.double(), CHUNK).ratio > 1e5


def test_empty_and_scalar_outputs_have_distances_too() -> None:
    empty = torch.empty(0, 3)
    assert distance(empty, empty, empty.double(), CHUNK).ratio == 1.0
    one = torch.tensor(2.0)
    assert distance(one * 1.01, one, one.double(), CHUNK).worst_index == ()


def test_kernelbenchs_tolerance_is_reported_as_it_is() -> None:
    got, own, _ = triple()
    assert allclose(got + 5e-5, own, 1e-4, CHUNK)
    assert not allclose(got + 5e-4, own, 1e-4, CHUNK)
    assert allclose(got + 5e-4, own, 1e-2, CHUNK)
    assert not allclose(got.where(got < 2, torch.nan), own, 1e-2, CHUNK)
    assert allclose(torch.arange(4), torch.arange(4), 1e-4, CHUNK)


@pytest.mark.parametrize(
    ("got", "own"),
    [(100.0, 101.009), (101.009, 100.0), (float("nan"), float("nan")), (float("inf"),) * 2],
)
def test_kernelbenchs_tolerance_is_torchs_with_the_candidate_second(got, own) -> None:
    ours, theirs = torch.full((4,), got), torch.full((4,), own)
    for tolerance in (1e-4, 1e-2):
        expected = torch.allclose(theirs, ours, atol=tolerance, rtol=tolerance)
        assert allclose(ours, theirs, tolerance, CHUNK) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t * 0, "all zeros"),
        (lambda t: t * -1, "the sign is wrong"),
        (lambda t: t * 3, "3 times too large"),
        (lambda t: t + 2, "too large by 2"),
        (lambda t: t.where(torch.arange(33) < 30, 0.0), "index 1 is 30 to 32 (the last)"),
        (lambda t: t.where(torch.arange(33) % 4 != 1, 0.0), "in steps of 4"),
        (lambda t: t.where(torch.arange(8)[:, None] < 5, 0.0), "the last 99 elements"),
        (lambda t: t.where(torch.arange(8)[:, None] != 3, 9.0), "only where index 0 is 3"),
    ],
)
def test_a_reason_names_the_pattern(change, words: str) -> None:
    _, own, truth = triple()
    got = change(own.clone())
    found = distance(got, own, truth, CHUNK)
    mask = wrong_elements(got, own, truth, found, 4.0, CHUNK)
    said = wrong_values("output 0", got, truth, mask, found, 4.0)
    assert words in said
    assert "got" in said
    assert "expected" in said


def test_of_a_large_tensor_a_part_shows_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "_SEARCHED", 7)
    _, own, truth = triple()
    got = own.clone()
    got.view(-1)[130:] = 0.0
    mask = wrong_elements(got, own, truth, distance(got, own, truth, CHUNK), 4.0, CHUNK)
    assert torch.equal(mask.view(-1), torch.arange(264) >= 130)
    assert "all zeros" in reasons.pattern_of(got, truth, mask)


def test_no_pattern_is_named_where_there_is_none() -> None:
    assert placement(torch.ones(3, 3, dtype=torch.bool)) == ""
    assert placement(torch.tensor(True)) == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_two_results_are_as_far_apart_as_from_a_truth_that_one_of_them_is(
    dtype: torch.dtype,
) -> None:
    _, own, _ = triple(dtype=dtype)
    got = (own.double() * (1 + 3 * torch.finfo(dtype).eps)).to(dtype)
    got[5, 6] += 0.25
    expected = distance(got, own, own.double(), CHUNK).worst
    assert apart(got, own, CHUNK) == pytest.approx(expected, rel=1e-6)
    assert apart(own, own, CHUNK) == 0.0


def test_nothing_hides_among_the_largest_numbers_or_those_that_are_none() -> None:
    huge = torch.full((8, 33), 3e38)
    wrong = huge.clone()
    wrong[2, 3] = 2e38
    assert apart(wrong, huge, CHUNK) > 0.1
    for value in (float("nan"), float("inf")):
        got, own, _ = triple()
        got[3, 4] = value
        assert not apart(got, own, CHUNK) <= 1.0
        assert not apart(own, got, CHUNK) <= 1.0


def test_several_answers_are_told_apart_as_each_one_alone() -> None:
    got, own, truth = triple()
    off, holed = got * (1 + 1e-5), got.clone()
    holed[2, 5] = float("nan")
    answers = [off, own.new_ones(()).expand(own.shape), holed, got]
    found = distances(answers, own, truth, CHUNK, 1e-6)
    alone = [distance(answer.clone(), own, truth, CHUNK, 1e-6) for answer in answers]
    assert found[:2] + found[3:] == alone[:2] + alone[3:]
    assert [item.misplaced for item in found] == [0, 0, 1, 0]
    assert found[2].worst_index == alone[2].worst_index == (2, 5)
    assert (found[2].norm, found[2].own_norm) == (alone[2].norm, alone[2].own_norm)


def test_sizes_beyond_what_a_type_can_square_are_compared_all_the_same() -> None:
    truth = torch.tensor([1e200, -2e200, 3.0], dtype=torch.float64)
    found = distance(truth * (1 + 1e-9), truth, truth, CHUNK)
    assert found.misplaced == 0
    assert found.ratio > 1e6
    assert found.worst_index == (1,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finite_is_what_holds_neither_nan_nor_infinity(dtype: torch.dtype) -> None:
    largest = torch.full((9, 9), torch.finfo(dtype).max, dtype=dtype)  # the sum is beyond the type
    assert finite(largest)
    assert finite(torch.arange(5))
    for wrong in (float("nan"), float("inf"), -float("inf")):
        holed = largest.clone()
        holed[3, 3] = wrong
        assert not finite(holed)
        holed[0, 0] = -wrong
        assert not finite(holed)
