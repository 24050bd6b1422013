"""What is optimised, and with which inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import Task, TracePolicy

Traced = Callable[..., Task]

TWO = """
class Model(nn.Module):
    def forward(self, x): return x * 2
class Other(nn.Module):
    def forward(self, x): return x * 3
def triple(x, k=3): return x * k
ready = nn.Linear(8, 4)
def get_inputs(): return [torch.randn(4, 8)]
"""


def test_model_is_preferred(traced: Traced) -> None:
    task = traced(TWO)
    assert (task.entry, task.entry_kind) == ("Model", "kernelbench")


def test_the_only_module_needs_no_name(traced: Traced) -> None:
    text = "class Net(nn.Module):\n    def forward(self, x): return x + 1\n"
    task = traced(text + "def get_inputs(): return [torch.ones(2)]\n")
    assert (task.entry, task.entry_kind) == ("Net", "module")


def test_an_imported_module_class_does_not_count(traced: Traced) -> None:
    text = (
        "from torch.nn import Linear\nclass Net(nn.Module):\n    def forward(self, x): return x\n"
    )
    assert traced(text + "def get_inputs(): return [torch.ones(2)]\n").entry == "Net"


def test_any_class_instance_or_function_can_be_named(traced: Traced) -> None:
    assert traced(TWO, entry="Other").entry_kind == "module"
    function = traced(TWO, entry="triple")
    assert function.entry_kind == "function"
    assert not function.training
    ready = traced(TWO, entry="ready")
    assert [w.name for w in ready.weights] == ["weight", "bias"]


def test_overrides_replace_get_inputs(traced: Traced) -> None:
    text = "def f(x, i, m, s, k, flag): return x[i] * m * s * k if flag else x\n"
    inputs = ("16x4:float16", "3:int64<16", "3x4:bool", "scalar:float32", "0.5", "true")
    task = traced(text, entry="f", inputs=inputs)
    assert [spec.name for spec in task.inputs] == ["x", "i", "m", "s", "k", "flag"]
    assert [spec.scalar for spec in task.inputs[4:]] == [0.5, True]
    values = draw(task, "task", 1, "cpu")
    assert values[0].shape == (16, 4)  # type: ignore[union-attr]
    assert values[1].max() < 16  # type: ignore[union-attr]


def test_an_override_of_a_shape_alone_is_float32(traced: Traced) -> None:
    task = traced("def f(x): return x + 1\n", entry="f", inputs=("16x4",))
    assert task.inputs[0].tensor is not None
    assert task.inputs[0].tensor.dtype == "float32"


def test_siblings_can_be_imported_and_file_is_real(tmp_path: Path) -> None:
    (tmp_path / "kernelwright_sibling.py").write_text("FACTOR = 3\n")
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\nfrom pathlib import Path\nfrom kernelwright_sibling import FACTOR\n"
        "assert Path(__file__).with_name('kernelwright_sibling.py').exists()\n"
        "def f(x): return x * FACTOR\ndef get_inputs(): return [torch.ones(2)]\n"
    )
    before = list(sys.path)
    task = trace(path.read_text(), str(path), TracePolicy(entry="f"))
    assert isinstance(task, Task)
    # The folder may not shadow what the worker imports later.
    assert sys.path[: len(before)] == before


def test_prints_and_the_main_guard_do_not_matter(traced: Traced) -> None:
    text = "print('hello')\nif __name__ == '__main__': raise SystemExit\n"
    assert traced(text + TWO).entry == "Model"


def test_init_inputs_reach_the_constructor(traced: Traced) -> None:
    text = """
    class Model(nn.Module):
        def __init__(self, size, factor):
            super().__init__()
            self.layer = nn.Linear(size, 3)
            self.factor = factor
        def forward(self, x): return self.layer(x) * self.factor
    def get_inputs(): return [torch.randn(4, 8)]
    def get_init_inputs(): return [8, 0.5]
    """
    task = traced(text)
    assert task.outputs[0].shape == (4, 3)
    assert Reference.build(task, "cpu").weights()["layer.weight"].shape == (3, 8)


def test_init_inputs_meant_for_another_class_are_left_out(traced: Traced) -> None:
    assert traced(TWO + "def get_init_inputs(): return [1, 2]\n", entry="Other").entry == "Other"


def test_a_module_already_compiled_is_seen_through(traced: Traced) -> None:
    text = "@torch.compile\ndef f(x): return x * 2 + 1\ndef get_inputs(): return [torch.ones(4)]\n"
    operators = [node.op for node in traced(text, entry="f").graph.nodes]
    assert operators == ["input", "aten.mul.Tensor", "aten.add.Tensor"]


def test_an_instance_whose_weight_a_hook_made_under_autograd_is_taken(traced: Traced) -> None:
    made = "ready = nn.utils.weight_norm(nn.Linear(8, 4))\n"
    inputs = "def get_inputs(): return [torch.randn(4, 8)]\n"
    assert {"weight_g", "weight_v"} < {w.name for w in traced(made + inputs, entry="ready").weights}


def test_the_only_module_that_is_made_already_needs_no_name(traced: Traced) -> None:
    inputs = "def get_inputs(): return [torch.randn(4, 8)]\n"
    assert traced(f"net = nn.Sequential(nn.Linear(8, 4), nn.ReLU())\n{inputs}").entry == "net"
