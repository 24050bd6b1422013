"""The reference comes back the same, and its state can be put back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.types import RefusedError, Task

Model = Callable[..., Task]

NORMALISED = (
    "def forward(self, x): return self.n(self.l(x) * self.scale + self.table)",
    "[torch.randn(8, 32)]",
    "self.l = nn.Linear(32, 16)\nself.n = nn.BatchNorm1d(16)\nself.scale = torch.tensor(2.0)\n"
    "self.register_buffer('table', torch.rand(16), persistent=False)",
)


@pytest.fixture
def task(model: Model) -> Task:
    return model(*NORMALISED)


def test_weights_repeat_under_their_seed(task: Task) -> None:
    first = Reference.build(task, "cpu", seed=1).weights()
    torch.manual_seed(99)
    again = Reference.build(task, "cpu", seed=1).weights()
    other = Reference.build(task, "cpu", seed=2).weights()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["l.weight"], other["l.weight"])


def test_weights_are_drawn_as_kernelbench_draws_them(task: Task) -> None:
    torch.manual_seed(7)
    expected = torch.nn.Linear(32, 16).weight
    assert torch.equal(Reference.build(task, "cpu", seed=7).weights()["l.weight"], expected)
    torch.manual_seed(7)
    values = draw(task, "task", 7, "cpu")[0]
    torch.manual_seed(7)
    assert torch.equal(values, torch.randn(8, 32))  # type: ignore[arg-type]


def test_weights_include_buffers_plain_tensors_and_are_live(task: Task) -> None:
    reference = Reference.build(task, "cpu")
    weights = reference.weights()
    assert {"l.bias", "n.running_mean", "n.num_batches_tracked", "scale", "table"} <= set(weights)
    args = draw(task, "normal", 0, "cpu")
    before = reference.forward(args)[0]
    weights["scale"].mul_(0)
    assert not torch.equal(reference.forward(args)[0], before)


def test_a_snapshot_undoes_what_the_forward_did(task: Task) -> None:
    reference = Reference.build(task, "cpu")
    args = draw(task, "normal", 0, "cpu")
    place = reference.weights()["n.running_mean"].data_ptr()
    reference.snapshot()
    reference.forward(args)
    assert reference.weights()["n.num_batches_tracked"] == 1
    reference.restore()
    assert reference.weights()["n.num_batches_tracked"] == 0
    assert bool((reference.weights()["n.running_mean"] == 0).all())
    assert reference.weights()["n.running_mean"].data_ptr() == place


def test_forward_records_no_gradients_and_stays_in_training(task: Task) -> None:
    reference = Reference.build(task, "cpu")
    out = reference.forward(draw(task, "normal", 0, "cpu"))[0]
    assert not out.requires_grad
    assert reference.module.training


def test_the_double_is_a_separate_more_precise_copy(task: Task) -> None:
    reference = Reference.build(task, "cpu")
    args = draw(task, "normal", 0, "cpu")
    truth = reference.double().forward(args)[0]
    assert truth.dtype is torch.float64
    assert reference.weights()["n.num_batches_tracked"] == 0
    torch.testing.assert_close(reference.forward(args)[0].double(), truth, atol=1e-5, rtol=1e-5)


def test_the_double_makes_its_own_tensors_in_double(model: Model) -> None:
    task = model("def forward(self, x): return x @ torch.eye(32), torch.zeros(3)")
    reference = Reference.build(task, "cpu")
    outputs = reference.double().forward(draw(task, "normal", 0, "cpu"))
    assert {out.dtype for out in outputs} == {torch.float64}
    assert torch.get_default_dtype() is torch.float32


def test_the_module_can_be_called_as_the_user_calls_it(model: Model) -> None:
    task = model("def forward(self, x): return [x, (x + 1, x + 2)]")
    args = draw(task, "normal", 0, "cpu")
    reference = Reference.build(task, "cpu")
    assert isinstance(reference.module(*args), list)
    assert len(reference.forward(args)) == 3


def test_a_forward_that_raises_later_is_refused_with_a_sentence(task: Task) -> None:
    with pytest.raises(RefusedError, match="The forward raises"):
        Reference.build(task, "cpu").forward([torch.ones(3)])


def test_the_package_is_light_until_it_is_used() -> None:
    code = "import sys, kernelwright.tools.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
def test_reference_and_draws_live_on_the_device(task: Task) -> None:
    reference = Reference.build(task, "cuda")
    args = draw(task, "task", 1, "cuda") + draw(task, "normal", 1, "cuda")
    assert {arg.device.type for arg in args} == {"cuda"}  # type: ignore[union-attr]
    assert {weight.device.type for weight in reference.weights().values()} == {"cuda"}
    assert reference.is_defined_on(args[:1])
