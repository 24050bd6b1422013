"""An export with more tensors than an operator of torch's takes arguments: it takes a list."""

from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.export import OwnBackward, export_files, export_folder
from kernelwright.tools.export.render import _operator_hash
from kernelwright.tools.languages import in_mode
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types.backward import Backward

MANY = 150

SOURCE = f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.factors = nn.ParameterList([torch.rand(6) / {MANY} for _ in range({MANY})])

    def forward(self, x):
        total = self.factors[0]
        for factor in list(self.factors)[1:]:
            total = total + factor
        return x * total


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
"""

NUMBERS = range(MANY)
GIVEN = ", ".join(f"const float* p{n}" for n in NUMBERS)
TOTAL = " + ".join(f"p{n}[c]" for n in NUMBERS)

KERNEL = f"""#include "kernelwright.hpp"
extern "C" void scaled(const float* x, {GIVEN}, float* y, int rows, int columns) {{
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] * ({TOTAL});
}}
"""

WEIGHTS = ", ".join(f'weights["factors.{n}"]' for n in NUMBERS)
PLAN = f"""
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("scaled", args=(x, {WEIGHTS}, y, rows, columns))
    return y
"""

# The gradients of x and of every factor, of which all are the same.
BACKWARD_KERNEL = f"""#include "kernelwright.hpp"
extern "C" void gradients(const float* x, {GIVEN}, const float* g, float* of_x, float* of_factor,
                          int rows, int columns) {{
  for (int c = 0; c < columns; ++c) {{
    of_factor[c] = 0;
    for (int r = 0; r < rows; ++r) {{
      of_x[r * columns + c] = g[r * columns + c] * ({TOTAL});
      of_factor[c] += g[r * columns + c] * x[r * columns + c];
    }}
  }}
}}
"""

BEGIN = """
reference, mine = theirs.Model(), module.Model()
mine.load_state_dict(reference.state_dict())
x = theirs.get_inputs()[0].requires_grad_()

def same(run, how):
    a, b = run(x), reference(x)
    torch.testing.assert_close(a, b)
    g = torch.randn_like(a)
    mines = torch.autograd.grad(a, (x, *mine.parameters()), g)
    for one, other in zip(mines, torch.autograd.grad(b, (x, *reference.parameters()), g)):
        torch.testing.assert_close(one, other)
    assert how in module.COUNTS, module.COUNTS
"""


@pytest.fixture(scope="module")
def many(material):
    return material(SOURCE, KERNEL, PLAN)


@pytest.fixture(scope="module")
def exported(many, tmp_path_factory):
    return export_folder(many, tmp_path_factory.mktemp("home") / "many")


def backward_plan(found: Backward) -> str:
    """The gradients in the order in which the export hands them out."""
    names = [f"x{number}" for number in range(len(found.reads))]
    places = {item.place: item.kind for item in found.gives}
    returned = ["of_x" if places[at] == "input" else "of_factor" for at in sorted(places)]
    return f"""
def forward({", ".join(names)}):
    rows, columns = x0.shape
    of_x = empty_like(x0)
    of_factor = empty_like(x1)
    launch("gradients", args=({", ".join(names)}, of_x, of_factor, rows, columns))
    return {", ".join(returned)}
"""


@pytest.fixture(scope="module")
def own(many, material, tmp_path_factory):
    found = backward_of(Reference.build(many.task, "cpu"), many.task, [torch.randn(4, 6)])
    slow = found.model_copy(update={"step_ms": 100.0})
    backward = material(found.source, BACKWARD_KERNEL, backward_plan(found), forced=True)
    whole = many.model_copy(update={"backward": OwnBackward(found=slow, material=backward)})
    return export_folder(whole, tmp_path_factory.mktemp("home") / "own")


VERIFY = """
import runpy, sys
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""


def test_it_runs_the_kernels_and_recomputes_gradients(exported, outside, taken_home, tmp_path):
    code = """
with torch.no_grad():
    torch.testing.assert_close(mine(x), reference(x))
assert module.COUNTS == {"kernel": 1}, module.COUNTS
assert len(module.OPERATOR._schema.arguments) == 1
same(mine, "reference: gradient")
module.GRADIENTS = "recompute"
same(mine, "kernel (recorded)")
whole = torch.compile(mine, fullgraph=True, backend="aot_eager")
with torch.no_grad():
    torch.testing.assert_close(whole(x), reference(x))
assert module.COUNTS["kernel (compiled)"] == 1, module.COUNTS
torch.library.opcheck(module.OPERATOR, ([t.detach() for t in (x, *mine.parameters())],),
                      test_utils=("test_schema", "test_faketensor"))
"""
    taken_home(BEGIN + code, exported, cwd=tmp_path)
    assert "WRONG" not in outside(VERIFY, cwd=exported)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_training_runs_both_kernels(own, taken_home, tmp_path, backend):
    code = f"""
assert len(module.backward.OPERATOR._schema.arguments) == 1
same(torch.compile(mine, fullgraph=True, backend="{backend}"), "kernel (compiled)")
assert module.backward.COUNTS == {{"kernel (compiled)": 1}}, module.backward.COUNTS
mine.factors[3].requires_grad_(False)              # a gradient of the list that nobody wants
torch._dynamo.reset()
torch.compile(mine, fullgraph=True, backend="{backend}")(x).sum().backward()
assert mine.factors[3].grad is None and mine.factors[4].grad is not None
"""
    taken_home(BEGIN + code, own, cwd=tmp_path)


def test_training_runs_both_kernels(own, outside, taken_home, tmp_path):
    code = """
same(mine, "kernel (recorded)")
assert module.backward.COUNTS == {"kernel": 1}, module.backward.COUNTS
"""
    taken_home(BEGIN + code, own, cwd=tmp_path)
    said = outside(VERIFY, cwd=own)
    assert "gradients 'own'" in said
    assert "WRONG" not in said


@pytest.mark.exhaustive
def test_its_launch_inside_torch_compile_takes_lists(many, taken_home, tmp_path):
    timed = many.model_copy(update={"candidate": in_mode(many.candidate, "compile")})
    code = """
import warnings
warnings.simplefilter("error", UserWarning)
with torch.no_grad():
    for _ in range(2):
        torch.testing.assert_close(mine(x), reference(x))
assert module.COUNTS == {"kernel": 2}, module.COUNTS
"""
    taken_home(BEGIN + code, export_folder(timed, tmp_path / "modes"), cwd=tmp_path)


def test_few_tensors_are_arguments_of_their_own(material):
    text = export_files(material())["module.py"]
    assert 'schema = "(Tensor x) -> Tensor"' in text
    assert "of_list" not in text


def test_an_operator_is_called_by_the_whole_steps_kernels():
    """torch.compile looks a backward up by the forward's graph, in which this name stands."""

    def kernels(id, backward=None):
        one = SimpleNamespace(id=id), SimpleNamespace(source_sha256="0")
        return SimpleNamespace(candidate=one[0], task=one[1], backward=backward)

    def step(backward, forward=None):
        return SimpleNamespace(material=kernels(backward), forward=forward)

    names = {
        _operator_hash(kernels("a")),
        _operator_hash(kernels("a", step("b"))),
        _operator_hash(kernels("a", step("c"))),
        _operator_hash(kernels("a", step("c", kernels("d")))),
    }
    assert len(names) == 4
    assert _operator_hash(kernels("a", step("b"))) in names
