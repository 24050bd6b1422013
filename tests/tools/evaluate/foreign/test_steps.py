"""What a guest does under the judge's clock, and what it has done before."""

import torch

from tools.evaluate.foreign.guest.steps import Steps
from tools.evaluate.foreign.messages import Arrange, Call, Done, Failed, Go, Place, Rehearse

_FLOATS = 64


def test_a_call_that_does_no_work_delivers_what_lay_ready_and_makes_nothing() -> None:
    raw = torch.full((4 * _FLOATS,), 0xFF, dtype=torch.uint8)
    steps = Steps(raw, "cpu")
    place = Place(offset=0, shape=(_FLOATS,), strides=(1,), dtype="float32")
    steps.take(Arrange(arguments=((),), outputs=((place,),)))
    empty = Go(calls=(Call(arguments=0, outputs=0),), way="null")
    # Had it made its answer in the call, the protocol would seem to cost what making one costs.
    assert isinstance(steps.take(empty), Failed)
    assert isinstance(steps.take(Rehearse()), Done)
    assert isinstance(steps.take(empty), Done)
    assert not raw.any()
