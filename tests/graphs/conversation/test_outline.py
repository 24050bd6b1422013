"""Files that bring no inputs, seen without running them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agents.assistant.types import ChangeTask, LoadTask
from kernelwright.graphs.conversation.outline import outlines, proposals, shapes
from kernelwright.tools.types import Refusal, TracePolicy

REFUSAL = Refusal(sentence="The file has no get_inputs() function, and no inputs were named.")
MODULE = """
from torch import nn
class Net(nn.Module):
    def __init__(self, width=96, factor=4{more}):
        super().__init__()
        self.first = {layer}
    def forward(self, x{arguments}):
        return self.first(x)
"""


def offered(tmp_path: Path, source: str, refusal: Refusal = REFUSAL) -> list[object]:
    file = tmp_path / "net.py"
    file.write_text(source)
    return [offer.wish for offer in proposals(file, TracePolicy(), refusal)]


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        ("nn.Linear(width, width * factor)", "2048x96:float32"),
        ("nn.Linear(in_features=factor * width, out_features=3)", "2048x384:float32"),
        ("nn.LayerNorm([width])", "16x512x96:float32"),
        ("nn.Conv2d(3, width, 3, padding=1)", "16x3x56x56:float32"),
        ("nn.Conv1d(width, 8, 3)", "16x96x4096:float32"),
        ("nn.GroupNorm(8, width)", "16x96x56x56:float32"),
        ("nn.Embedding(1000, width)", "16x512:int64<1000"),
        ("nn.ReLU()", "2048x1024:float32"),
        ("nn.Sequential(nn.Linear(width, 4), nn.Linear(4, 2))", "2048x96:float32"),
    ],
)
def test_shapes_are_read_off_the_first_layer(tmp_path: Path, layer: str, text: str) -> None:
    source = MODULE.format(layer=layer, more="", arguments="")
    assert ChangeTask(inputs=(text,)) in offered(tmp_path, source)


def test_every_argument_without_a_default_gets_a_shape(tmp_path: Path) -> None:
    source = MODULE.format(layer="nn.ReLU()", more="", arguments=", y, scale=None")
    assert ChangeTask(inputs=("256x1024:float32",) * 2) in offered(tmp_path, source)


def test_missing_constructor_arguments_are_written_below_the_file(tmp_path: Path) -> None:
    source = MODULE.format(layer="nn.ReLU()", more="", arguments="").replace(
        "width=96", "hidden_dim, num_heads, eps"
    )
    (command,) = offered(tmp_path, source)
    assert isinstance(command, LoadTask)
    assert "return [1024, 8, 1e-05]" in command.source
    assert command.source.startswith(source.rstrip())


def test_where_several_modules_fit_each_is_offered(tmp_path: Path) -> None:
    source = "".join(
        MODULE.format(layer="nn.ReLU()", more="", arguments="").replace("Net", name)
        for name in ("Left", "Right")
    )
    refusal = Refusal(sentence="The file has several modules: Left, Right; name one.")
    assert offered(tmp_path, source, refusal) == [
        ChangeTask(entry="Left"),
        ChangeTask(entry="Right"),
    ]


def test_inputs_that_were_named_and_refused_are_not_proposed_again(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(MODULE.format(layer="nn.ReLU()", more="", arguments=""))
    assert proposals(file, TracePolicy(inputs=("4x4:float32",)), REFUSAL) == ()


@given(st.text(max_size=300))
def test_no_text_is_an_error(text: str) -> None:
    for outline in outlines(text):
        assert shapes(outline, "small")


def test_nothing_of_the_file_is_run() -> None:
    (found,) = outlines(
        "class A:\n    def __init__(self):\n        1 / 0\n    def forward(self, x): 0"
    )
    assert found.name == "A"
    assert outlines("raise SystemExit") == ()
