"""Tables that a forward writes down are no weights of the user's module; exports carry them."""

from kernelwright.tools.export import export_folder, export_kernelbench

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    stride = None

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.stride = torch.tensor([8.0, 16.0, 8.0, 16.0])

    def forward(self, x):
        mean = torch.tensor([0.1, 0.2, 0.3, 0.4], device=x.device)
        return (x - mean) * self.stride


def get_inputs():
    return [torch.randn(48, 4)]


def get_init_inputs():
    return []
"""
KERNEL = """#include "kernelwright.hpp"
extern "C" void scaled(const float* x, const float* mean, const float* stride, float* y, int rows) {
  for (int i = 0; i < 4 * rows; ++i) y[i] = (x[i] - mean[i % 4]) * stride[i % 4];
}
"""
PLAN = """
def forward(x):
    y = empty_like(x)
    mean, stride = weights["c_lifted_tensor_0"], weights["c_stride"]
    launch("scaled", args=(x, mean, stride, y, x.shape[0]))
    return y
"""


def test_kernels_run_on_the_tables_of_the_forward(material, outside, tmp_path):
    folder = export_folder(material(SOURCE, KERNEL, PLAN), tmp_path / "tables")
    code = """
import copy, sys
sys.path.insert(0, sys.argv[1])
import torch
from tables import COUNTS, Model
from tables.module import reference
model, x = Model().requires_grad_(False), torch.randn(48, 4)
assert list(model.state_dict()) == ["inner.weight", "inner.bias"]
for mine in (model, copy.deepcopy(model)):
    torch.testing.assert_close(mine(x), reference.Model()(x))
assert COUNTS == {"kernel": 2}, COUNTS
"""
    outside(code, tmp_path, cwd=tmp_path)
    outside(
        "import runpy, sys\nsys.argv = ['verify.py', '--no-timing']\n"
        "runpy.run_path('verify.py', run_name='__main__')",
        cwd=folder,
    )


def test_a_benchmark_s_one_file_has_them_too(material, outside, tmp_path):
    path = export_kernelbench(material(SOURCE, KERNEL, PLAN), tmp_path / "new.py")
    code = """
import sys, torch
space = {}
exec(open(sys.argv[1]).read(), space)
x = torch.randn(48, 4)
with torch.no_grad():
    torch.testing.assert_close(space["ModelNew"]()(x), space["Model"]()(x))
"""
    outside(code, path, cwd=tmp_path)
