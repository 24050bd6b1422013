"""Tables that a forward writes down are no weights of the user's module; exports carry them."""

import re

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


BUILT = """
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)[:, [3, 0, 95]] * torch.tensor([1.0, 2.0, 3.0])
"""
BUILT_KERNEL = """#include "kernelwright.hpp"
extern "C" void picked(const float* x, const long long* places, const float* factors, float* y) {
  for (long long r = 0; r < 48; ++r) {
    float sum = 0;
    for (long long c = 0; c < 96; ++c) sum += std::exp(x[r * 96 + c]);
    for (long long c = 0; c < 3; ++c)
      y[r * 3 + c] = std::exp(x[r * 96 + places[c]]) / sum * factors[c];
  }
}
"""


def test_tensors_that_a_forward_builds_are_the_exports_own(material, softmax, outside, tmp_path):
    source = re.sub(r"class Model.*?\n\n\n", f"{BUILT}\n\n", softmax[0], flags=re.DOTALL)
    names = [weight.name for weight in material(source).task.weights]
    plan = f"""
def forward(x):
    y = empty((48, 3), dtype="float32")
    launch("picked", args=(x, weights["{names[0]}"], weights["{names[1]}"], y))
    return y
"""
    folder = export_folder(material(source, BUILT_KERNEL, plan), tmp_path / "built")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
import module
mine, reference = module.Model(), module.reference.Model()
assert not dict(mine.named_buffers())
x = torch.randn(48, 96)
torch.testing.assert_close(mine(x), reference(x))
torch.testing.assert_close(torch.compile(mine)(x), reference(x))
assert not any("reference" in why for why in module.COUNTS), module.COUNTS
"""
    outside(code, folder, cwd=tmp_path)
