"""Guarded memory notices every write outside, and what was not written."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.evaluate.verify.bits import first_difference, flat_memory, same_bits
from kernelwright.tools.evaluate.verify.memory import GuardedMemory, SpoiltMemory, refill, unwritten

TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32,
         torch.bool]  # fmt: skip
GUARD = 256


def around(tensor: torch.Tensor, offset: int, count: int = 1) -> torch.Tensor:
    """Elements outside of a tensor's own, as a stray pointer would reach them."""
    start = tensor.storage_offset() + offset
    return torch.as_strided(tensor, (count,), (1,), start)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_was_never_written_is_counted(dtype: torch.dtype) -> None:
    memory = GuardedMemory("cpu", GUARD)
    block = memory.empty((4, 5), dtype)
    assert unwritten(block) == 20
    block[0] = 1
    assert unwritten(block) == 15
    assert memory.damage() is None


@given(st.integers(1, 60), st.sampled_from(["before", "after"]))
def test_a_write_outside_is_found_with_its_distance(distance: int, side: str) -> None:
    memory = GuardedMemory("cpu", GUARD)
    memory.empty((3,), torch.float32).zero_()
    block = memory.empty((7, 3), torch.float32).zero_()
    around(block, -distance if side == "before" else 20 + distance).fill_(0.5)
    damage = memory.damage()
    assert damage is not None
    assert (damage.side, damage.distance_bytes) == (side, 4 * distance)
    assert damage.block == "allocation 1"


def test_a_nan_read_past_an_input_and_written_past_an_output_is_found() -> None:
    memory = GuardedMemory("cpu", GUARD)
    x = memory.place(torch.randn(8), "x")
    y = memory.empty((8,), torch.float32)
    around(y, 0, 9).copy_(around(x, 0, 9))
    assert memory.damage() is not None


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 6).t(),
        torch.randn(4, 1).expand(4, 7),
        torch.randn(10)[::3],
        torch.randn(3, 4, 5)[1],
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "expanded", "gaps", "offset", "scalar", "empty", "channels-last"],
)
def test_a_placed_input_keeps_values_and_layout(tensor: torch.Tensor) -> None:
    memory = GuardedMemory("cpu", GUARD)
    placed = memory.place(tensor, "x")
    assert same_bits(placed, tensor)
    assert placed.stride() == tensor.stride()
    flat_memory(placed).zero_()
    refill(placed, tensor)
    assert same_bits(placed, tensor)
    assert memory.damage() is None


def test_bits_tell_zeros_apart_and_nans_alike() -> None:
    nan = torch.tensor([1.0, float("nan")])
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert first_difference(torch.eye(3), torch.eye(3).roll(1, 0)) == (0, 0)
    assert not same_bits(torch.ones(2), torch.ones(2, dtype=torch.int32))


def test_a_call_may_be_given_what_the_one_before_left() -> None:
    memory = GuardedMemory("cpu", GUARD)
    memory.empty((9,), torch.float32)  # made by the set-up, and not of a call
    memory.begin(recycling=False)
    memory.empty((7,), torch.int32).fill_(77)
    memory.retire()
    memory.begin(recycling=True)
    assert unwritten(memory.empty((9,), torch.float32)) == 9  # of another size than what was left
    again = memory.empty((7,), torch.int32)
    assert (again == 77).all()
    around(again, 7).fill_(0)
    assert memory.damage() is not None
    assert unwritten(memory.empty((7,), torch.int32)) == 7


@pytest.mark.parametrize("dtype", [*TYPES[:-1], torch.complex64, torch.uint8])
def test_a_timed_call_finds_nothing_that_an_earlier_one_left(dtype: torch.dtype) -> None:
    memory = SpoiltMemory("cpu")
    on = torch.device("cpu")
    shapes = [(5000,), (3, 7), (), (0, 4), (5000,)]
    found = []
    for _ in range(4):
        given = [memory.empty(shape, dtype, on) for shape in shapes]
        found.append([bool((block == 1).any()) for block in given])
        assert len({block.data_ptr() for block in given if block.numel()}) == 4
        for block in given:
            block.fill_(1)
        del given
        memory.spoil()
    assert not any(map(any, found[1:]))


def test_what_is_prepared_between_samples_is_not_taken_for_a_call() -> None:
    memory = SpoiltMemory("cpu")
    memory.empty((9,), torch.float32, torch.device("cpu"))
    memory.spoil()
    with memory.aside():
        kept = memory.empty((9,), torch.float32, torch.device("cpu")).fill_(1.0)
    found = memory.empty((9,), torch.float32, torch.device("cpu"))
    assert bool(found.isnan().all())
    memory.spoil()
    assert bool((kept == 1.0).all())
