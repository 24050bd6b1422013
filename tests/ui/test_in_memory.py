"""Modules in memory: written down, searched behind the wall, given back over the own one."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import kernelwright
from kernelwright.tools.tasks import trace
from kernelwright.tools.tasks.inputs.draws import draw
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.tasks.sources import find
from kernelwright.tools.types import Task, TracePolicy
from kernelwright.ui.api.in_memory import written
from kernelwright.ui.complaints import Complaint


@dataclass
class Answer:
    y: torch.Tensor
    more: dict


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))
        self.register_buffer("b", torch.randn(256))
        self.drop = nn.Dropout(0.5)
        self.eval()

    def forward(self, x, *, scale):
        y = torch.softmax(self.drop(x) * self.w + self.b, dim=-1) * scale["s"]
        return Answer(y, {"m": y + 1})


def inputs(rows=64):
    return {"x": torch.randn(rows, 256), "scale": {"s": torch.randn(256)}}


def same(got, right):
    torch.testing.assert_close(got.y, right.y)
    torch.testing.assert_close(got.more["m"], right.more["m"])


def test_a_module_is_written_down_with_its_weights_and_its_call(tmp_path):
    model, given = Net(), inputs()
    kept = written(model, given, tmp_path)
    found = find(kept.file, TracePolicy(inputs=(str(kept.inputs),)))
    task = trace(found.source, str(found.path), found.policy)
    assert isinstance(task, Task), task
    assert [spec.name for spec in task.inputs] == ["x", "scale_s"]
    assert {"net.py", "model.pt2"} & {item.path for item in task.project.files}
    outputs = Reference.build(task, "cpu").forward(draw(task, "task", 0, "cpu"))
    right = model(**given)
    torch.testing.assert_close(outputs[0], right.y)
    torch.testing.assert_close(outputs[1], right.more["m"])


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("nothing_compiled")
def test_what_comes_back_runs_kernels_on_the_caller_s_own_weights(tmp_path, capfd):
    model, given = Net(), inputs()
    fast = kernelwright.optimize(
        model, given, seconds=10, rounds=1, target="cpu", run_dir=tmp_path, force=True,
    )  # fmt: skip
    assert fast.is_faster
    with torch.no_grad():
        same(fast(**given), model(**given))
        assert isinstance(fast(**given), Answer)
        model.w.mul_(3)
        same(fast(**given), model(**given))
        assert fast.counts["kernel"] == 3
        odd = inputs(3)
        same(fast(**odd), model(**odd))
        fast.train()
        dropped = fast(**given).y
        assert not torch.allclose(dropped, fast(**given).y), "a dropout that drops"
        assert fast.counts["reference: training mode"] == 2
        fast.eval()
        same(fast(**given), model(**given))
        assert fast.counts["kernel"] == 4
    fast(**given).y.sum().backward()
    assert model.w.grad is not None
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert "<pre" in fast._repr_html_()
    assert "baselines: eager" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (3, [torch.ones(2)], "a file or an nn.Module can be optimised, not a int"),
        (nn.ReLU(), 3, "inputs must be a tensor, a list of arguments, or a dictionary"),
        (nn.ReLU(), [3], "no input is a tensor"),
        (nn.ReLU(), [torch.ones(2), {1, 2}], "Input 2 is a set"),
        (nn.Linear(3, 4), torch.ones(2), "cannot write the model down: RuntimeError"),
    ],
)
def test_what_cannot_be_written_down_is_one_sentence(tmp_path, model, given, words):
    with pytest.raises(Complaint, match=words) as raised:
        written(model, given, tmp_path)
    assert "\n" not in str(raised.value)


def test_a_module_in_memory_takes_no_entry(tmp_path):
    with pytest.raises(kernelwright.KernelwrightError, match="takes neither"):
        kernelwright.optimize(nn.ReLU(), torch.ones(2), entry="Model", run_dir=tmp_path)
