"""An export of a module that draws random numbers draws the module's own, and checks itself so."""

from kernelwright.tools.export import export_folder
from kernelwright.tools.export.gradients import gradients_of
from kernelwright.tools.languages import in_mode

NOISY = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x * torch.rand(48, 96) + torch.randn_like(x))


def get_inputs():
    return [torch.randn(48, 96)]


def get_init_inputs():
    return []
"""
KERNEL = """
#include <cmath>
extern "C" void noisy(const float* x, const float* scale, const float* noise, float* y,
                      long long n) {
  for (long long i = 0; i < n; ++i) y[i] = std::tanh(x[i] * scale[i] + noise[i]);
}
"""
PLAN = """
def forward(x):
    %s
    y = empty_like(x)
    launch("noisy", args=(x, scale, noise, y, x.numel()))
    return y
"""
SCALE, NOISE = "scale = aten.rand([48, 96])", "noise = aten.randn([48, 96])"


VERIFY = """
import runpy, sys
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""


def test_it_verifies_under_the_same_state_of_the_generators(material, outside, tmp_path):
    made = material(NOISY, KERNEL, PLAN % f"{SCALE}\n    {NOISE}")
    outside(VERIFY, cwd=export_folder(made, tmp_path / "right"))


def test_another_order_of_draws_is_found_by_its_own_check(material, outside, tmp_path):
    made = material(NOISY, KERNEL, PLAN % f"{NOISE}\n    {SCALE}")
    outside(VERIFY, cwd=export_folder(made, tmp_path / "wrong"), status=1)


def test_a_second_forward_in_the_backward_would_draw_other_numbers(material):
    found = gradients_of(material(NOISY, KERNEL, PLAN % f"{SCALE}\n    {NOISE}"))
    assert "draws random numbers" in found.refused


def test_torch_compile_is_no_way_to_call_it_as_that_draws_other_numbers(material, tmp_path):
    made = material(NOISY, KERNEL, PLAN % f"{SCALE}\n    {NOISE}")
    graph = made.model_copy(update={"candidate": in_mode(made.candidate, "graph")})
    text = (export_folder(graph, tmp_path / "graph") / "module.py").read_text()
    assert '_MODES = ("eager", "graph")' in text
    assert '"compile"' not in text
