"""An export with kernels for its gradients: both ways, to the second order, compiled."""

import json
import shutil

import pytest
import torch

from kernelwright.tools.export import OwnBackward, export_folder
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.tasks.reference import Reference

BEGIN = """
reference = module.reference.Model()
mine = module.Model()
torch.manual_seed(0)
x = torch.randn(48, 96, requires_grad=True)
g = torch.randn(48, 96)
"""

BACKWARD_KERNEL = """#include "kernelwright.hpp"
extern "C" void softmax_backward(const float* y, const float* g, float* x, int rows, int columns) {
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int c = 0; c < columns; ++c) sum += double(y[r * columns + c]) * g[r * columns + c];
    for (int c = 0; c < columns; ++c)
      x[r * columns + c] = y[r * columns + c] * (g[r * columns + c] - float(sum));
  }
}
"""

BACKWARD_PLAN = """
def forward(x0, x1):
    rows, columns = x0.shape
    x = empty_like(x0)
    launch("softmax_backward", args=(x0, x1, x, rows, columns))
    return x
"""


@pytest.fixture(scope="module")
def own(material, tmp_path_factory):
    made = material()
    reference = Reference.build(made.task, "cpu")
    found = backward_of(reference, made.task, [torch.randn(48, 96)])
    slow = found.model_copy(update={"step_ms": 100.0})  # so that the kernels' step pays
    backward = material(found.source, BACKWARD_KERNEL, BACKWARD_PLAN, forced=True)
    whole = made.model_copy(update={"backward": OwnBackward(found=slow, material=backward)})
    return export_folder(whole, tmp_path_factory.mktemp("home") / "own")


def test_both_ways_run_kernels_and_second_derivatives_the_reference(own, taken_home, tmp_path):
    code = """
assert module.GRADIENTS == "own"
for upstream in (g, g.t().contiguous().t(), torch.ones(()).expand(48, 96)):
    (a,) = torch.autograd.grad(mine(x), x, upstream)
    (b,) = torch.autograd.grad(reference(x), x, upstream)
    torch.testing.assert_close(a, b)
assert module.COUNTS == {"kernel (recorded)": 3}, module.COUNTS
assert module.backward.COUNTS == {"kernel": 3}, module.backward.COUNTS
seconds = []
for m in (mine, reference):
    (a,) = torch.autograd.grad(m(x), x, g, create_graph=True)
    seconds.append(torch.autograd.grad(a.square().sum(), x)[0])
torch.testing.assert_close(*seconds)
assert module.backward.COUNTS == {"kernel": 3}, module.backward.COUNTS
assert not any(name.split(".")[0] == "kernelwright" for name in sys.modules)
"""
    taken_home(BEGIN + code, own, cwd=tmp_path)


def test_a_gradient_that_no_kernel_has_is_recomputed(own, taken_home, tmp_path):
    code = """
module._HAS = (False,)                            # as if x were a buffer
(a,) = torch.autograd.grad(mine(x), x, g)
torch.testing.assert_close(a, torch.autograd.grad(reference(x), x, g)[0])
assert module.COUNTS == {"kernel (recorded)": 1}, module.COUNTS
assert not module.backward.COUNTS, module.backward.COUNTS
"""
    taken_home(BEGIN + code, own, cwd=tmp_path)


@pytest.mark.exhaustive
def test_compiled_both_ways_run_kernels_and_second_derivatives_are_refused(
    own, taken_home, tmp_path
):
    code = """
whole = torch.compile(mine, fullgraph=True, backend="aot_eager")
(a,) = torch.autograd.grad(whole(x), x, g)
(b,) = torch.autograd.grad(reference(x), x, g)
torch.testing.assert_close(a, b)
assert module.COUNTS == {"kernel (compiled)": 1}, module.COUNTS
assert module.backward.COUNTS == {"kernel (compiled)": 1}, module.backward.COUNTS
torch._dynamo.reset()
whole = torch.compile(mine, fullgraph=True, backend="eager")
(a,) = torch.autograd.grad(whole(x), x, g, create_graph=True)
try:
    torch.autograd.grad(a.square().sum(), x)
except RuntimeError as error:
    assert "second derivative" in str(error), error
else:
    raise AssertionError("a second derivative was silently wrong")
"""
    taken_home(BEGIN + code, own, cwd=tmp_path)


def test_verify_compares_gradients_with_float64(own, outside):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""
    said = outside(code, cwd=own)
    assert "gradients 'own'" in said
    assert "gradients 'recompute'" in said
    assert "WRONG" not in said
    kept = json.loads((own / "evidence.json").read_text())
    assert kept["training"]["reference_step_ms"] == 100.0
    assert "## Training" in (own / "VERIFICATION.md").read_text()


def test_verify_fails_wrong_gradients(own, outside, tmp_path):
    wrong = shutil.copytree(own, tmp_path / "wrong")
    kernel = wrong / "backward" / "kernel.cpp"
    kernel.write_text(kernel.read_text().replace("- float(sum)", "- float(sum) * 1.01f"))
    code = """
import runpy, sys
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""
    assert "gradients 'own', own inputs" in (said := outside(code, cwd=wrong, status=1))
    assert "WRONG: the error of input 0 is too large" in said


def test_verify_says_which_gradients_fail_and_compares_the_others(own, outside, tmp_path):
    broken = shutil.copytree(own, tmp_path / "broken")
    module = broken / "module.py"
    words = "def _recomputed(module, tensors, needed, gradients):\n"
    raising = f'{words}    raise RuntimeError("it needs setup_context\\nand more")\n'
    module.write_text(module.read_text().replace(words, raising))
    code = """
import runpy, sys
sys.argv = ["verify.py", "--seconds", "0.1", "--no-compile"]
runpy.run_path("verify.py", run_name="__main__")
"""
    said = outside(code, cwd=broken, status=1)
    (line,) = [n for n in said.splitlines() if "gradients 'recompute', own inputs" in n]
    assert line.endswith("WRONG: it needs setup_context")
    (line,) = [n for n in said.splitlines() if "gradients 'own', own inputs" in n]
    assert "WRONG" not in line
    assert "against eager, time" in said
    assert "Traceback" not in said


SEVERAL_PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("softmax_rows", args=(x, y, rows, columns))
    return y, aten.argmax(x, -1), aten.mul(x, 2.0)
"""

SEVERAL_BACKWARD_PLAN = """
def forward(x0, x1, x2):
    rows, columns = x0.shape
    x = empty_like(x0)
    launch("softmax_backward", args=(x0, x1, x, rows, columns))
    return aten.add(x, aten.mul(x2, 2.0))
"""


@pytest.mark.exhaustive
def test_several_results_have_kernels_for_all_their_gradients(
    material, softmax, taken_home, tmp_path_factory, tmp_path
):
    returned = "y = torch.softmax(x, dim=-1)\n        return y, x.argmax(-1), x * 2.0"
    made = material(
        softmax[0].replace("return torch.softmax(x, dim=-1)", returned), plan=SEVERAL_PLAN
    )
    reference = Reference.build(made.task, "cpu")
    found = backward_of(reference, made.task, [torch.randn(48, 96)])
    slow = found.model_copy(update={"step_ms": 100.0})
    own = material(found.source, BACKWARD_KERNEL, SEVERAL_BACKWARD_PLAN, forced=True)
    whole = made.model_copy(update={"backward": OwnBackward(found=slow, material=own)})
    folder = export_folder(whole, tmp_path_factory.mktemp("home") / "several")
    code = """
assert module.GRADIENTS == "own"
for module_run in (mine, torch.compile(mine, fullgraph=True, backend="aot_eager")):
    for pick in (lambda y, _, z: (y * g).sum() + (z * g.flip(0)).sum(),
                 lambda y, _, z: (z * g).sum()):    # nobody uses the first result
        (a,) = torch.autograd.grad(pick(*module_run(x)), x)
        (b,) = torch.autograd.grad(pick(*reference(x)), x)
        torch.testing.assert_close(a, b)
assert module.COUNTS == {"kernel (recorded)": 2, "kernel (compiled)": 2}, module.COUNTS
assert module.backward.COUNTS == {"kernel": 2, "kernel (compiled)": 2}, module.backward.COUNTS
import runpy, os
os.chdir(folder)
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""
    said = taken_home(BEGIN + code, folder, cwd=tmp_path)
    assert "gradients 'own'" in said
    assert "WRONG" not in said
