"""What a person says about sizes, and what has to change with them."""

import pytest

from kernelwright.tools.tasks.inputs.shapes import (
    as_texts,
    at,
    checked_sizes,
    combinations,
    linear_outputs,
    second_size,
    telling_sizes,
)
from kernelwright.tools.types import RefusedError
from kernelwright.tools.types.shapes import Dimension

MASKED = """
DIMENSIONS = {"length": "x[1]"}

class Model(nn.Module):
    def forward(self, x, mask, bias):
        return torch.softmax(x + mask, 1) * bias

def get_inputs():
    return [torch.randn(8, 32, 5), torch.randn(8, 32, 1), torch.randn(5)]
"""


def test_a_batch_is_the_first_dimension_of_all_that_are_as_long(traced) -> None:
    (batch,) = traced(MASKED, shapes="batch=1..64").dimensions
    assert (batch.low, batch.high, batch.example) == (1, 64, 8)
    assert batch.places == ((0, 0), (1, 0))


def test_what_must_follow_is_found_by_running_the_module(traced) -> None:
    task = traced(MASKED, shapes="batch=1..16, length=16|32|64")
    _, length = task.dimensions
    assert length.points == (16, 32, 64)
    assert length.places == ((0, 1), (1, 1))  # x alone does not fit its mask
    specs = at(task, task.dimensions, (3, 64))
    assert as_texts(specs) == ("3x64x5:float32", "3x64x1:float32", "5:float32")
    assert len(combinations(task.dimensions)) == 3


def test_places_are_named_by_bracket_or_dot(traced) -> None:
    for said in ("x[1]=32|64", "x.1=32|64", "x[-2]=32|64"):
        assert traced(MASKED, shapes=said).dimensions[0].places == ((0, 1), (1, 1))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", ""),
        ("batch", "does not understand 'batch'; write it as batch=1..64"),
        ("batch=64..1", "is no range"),
        ("batch=0..4", "is no range"),
        ("y[0]=1..64", "does not know 'y[0]'; say batch, or one of x[0] (8), x[1] (32)"),
        ("x[3]=1..64", "x[3] does not exist"),
        ("batch=16..64", "the example's batch is 8"),
        ("batch=1..64, x[0]=1..64", "x[0] twice, as 'batch' and 'x[0]'"),
        ("batch=1..64, length=1..64", "can have one range, and batch and length are ranges"),
        ("x[1]=1|2|3|4|5|6|7|8|32", "9 combinations"),
        ("x[0]=1..9, mask[0]=8", "x[0] and mask[0] change together"),
        ("mask[2]=1|2", "does not run with mask[2]=2"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(said, why, sentence, traced) -> None:
    if not why:
        assert traced(MASKED).dimensions == ()
        return
    assert why in sentence(MASKED, shapes=said)


def test_sizes_that_tell_and_sizes_that_are_checked() -> None:
    batch = Dimension(name="batch", places=((0, 0),), example=32, low=1, high=64)
    assert telling_sizes(batch) == (47, 53, 59, 61, 64)
    looked = checked_sizes(batch, seed=3)
    assert {1, 2, 32, 41, 63, 64} <= set(looked)
    assert all(1 <= size <= 64 for size in looked)
    few = Dimension(name="batch", places=((0, 0),), example=2, low=1, high=2)
    assert telling_sizes(few) == (2, 31, 37, 41, 43)
    assert second_size(few) == 1
    assert checked_sizes(few, seed=0) == (1, 2)


def test_results_follow_one_dimension(traced) -> None:
    def task(batch: int):
        return traced(
            "class Model(nn.Module):\n    def forward(self, x):\n"
            "        return torch.cat([x, x[:1]]), x.sum(0)\n"
            f"def get_inputs():\n    return [torch.randn({batch}, 4)]\n"
        )

    tasks = [((batch,), task(batch)) for batch in (3, 5, 7)]
    first, second = linear_outputs(tasks)
    assert first[0].printed(("n",)) == "n + 1"
    assert [size.printed(("n",)) for size in second] == ["4"]
    with pytest.raises(RefusedError):
        linear_outputs([*tasks, ((9,), task(8))])
