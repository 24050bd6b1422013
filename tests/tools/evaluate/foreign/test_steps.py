"""What a guest does under the judge's clock, and what it has done before."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from kernelwright.tools.evaluate.foreign.guest.steps import Steps
from kernelwright.tools.evaluate.foreign.messages import (
    REPORT,
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


# Each answers with memory that holds nothing yet, and does the work in the copy of it.
_FUSING = {
    "a dispatch mode": """
class Late(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.copy_.default:
            return args[0].fill_(7)
        return func(*args, **(kwargs or {}))
Late().__enter__()
""",
    "a function mode": """
class Late(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return args[0].fill_(7) if func is torch.Tensor.copy_ else func(*args, **(kwargs or {}))
Late().__enter__()
""",
    "another method": """
type.__setattr__(torch.Tensor, "copy_", lambda self, other: self.fill_(7))
""",
    "another kernel": """
LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("copy_", lambda self, other, _=False: self.fill_(7), "CPU")
""",
}
_IN_A_PROCESS = """
import os, sys, torch
from kernelwright.tools.evaluate.foreign.guest.steps import Steps
from kernelwright.tools.evaluate.foreign.messages import *
os.chdir(sys.argv[1])
source = "import torch\\n" + {code!r} + (
    "class ModelNew(torch.nn.Module):\\n"
    "    def forward(self): return torch.zeros(8, dtype=torch.uint8)\\n"
)
raw = torch.full((8,), 3, dtype=torch.uint8)
steps = Steps(raw, "cpu")
made = steps.take(Make(source=source, entry="ModelNew", arguments="[]", seed=0))
assert isinstance(made, Done), made
place = TensorPlace(offset=0, shape=(8,), strides=(1,), dtype="uint8")
steps.take(Arrange(arguments=((),), outputs=((place,),)))
done = steps.take(Go(calls=(Call(arguments=0, outputs=0),), as_bytes={as_bytes}))
assert isinstance(done, Done), done
print(bytes(raw.numpy()).hex())
"""


@pytest.mark.parametrize("how", _FUSING)
def test_work_that_is_left_to_the_copy_of_an_answer_is_not_done(tmp_path: Path, how: str) -> None:
    as_bytes = how == "another kernel"  # of PyTorch's own; only what goes without it is sure
    script = _IN_A_PROCESS.format(code=_FUSING[how], as_bytes=as_bytes)
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "00" * 8


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("torch.arange(3.0)", [0.0, 1.0, 2.0]),
        ("torch._neg_view(torch.arange(3.0))", [0.0, -1.0, -2.0]),  # only marked as negative
        ("torch.arange(6.0)[::2]", [0.0, 2.0, 4.0]),
        ("torch.ones(1).expand(3)", [1.0, 1.0, 1.0]),
    ],
)
def test_an_answer_taken_as_bytes_is_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, expected: list[float]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = f"""
import torch

class ModelNew(torch.nn.Module):
    def forward(self):
        return {made}
"""
    raw = torch.zeros(12, dtype=torch.uint8)
    steps = Steps(raw, "cpu")
    steps.take(Make(source=source, entry="ModelNew", arguments="[]", seed=0))
    place = TensorPlace(offset=0, shape=(3,), strides=(1,), dtype="float32")
    steps.take(Arrange(arguments=((),), outputs=((place,),)))
    done = steps.take(Go(calls=(Call(arguments=0, outputs=0),), as_bytes=True))
    assert isinstance(done, Done), done
    assert raw.view(torch.float32).tolist() == expected


@pytest.mark.parametrize("told", ["NaN", "Infinity", "-1"])
def test_no_guest_tells_of_a_time_that_is_none(told: str) -> None:
    with pytest.raises(ValidationError):
        REPORT.validate_json(f'{{"kind": "done", "own_ms": {told}}}')
