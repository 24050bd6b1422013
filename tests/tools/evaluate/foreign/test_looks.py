"""What the judge saw under the clock tells a late answer from one that was there."""

import pytest
import torch

from kernelwright.tools.evaluate.foreign.guest_runner import PLACES, WHOLE, Chance, Look


def seen(output: torch.Tensor, chance: Chance) -> Look:
    look = Look(output)
    look.aim(chance.places(output.numel()))
    look.take()
    return look


@pytest.mark.parametrize("shape", [(0,), (), (3, 5), (WHOLE,), (WHOLE + 1,), (7, 50_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_an_answer_that_was_there_stands_in_the_whole(shape, dtype):
    output = torch.ones(shape).cumsum(-1).to(dtype) if shape else torch.tensor(3).to(dtype)
    look = seen(output, Chance("cpu"))
    assert look.stands_in(output.clone())


def test_of_a_small_answer_one_late_element_is_noticed():
    output = torch.full((WHOLE,), float("nan"))
    look = seen(output, Chance("cpu"))
    assert look.stands_in(output.clone()), "the bits of a NaN are its own"
    output[WHOLE // 2] = 1.0
    assert not look.stands_in(output.clone())


@pytest.mark.parametrize("share", [1.0, 0.1, 0.01])
def test_of_a_large_answer_a_late_part_that_saves_time_is_noticed(share):
    size, chance = 64 * WHOLE, Chance("cpu")
    for begin in (0, size // 3, size - int(share * size)):
        output = torch.zeros(size)
        output[begin : begin + int(share * size)] = float("nan")
        look = seen(output, chance)
        output[begin : begin + int(share * size)] = 0.0
        assert not look.stands_in(output.clone())


def test_every_round_looks_elsewhere_and_every_judge_too():
    one, other = Chance("cpu"), Chance("cpu")
    rounds = [one.places(10**9), one.places(10**9), other.places(10**9)]
    first, second, third = (set(places.tolist()) for places in rounds if places is not None)
    # Of so many elements one is drawn twice in one round of a hundred.
    assert min(len(first), len(second), len(third)) > PLACES - 5
    assert len(first & second) < 5
    assert len(first & third) < 5
