"""What a guest does under the judge's clock, and what it has done before."""

import threading
from pathlib import Path

import pytest
import torch

from kernelwright.tools.evaluate.foreign.guest.steps import Steps
from kernelwright.tools.evaluate.foreign.messages import (
    Arrange,
    Call,
    Done,
    Failed,
    Go,
    Make,
    Rehearse,
    Store,
    TensorPlace,
)

_FLOATS = 64


def test_a_call_that_does_no_work_delivers_what_lay_ready_and_makes_nothing() -> None:
    raw = torch.full((4 * _FLOATS,), 0xFF, dtype=torch.uint8)
    steps = Steps(raw, "cpu")
    place = TensorPlace(offset=0, shape=(_FLOATS,), strides=(1,), dtype="float32")
    steps.take(Arrange(arguments=((),), outputs=((place,),)))
    empty = Go(calls=(Call(arguments=0, outputs=0),), way="null")
    # Had it made its answer in the call, the protocol would seem to cost what making one costs.
    assert isinstance(steps.take(empty), Failed)
    assert isinstance(steps.take(Rehearse()), Done)
    assert isinstance(steps.take(empty), Done)
    assert not raw.any()


def test_a_thread_that_python_learns_of_when_a_call_is_over_is_seen_then() -> None:
    steps = Steps(torch.zeros(4, dtype=torch.uint8), "cpu")

    def seen() -> tuple[str, ...]:
        stored = steps.take(Store(weights=()))
        assert isinstance(stored, Done)
        return stored.python_threads  # and other tests' threads

    assert "comes late" not in seen()
    stop = threading.Event()
    works = threading.Thread(target=stop.wait, name="comes late")
    works.start()
    try:
        assert "comes late" in seen()
    finally:
        stop.set()
        works.join()


def test_a_call_in_one_order_is_made_under_the_librarys_deterministic_algorithms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a guest writes the source where it runs
    source = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self):
        return torch.full((), torch.backends.cudnn.deterministic, dtype=torch.uint8)
"""
    raw = torch.zeros(1, dtype=torch.uint8)
    steps = Steps(raw, "cpu")
    made = steps.take(Make(source=source, entry="ModelNew", arguments="[]", seed=0))
    assert isinstance(made, Done), made
    place = TensorPlace(offset=0, shape=(), strides=(), dtype="uint8")
    steps.take(Arrange(arguments=((),), outputs=((place,),)))
    seen = []
    for one_order in (False, True, False):
        order = Go(calls=(Call(arguments=0, outputs=0),), one_order=one_order)
        assert isinstance(steps.take(order), Done)
        seen.append(bool(raw))
    assert seen == [False, True, False]


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_guest_is_in_the_mode_of_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluation: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self):
        return torch.full((), self.training, dtype=torch.uint8)
"""
    raw = torch.full((1,), 7, dtype=torch.uint8)
    steps = Steps(raw, "cpu")
    order = Make(source=source, entry="ModelNew", arguments="[]", seed=0, evaluation=evaluation)
    assert isinstance(steps.take(order), Done)
    place = TensorPlace(offset=0, shape=(), strides=(), dtype="uint8")
    steps.take(Arrange(arguments=((),), outputs=((place,),)))
    assert isinstance(steps.take(Go(calls=(Call(arguments=0, outputs=0),))), Done)
    assert bool(raw) is not evaluation
