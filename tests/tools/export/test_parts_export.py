"""A model that is faster in parts keeps its own forward; its parts fall back by themselves."""

import pytest

from kernelwright.tools.export import ExportRefusedError, export_folder, export_kernelbench

GATED = """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(96))

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.scale


class Model(nn.Module):
    def __init__(self, turned=False):
        super().__init__()
        self.first, self.last, self.turned = Scaled(), Scaled(), turned

    def forward(self, x):
        x = self.first(x)
        return self.last(x) if x.sum().item() > 0 else x


def get_inputs():
    return [torch.randn(48, 96)]
"""
PLAN = """
def part_0(x0):
    rows, columns = x0.shape
    y = empty_like(x0)
    launch("softmax_rows", args=(x0, y, rows, columns))
    return aten.mul(y, weights["first.scale"])

def forward(x):
    return reference(x)
"""


def test_parts_run_kernels_and_the_rest_stays_as_it_was(material, softmax, outside, tmp_path):
    folder = export_folder(material(GATED, softmax[1], PLAN), tmp_path / "gated")
    code = """
import copy, sys
sys.path.insert(0, sys.argv[1])
import torch
from module import COUNTS, Model, reference
x = torch.randn(48, 96)
mine, theirs = Model(), reference.Model()
mine.load_state_dict(theirs.state_dict())
with torch.no_grad():
    torch.testing.assert_close(mine(x), theirs(x))
    assert COUNTS == {"kernel": 1}, COUNTS
    torch.testing.assert_close(mine(x[:5]), theirs(x[:5]))
    assert COUNTS["reference: shape"] == 1, COUNTS
    other = copy.deepcopy(mine)
    other.first.scale.zero_()
    assert not other(x).any() and mine(x).any()
    assert COUNTS["kernel"] == 3, COUNTS
    torch.testing.assert_close(torch.compile(mine, backend="eager")(x), theirs(x))
assert COUNTS["kernel"] == 3, COUNTS
mine(x).sum().backward()
assert COUNTS["reference: gradient"] == 1 and mine.first.scale.grad.any()
with torch.no_grad():
    Model(turned=True)(x)
assert COUNTS["reference: constructor arguments"] == 1 and COUNTS["kernel"] == 3, COUNTS
"""
    outside(code, folder, cwd=tmp_path)
    outside(
        "import runpy, sys\nsys.argv = ['verify.py', '--no-timing']\n"
        "runpy.run_path('verify.py', run_name='__main__')",
        cwd=folder,
    )


def test_a_submission_of_one_forward_is_refused(material, softmax, tmp_path):
    with pytest.raises(ExportRefusedError, match="faster in parts"):
        export_kernelbench(material(GATED, softmax[1], PLAN), tmp_path / "new.py")


def test_a_plan_that_computes_no_part_is_not_exported(material, softmax, tmp_path):
    plan = "def forward(x):\n    return reference(x)\n"
    with pytest.raises(ExportRefusedError, match="no part of the model"):
        export_folder(material(GATED, softmax[1], plan), tmp_path / "gated")
