"""Tensors that are no weights are baked in, but for those that are drawn by chance."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import Refusal, Task, TracePolicy

FILE = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = {{"steps": [torch.arange(4.0), {made}]}}

    def forward(self, x):
        return x * self.tables["steps"][1] + torch.tensor([1.0, 2.0, 3.0, 4.0])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        return self.part(x)


def get_inputs():
    return [torch.randn(8, 4)]
"""


def test_tables_that_a_constructor_draws_are_to_be_registered(
    attempt: Callable[..., object],
) -> None:
    found = attempt(FILE.format(made="torch.randn(4)"))
    assert isinstance(found, Refusal)
    assert "part.tables['steps'][1], which the constructor draws at random" in found.sentence
    task = attempt(FILE.format(made="torch.linspace(0, 1, 4)"))
    assert isinstance(task, Task)
    (x,) = draw(task, "task", 0, "cpu")
    reference = Reference.build(task, "cpu", seed=5)
    assert reference.forward([x])[0].shape == (8, 4)


AT_TOP = """
import random
{top}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.randn(8, 4)]
"""


@pytest.mark.parametrize(
    ("top", "forward", "words"),
    [
        ("W = torch.randn(4)", "x * W", "W, which"),
        ("T = {'a': [torch.ones(4), torch.rand(4)]}", "x * T['a'][1]", "T['a'][1], which"),
        ("S = random.random()", "x * S", "a value, which"),
        ("L = [torch.rand(4)]; L.append(L)", "x * L[0]", "L[0], which"),
    ],
)
def test_what_a_file_draws_when_it_is_imported_is_to_be_registered(
    sentence: Callable[..., str], top: str, forward: str, words: str
) -> None:
    said = sentence(AT_TOP.format(top=top, init="pass", forward=forward))
    assert f"computes with {words} the file draws at random when it is imported" in said
    assert "register it as a buffer, or call torch.manual_seed before it." in said


@pytest.mark.parametrize(
    ("top", "init", "forward"),
    [
        ("torch.manual_seed(7); W = torch.randn(4)", "pass", "x * W"),
        ("W = torch.randn(4)", "self.register_buffer('w', W)", "x * self.w"),
        ("X = torch.randn(4); W = torch.arange(4.0)", "pass", "x * W"),
        ("W = torch.randn(4)", "pass", "x * torch.tensor([1.0, 2.0, 3.0, 4.0])"),
        ("W = torch.randn(4)", "pass", "torch.where(x > 0, x, float('nan'))"),
    ],
)
def test_what_every_import_makes_alike_is_baked_in(
    traced: Callable[..., Task], top: str, init: str, forward: str
) -> None:
    traced(AT_TOP.format(top=top, init=init, forward=forward))


def test_a_function_is_to_be_given_what_its_file_draws(sentence: Callable[..., str]) -> None:
    text = "W = torch.randn(4)\ndef scale(x):\n    return x * W\n"
    assert "pass it as an argument" in sentence(text, entry="scale", inputs=["8x4"])


def test_what_another_file_of_the_project_draws_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "tables.py").write_text("import torch\nW = torch.randn(4)\n")
    text = "from torch import nn\nimport torch\nfrom .tables import W\n" + AT_TOP.format(
        top="", init="pass", forward="x * W"
    )
    file = folder / "layer.py"
    file.write_text(text)
    found = trace(text, str(file), TracePolicy())
    assert isinstance(found, Refusal)
    assert "computes with W, which the file draws" in found.sentence
