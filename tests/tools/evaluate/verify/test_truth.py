"""The float64 truth in parts: where rows are independent, and nowhere else."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify import truth as truth_module
from kernelwright.tools.evaluate.verify.truth import Truth, UnverifiableError
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import RefusedError, Task, TracePolicy

NO_ROOM = Rules(memory_fraction=0.0)
FILE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(9))
        self.norm = torch.nn.BatchNorm1d(9)
    def forward(self, x, y):
        return %s

def get_inputs():
    return [torch.randn(10, 9), torch.randn(9)]
"""

Write = Callable[[str], Path]


def setup(write: Write, expression: str) -> tuple[Task, Reference, list[object]]:
    path = write(FILE % expression)
    task = trace(path.read_text(encoding="utf-8"), str(path), TracePolicy())
    assert isinstance(task, Task), task
    reference = Reference.build(task, "cpu", seed=3)
    return task, reference, draw(task, "task", 1, "cpu")


def test_independent_rows_have_the_same_truth_in_chunks(write: Write) -> None:
    task, reference, args = setup(write, "torch.softmax(x * self.scale + y, dim=1)")
    own = reference.forward(args)
    whole, _ = Truth(task, reference, "cpu", Rules()).outputs(args, own)
    parts = Truth(task, reference, "cpu", NO_ROOM)
    chunked, _ = parts.outputs(args, own)
    assert torch.equal(whole[0], chunked[0])
    assert whole[0].dtype is torch.float64
    assert "10 chunks" in parts.note


@pytest.mark.parametrize("expression", ["torch.softmax(x, dim=0)", "(x * y).sum()", "x.t() * 2"])
def test_what_does_not_come_apart_is_said_to_be_unverifiable(write: Write, expression: str) -> None:
    task, reference, args = setup(write, expression)
    own = reference.forward(args)
    with pytest.raises(UnverifiableError, match="GiB"):
        Truth(task, reference, "cpu", NO_ROOM).outputs(args, own)


def test_buffers_that_the_forward_updates_are_part_of_the_truth_and_restored(
    write: Write,
) -> None:
    task, reference, args = setup(write, "self.norm(x) * y")
    before = reference.weights()["norm.running_mean"].clone()
    own = reference.forward(args)
    reference.weights()["norm.running_mean"].copy_(before)
    _, buffers = Truth(task, reference, "cpu", Rules()).outputs(args, own)
    expected = 0.9 * before.double() + 0.1 * args[0].double().mean(0)
    assert torch.allclose(buffers["norm.running_mean"], expected)
    assert torch.equal(reference.weights()["norm.running_mean"], before)


def test_a_truth_in_parts_lies_where_it_leaves_them_room(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU that is on the device; here the device that is named has no memory at all."""
    task, reference, args = setup(write, "torch.softmax(x * self.scale + y, dim=1)")
    own = reference.forward(args)
    found = []
    for room in (3 * own[0].numel() * 8, 3 * own[0].numel() * 8 - 1):
        monkeypatch.setattr(truth_module, "available_bytes", lambda device, share, r=room: r)
        truth = Truth(task, reference, "meta", Rules())
        found.append(truth._chunks(reference.double(), args, own, 2 * room, room))
    assert [parts[0].device.type for parts in found] == ["meta", "cpu"]
    assert torch.equal(
        found[1][0],
        torch.softmax(args[0].double() * reference.double().module.scale + args[1].double(), dim=1),
    )


@pytest.mark.parametrize("expression", ["self.norm.running_mean", "x", "x[:, 1:]"])
def test_what_is_written_to_buffers_and_inputs_leaves_the_truth_alone(
    write: Write, expression: str
) -> None:
    task, reference, args = setup(write, f"({expression}, x * self.norm(x) * y)")
    args = [arg.double() for arg in args]  # nothing to convert: the truth is given these very ones
    reference = reference.double()
    own = reference.forward(args)
    outputs, _ = Truth(task, reference, "cpu", Rules()).outputs(args, own)
    kept = [output.clone() for output in outputs]
    for arg in args:
        arg.zero_()
    for buffer in reference.weights().values():
        buffer.zero_()
    assert all(torch.equal(now, then) for now, then in zip(outputs, kept, strict=True))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("x.view(torch.int32) * 0.5", r"output 1 has the shape \(10, 18\) in place of \(10, 9\)"),
        (
            "torch.fake_quantize_per_channel_affine(x, y.abs(), torch.zeros(9).int(), 1, 0, 9)",
            "In float64, .* the forward raises",
        ),
    ],
)
def test_a_forward_that_is_another_one_in_float64_is_told_so(
    write: Write, expression: str, words: str
) -> None:
    task, reference, args = setup(write, expression)
    own = reference.forward(args)
    with pytest.raises(RefusedError, match=words):
        Truth(task, reference, "cpu", Rules()).outputs(args, own)
