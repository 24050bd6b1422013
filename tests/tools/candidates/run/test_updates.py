"""Buffers get their new values at the end of a plan, all of a type in one launch."""

import re

import pytest
import torch

from kernelwright.tools.candidates.arithmetic import LaunchRefused
from kernelwright.tools.candidates.run.updates import Updates


def weights() -> dict[str, torch.Tensor]:
    return {
        "mean": torch.zeros(3),
        "var": torch.ones(3),
        "steps": torch.tensor(4),
        "scale": torch.full((2,), 7.0),
    }


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors each copy of several took."""
    counts: list[int] = []
    usual = torch._foreach_copy_

    def counted(targets: list[torch.Tensor], values: list[torch.Tensor]) -> None:
        counts.append(len(targets))
        usual(targets, values)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    return counts


def test_what_is_read_is_new_and_buffers_follow_at_the_end(launches: list[int]) -> None:
    given = weights()
    updates = Updates(given)
    updates.take("mean", torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    updates.take("var", torch.full((3,), 5.0))
    updates.take("steps", torch.tensor(5))
    assert updates.seen["mean"].tolist() == [1.0, 2.0, 3.0]
    assert updates.seen["mean"].dtype == torch.float32
    assert given["mean"].tolist() == [0.0, 0.0, 0.0]
    updates.write()
    assert [given[name].tolist() for name in ("mean", "var", "steps", "scale")] == [
        [1.0, 2.0, 3.0], [5.0, 5.0, 5.0], 5, [7.0, 7.0],
    ]  # fmt: skip
    assert sorted(launches) == [1, 2]
    assert given["mean"]._version == 1, "what was prepared of it is looked at by that"


def test_a_buffer_that_becomes_another_is_copied_in_turns(launches: list[int]) -> None:
    given = weights()
    updates = Updates(given)
    updates.take("mean", given["var"])
    updates.take("var", torch.full((3,), 9.0))
    updates.write()
    assert given["mean"].tolist() == [1.0, 1.0, 1.0]
    assert given["var"].tolist() == [9.0, 9.0, 9.0]
    assert launches == []


@pytest.mark.parametrize(
    ("value", "words"),
    [(torch.ones(4), r"shape \(3,\), not \(4,\)"), (1.0, "takes a tensor")],
)
def test_what_does_not_fit_is_refused(value: object, words: str) -> None:
    with pytest.raises(LaunchRefused) as refused:
        Updates(weights()).take("mean", value)
    assert re.search(words, refused.value.words)


def test_nothing_to_update_copies_nothing(launches: list[int]) -> None:
    Updates(weights()).write()
    assert launches == []
