"""A training step by kernels of a module that updates buffers: they are written once."""

import re

import pytest
import torch

from kernelwright.tools.export import OwnBackward, export_files, export_folder
from kernelwright.tools.export.gradients import gradients_of, words
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.tasks.reference import Reference

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8, 12))
        self.norm = nn.BatchNorm1d(12)

    def forward(self, x):
        return self.norm(x @ self.weight)


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return []
"""

KERNEL = """#include "kernelwright.hpp"
extern "C" void normed(const float* x, const float* scale, const float* shift, const float* mean0,
                       const float* variance0, float* y, float* mean, float* inverse, float* mean1,
                       float* variance1, int rows, int columns) {
  for (int c = 0; c < columns; ++c) {
    double sum = 0, squares = 0;
    for (int r = 0; r < rows; ++r) sum += x[r * columns + c];
    for (int r = 0; r < rows; ++r) {
      double off = x[r * columns + c] - sum / rows;
      squares += off * off;
    }
    mean[c] = sum / rows;
    inverse[c] = 1 / std::sqrt(squares / rows + 1e-5);
    mean1[c] = 0.9f * mean0[c] + 0.1f * mean[c];
    variance1[c] = 0.9f * variance0[c] + 0.1f * float(squares / (rows - 1));
    for (int r = 0; r < rows; ++r)
      y[r * columns + c] = (x[r * columns + c] - mean[c]) * inverse[c] * scale[c] + shift[c];
  }
}
"""

NORMED = """
    rows, columns = made.shape
    y = empty_like(made)
    mean, inverse = empty((columns,)), empty((columns,))
    mean1, variance1 = empty((columns,)), empty((columns,))
    launch("normed", args=(made, SCALE, SHIFT, MEAN, VARIANCE, y, mean, inverse, mean1, variance1,
                           rows, columns))
"""

PLAN = f"""
def forward(x):
    made = aten.mm(x, weights["weight"])
{NORMED}
    update("norm.running_mean", mean1)
    update("norm.running_var", variance1)
    update("norm.num_batches_tracked", aten.add(weights["norm.num_batches_tracked"], 1))
    return y
"""
for word, name in (
    ("SCALE", "weight"), ("SHIFT", "bias"), ("MEAN", "running_mean"), ("VARIANCE", "running_var"),
):  # fmt: skip
    PLAN = PLAN.replace(word, f'weights["norm.{name}"]')

BACKWARD_KERNEL = """#include "kernelwright.hpp"
extern "C" void normed_backward(const float* x, const float* scale, const float* mean,
                                const float* inverse, const float* g, float* d, float* of_scale,
                                float* of_shift, int rows, int columns) {
  for (int c = 0; c < columns; ++c) {
    double sum = 0, along = 0;
    for (int r = 0; r < rows; ++r) {
      sum += g[r * columns + c];
      along += g[r * columns + c] * (x[r * columns + c] - mean[c]) * inverse[c];
    }
    of_scale[c] = along;
    of_shift[c] = sum;
    for (int r = 0; r < rows; ++r)
      d[r * columns + c] = scale[c] * inverse[c] * (g[r * columns + c] - sum / rows
          - (x[r * columns + c] - mean[c]) * inverse[c] * along / rows);
  }
}
"""

BEGIN = """
reference, mine = module.reference.Model(), module.Model()
mine.load_state_dict(reference.state_dict())
torch.manual_seed(0)
x, g = torch.randn(16, 8, requires_grad=True), torch.randn(16, 12)


def alike():
    for (name, a), b in zip(mine.state_dict().items(), reference.state_dict().values()):
        torch.testing.assert_close(a, b, msg=name)
"""


def _plan(reads, made: str, returned: str) -> str:
    """A plan whose arguments are called as the reads are."""
    names = [f"{read.kind}_{read.name}".replace(".", "_") for read in reads]
    for word, name in (
        ("SCALE", "norm_weight"), ("SHIFT", "norm_bias"), ("MEAN", "norm_running_mean"),
        ("VARIANCE", "norm_running_var"),
    ):  # fmt: skip
        made = made.replace(word, f"weight_{name}")
    return f"def forward({', '.join(names)}):\n{made}\n    return {returned}\n"


@pytest.fixture(scope="module")
def step(material):
    made = material(SOURCE, KERNEL, PLAN)
    found = backward_of(Reference.build(made.task, "cpu"), made.task, [torch.randn(16, 8)])
    assert found.updates == ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    assert found.kept == 3
    forward = _plan(
        found.forward_reads,
        f"    made = aten.mm(input_x, weight_weight)\n{NORMED}",
        "y, mean1, variance1, aten.add(weight_norm_num_batches_tracked, 1), made, mean, inverse",
    )
    of = {
        "x": "of_input",
        "weight": "of_weight",
        "norm.weight": "of_scale",
        "norm.bias": "of_shift",
    }
    places = sorted(found.gives, key=lambda item: item.place)
    backward = _plan(
        found.reads,
        """
    rows, columns = kept_0.shape
    d, of_scale, of_shift = empty_like(kept_0), empty((columns,)), empty((columns,))
    launch("normed_backward", args=(kept_0, SCALE, kept_1, kept_2, gradient_, d, of_scale,
                                    of_shift, rows, columns))
    of_input = aten.mm(d, aten.t(weight_weight))
    of_weight = aten.mm(aten.t(input_x), d)
""",
        ", ".join(of[item.name] for item in places),
    )
    own = OwnBackward(
        found=found.model_copy(update={"step_ms": 100.0}),
        material=material(found.source, BACKWARD_KERNEL, backward, forced=True),
        forward=material(found.forward, KERNEL, forward, forced=True),
    )
    return made, own


@pytest.fixture(scope="module")
def exported(step, tmp_path_factory):
    made, own = step
    whole = made.model_copy(update={"backward": own})
    return export_folder(whole, tmp_path_factory.mktemp("home") / "normed")


def test_a_step_by_kernels_trains_as_the_reference_does(exported, taken_home, tmp_path):
    code = """
assert module.GRADIENTS == "own" and "recompute" not in module._CHOICES
optimisers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (mine, reference)]
for step in range(3):
    for m, optimiser in zip((mine, reference), optimisers):
        optimiser.zero_grad()
        m(x).backward(g)
        optimiser.step()
    alike()
assert mine.norm.num_batches_tracked == 3
assert module.COUNTS == {"kernel (recorded)": 3}, module.COUNTS
assert module.forward.COUNTS == module.backward.COUNTS == {"kernel": 3}, module.forward.COUNTS
for choice in ("own_forward", "own_backward", "reference"):
    module.GRADIENTS = choice
    a, b = (torch.autograd.grad(m(x), (x, m.weight, m.norm.bias), g) for m in (mine, reference))
    for one, other in zip(a, b):
        torch.testing.assert_close(one, other)
    alike()
with torch.no_grad():  # the plain forward's kernels
    torch.testing.assert_close(mine(x), reference(x))
alike()
assert module.COUNTS["kernel"] == 1
mine.eval(), reference.eval()
torch.testing.assert_close(mine(x), reference(x))
alike()
"""
    taken_home(BEGIN + code, exported, cwd=tmp_path)


def test_there_are_no_second_derivatives_as_a_forward_would_run_twice(
    exported, taken_home, tmp_path
):
    code = """
y = mine(x)
try:
    torch.autograd.grad(y, x, g, create_graph=True)
except RuntimeError as error:
    assert 'set GRADIENTS = "reference"' in str(error)
else:
    raise AssertionError("a second derivative was promised")
reference(x)
alike()
torch.compile = __import__("functools").partial(torch.compile, backend="aot_eager")
whole = torch.compile(mine)
(a,) = torch.autograd.grad(whole(x), x, g)
torch.testing.assert_close(a, torch.autograd.grad(reference(x), x, g)[0])
alike()
module.GRADIENTS = "compile"
(a,) = torch.autograd.grad(mine(x), x, g)
torch.testing.assert_close(a, torch.autograd.grad(reference(x), x, g)[0])
alike()
"""
    taken_home(BEGIN + code, exported, cwd=tmp_path)


def test_verify_compares_what_a_step_leaves_in_buffers(exported, outside, tmp_path):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--steps", "--no-compile", "--seconds", "0.1"]
try:
    runpy.run_path("verify.py", run_name="__main__")
except SystemExit as ended:
    print("ended with", ended.code)
"""
    said = outside(code, cwd=exported)
    assert "WRONG" not in said
    assert re.search(r"gradients 'own', another seed +error", said)
    assert re.search(r"against eager, GRADIENTS 'own' +[\d.]+x, 95 % interval", said)
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in exported.rglob("*"):
        if path.is_file():
            target = broken / path.relative_to(exported)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    module = broken / "module.py"
    text = module.read_text()
    late = "'norm.running_var': results[2]"
    assert late in text
    module.write_text(text.replace(late, "'norm.running_var': results[2] * 1.01"))
    said = outside(code, cwd=broken)
    assert re.search(r"'own', .* WRONG: the error of buffer norm.running_var is too large", said)


def test_without_a_backward_of_its_own_such_a_module_has_the_reference_s(step):
    made, own = step
    assert not gradients_of(made).trainable
    assert "it updates buffers, which a second forward" in words(made)
    whole = made.model_copy(update={"backward": own})
    assert gradients_of(whole).trainable
    assert "There are no second derivatives" in words(whole)
    text = export_files(whole)["module.py"]
    assert '_CHOICES = ("reference", "compile", "own", "own_forward", "own_backward")' in text
