"""Named and nested arguments, results in dataclasses: the drop-in takes and gives the same."""

import pytest

from kernelwright.tools.export import ExportRefusedError, export_folder
from kernelwright.tools.export.folder import kernelbench

SOURCE = """
import collections
from dataclasses import dataclass

import torch
from torch import nn

Pair = collections.namedtuple("Pair", "first second")


@dataclass
class Answer:
    rows: Pair
    more: dict
    absent: torch.Tensor | None


class Model(nn.Module):
    def forward(self, x, mask=None, *, state, scale=1.0):
        y = torch.softmax(x, dim=-1)
        return Answer(Pair(y, [y]), {"y": y, "was": (x.shape, 3)}, None)


def get_inputs():
    return {"x": torch.randn(48, 96), "state": ({"k": torch.randn(3)}, 2), "scale": 1.0}
"""

PLAN = """
def forward(x, state_0_k, state_1, scale):
    rows, columns = x.shape
    y = empty_like(x)
    launch("softmax_rows", args=(x, y, rows, columns))
    return y, y, y
"""

USE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from module import COUNTS, Model, reference
x, state = torch.randn(48, 96), ({"k": torch.randn(3)}, 2)
model, theirs = Model(), reference.Model()
for call in (model, torch.compile(model, fullgraph=True)):
    got, right = call(x, state=state, scale=1.0), theirs(x, state=state)
    assert type(got) is reference.Answer and type(got.rows) is reference.Pair, got
    assert got.absent is None and list(got.more) == ["y", "was"] and type(got.rows.second) is list
    assert got.more["was"] == right.more["was"] == (torch.Size([48, 96]), 3), got.more
    torch.testing.assert_close(got.rows.first, right.rows.first)
    torch.testing.assert_close(got.more["y"], right.more["y"])
    model(scale=1.0, state=state, x=x)
assert COUNTS["kernel"] == 3 and COUNTS["kernel (compiled)"] == 1, COUNTS
before = COUNTS["kernel"]
model(x, None, state=state, scale=1.0)
model(x, state=state, scale=2.0)
model(x, state=(state[0], 3), scale=1.0)
model(x, state=[*state], scale=1.0)
model(x, state=({"j": state[0]["k"]}, 2), scale=1.0)
assert COUNTS["kernel"] == before, COUNTS
"""


def test_a_packed_call_and_result_stay_as_they_are(material, softmax, outside, tmp_path):
    made = material(SOURCE, softmax[1], PLAN)
    assert [spec.name for spec in made.task.inputs] == ["x", "state_0_k", "state_1", "scale"]
    folder = export_folder(made, tmp_path / "packed")
    outside(USE, folder, cwd=tmp_path)
    shown = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert "model(x=x, state=({'k': state_0_k}, 2), scale=1.0)" in shown
    begin = "import sys, torch\nx, state_0_k = torch.randn(48, 96), torch.randn(3)\n"
    outside(f"{begin}sys.path.insert(0, sys.argv[1])\n{shown}", tmp_path, cwd=tmp_path)
    outside(
        "import runpy, sys\nsys.argv = ['verify.py', '--no-timing']\n"
        "runpy.run_path('verify.py', run_name='__main__')",
        cwd=folder,
    )


OWN_CLASS = """
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import nn


class Padded(NamedTuple):
    rows: torch.Tensor
    filled: torch.Tensor


class Model(nn.Module):
    def forward(self, padded: Padded, more):
        return torch.softmax(padded.rows, dim=-1)


def get_inputs():
    return [Padded(torch.randn(48, 96), torch.ones(48)), OrderedDict(gain=2.0)]
"""


def test_an_argument_may_be_of_a_class_of_the_file(material, softmax, outside, tmp_path):
    plan = PLAN.replace("x, state_0_k, state_1, scale", "x, filled, gain").replace("y, y, y", "y")
    folder = export_folder(material(OWN_CLASS, softmax[1], plan), tmp_path / "own")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from collections import OrderedDict
from module import COUNTS, Model, reference
more = OrderedDict(gain=2.0)
padded = reference.Padded(torch.randn(48, 96), torch.ones(48))
torch.testing.assert_close(Model()(padded, more), reference.Model()(padded, more))
Model()(tuple.__new__(type("Padded", (reference.Padded,), {}), padded), more)
assert COUNTS["kernel"] == 1 and sum(COUNTS.values()) == 2, COUNTS
"""
    outside(code, folder, cwd=tmp_path)
    shown = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    begin = "import sys, torch\npadded_rows, padded_filled = torch.randn(48, 96), torch.ones(48)\n"
    outside(f"{begin}sys.path.insert(0, sys.argv[1])\n{shown}", tmp_path, cwd=tmp_path)


def test_gradients_of_a_packed_result_are_the_references(material, softmax, outside, tmp_path):
    folder = export_folder(material(SOURCE, softmax[1], PLAN), tmp_path / "packed")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, module
from module import COUNTS, Model, reference
module.GRADIENTS = "recompute"
x, state = torch.randn(48, 96), ({"k": torch.randn(3)}, 2)
found = []
for model in (Model(), reference.Model()):
    given = x.clone().requires_grad_()
    got = model(given, state=state, scale=1.0)
    assert type(got) is reference.Answer, got
    (got.rows.first.pow(2).sum() + got.more["y"].exp().sum()).backward()
    found.append(given.grad)
torch.testing.assert_close(*found)
assert COUNTS == {"kernel (recorded)": 1}, COUNTS
"""
    outside(code, folder, cwd=tmp_path)


def test_a_benchmark_s_one_file_takes_plain_tensors_only(material, softmax):
    with pytest.raises(ExportRefusedError, match="takes and returns plain tensors"):
        kernelbench(material(SOURCE, softmax[1], PLAN))


BUILT = """
import time

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return torch.softmax(x, dim=-1)


def make_model():
    torch.manual_seed(time.time_ns())
    return Scaled()


def get_inputs():
    return [torch.randn(48, 96)]
"""


def test_a_model_that_was_built_comes_home_with_its_weights(material, softmax, outside, tmp_path):
    made = material(BUILT, *softmax[1:], entry="make_model", makes=True)
    folder = export_folder(made, tmp_path / "built")
    assert "`weights.pt` holds the" in (folder / "README.md").read_text()
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from built import COUNTS, make_model
one, other = make_model(), make_model()
assert torch.equal(one.unused, other.unused) and one.unused is not other.unused
saved = torch.load(sys.argv[1] + "/built/weights.pt", weights_only=True)
assert torch.equal(one.unused, saved["unused"])
x = torch.randn(48, 96)
with torch.no_grad():
    torch.testing.assert_close(one(x), torch.softmax(x, dim=-1))
assert COUNTS == {"kernel": 1}, COUNTS
"""
    outside(code, tmp_path, cwd=tmp_path)
    shown = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    begin = "import sys, torch\nsys.path.insert(0, sys.argv[1])\nx = torch.randn(48, 96)\n"
    outside(f"{begin}{shown}\nassert y.shape == (48, 96)", tmp_path, cwd=tmp_path)
    outside(
        "import runpy, sys\nsys.argv = ['verify.py', '--no-timing']\n"
        "runpy.run_path('verify.py', run_name='__main__')",
        cwd=folder,
    )
