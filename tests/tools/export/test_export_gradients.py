"""Gradients of an exported module: by the reference, or recomputed behind the kernels."""

import hashlib
import json
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kernelwright.tools.export import (
    export_files,
    export_folder,
    exported_gradients,
    exported_verify,
)
from kernelwright.tools.tasks import widened
from kernelwright.tools.tasks.loading import watch

BEGIN = """
arguments = theirs.get_init_inputs()
torch.manual_seed(0)
reference = theirs.Model(*arguments)
mine = module.Model(*arguments)
mine.load_state_dict(reference.state_dict())
"""

# Rows by a weight, in float64, so that finite differences can judge first and second derivatives.
SCALED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, dtype=torch.float64) + 0.5)

    def forward(self, x):
        return torch.tanh(x) * self.weight, x.argmax(1)


def get_inputs():
    return [torch.randn(4, 6, dtype=torch.float64)]


def get_init_inputs():
    return []
"""

SCALED_KERNEL = """#include "kernelwright.hpp"
extern "C" void scaled_tanh(const double* x, const double* weight, double* y, int64_t* top,
                            int rows, int columns) {
  for (int r = 0; r < rows; ++r) {
    top[r] = 0;
    for (int c = 0; c < columns; ++c) {
      y[r * columns + c] = std::tanh(x[r * columns + c]) * weight[c];
      if (x[r * columns + c] > x[r * columns + top[r]]) top[r] = c;
    }
  }
}
"""

SCALED_PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    top = empty((rows,), "int64")
    launch("scaled_tanh", args=(x, weights["weight"], y, top, rows, columns))
    return y, top
"""


@pytest.fixture(scope="module")
def scaled(material, tmp_path_factory):
    made = material(SCALED, SCALED_KERNEL, SCALED_PLAN)
    return export_folder(made, tmp_path_factory.mktemp("home") / "scaled")


def test_recomputed_gradients_are_right_to_the_second_order(scaled, taken_home, tmp_path):
    code = """
module.GRADIENTS = "recompute"
x = theirs.get_inputs()[0].requires_grad_()


assert torch.autograd.gradcheck(lambda x: mine(x)[0], x)
assert torch.autograd.gradgradcheck(lambda x: mine(x)[0], x)
y, top = mine(x)
assert y.requires_grad and not top.requires_grad
assert set(module.COUNTS) == {"kernel (recorded)"}, module.COUNTS
parts = [torch.autograd.grad(m(x)[0].square().sum(), (x, m.weight), create_graph=True)
         for m in (mine, reference)]
for a, b in zip(*parts):
    torch.testing.assert_close(a, b)
again = [torch.autograd.grad(sum(p.square().sum() for p in part), (x, m.weight))
         for part, m in zip(parts, (mine, reference))]
for a, b in zip(*again):
    torch.testing.assert_close(a, b)
"""
    taken_home(BEGIN + code, scaled, cwd=tmp_path)


def test_training_follows_the_optimiser_as_the_reference_does(scaled, taken_home, tmp_path):
    code = """
module.GRADIENTS = "recompute"
models = (mine, reference)
steps = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
for seed in range(4):
    torch.manual_seed(seed)
    inputs = theirs.get_inputs()
    for model, step in zip(models, steps):
        step.zero_grad()
        model(*inputs)[0].square().sum().backward()
        step.step()
torch.testing.assert_close(mine.weight, reference.weight)
assert module.COUNTS == {"kernel (recorded)": 4}, module.COUNTS
mine.weight.requires_grad_(False)
x = theirs.get_inputs()[0].requires_grad_()
mine(x)[0].sum().backward()                       # only what is wanted
assert x.grad is not None
y = mine(x)[0]
with torch.no_grad():
    mine.weight.add_(1)                           # autograd sees what was written to
try:
    y.sum().backward()
except RuntimeError as error:
    assert "inplace" in str(error), error
else:
    raise AssertionError("a changed weight went unseen")
"""
    taken_home(BEGIN + code, scaled, cwd=tmp_path)


def test_other_transforms_run_the_reference_whatever_was_chosen(scaled, taken_home, tmp_path):
    code = """
module.GRADIENTS = "recompute"
x = theirs.get_inputs()[0]
value, tangent = torch.func.jvp(lambda x: mine(x)[0], (x,), (torch.ones_like(x),))
torch.testing.assert_close(tangent, (1 - torch.tanh(x) ** 2) * mine.weight)
slope = torch.func.grad(lambda x: mine(x)[0].sum())(x)
torch.testing.assert_close(slope, tangent)
assert module.COUNTS == {"reference: mode": 2}, module.COUNTS
try:
    module.GRADIENTS = "recomputed"
    mine(x)
except ValueError as error:
    assert "GRADIENTS is one of" in str(error)
else:
    raise AssertionError("a wrong word was taken")
module.GRADIENTS = "reference"
mine(x)[0].sum().backward()
assert module.COUNTS["reference: gradient"] == 1
"""
    taken_home(BEGIN + code, scaled, cwd=tmp_path)


@pytest.mark.exhaustive
def test_compiled_training_is_traced_as_the_reference(scaled, taken_home, tmp_path):
    code = """
module.GRADIENTS = "recompute"
whole = torch.compile(mine, fullgraph=True)
x = theirs.get_inputs()[0].requires_grad_()
a = torch.autograd.grad(whole(x)[0].sum(), (x, mine.weight))
b = torch.autograd.grad(reference(x)[0].sum(), (x, reference.weight))
for one, other in zip(a, b):
    torch.testing.assert_close(one, other)
"""
    taken_home(BEGIN + code, scaled, cwd=tmp_path)


def test_a_module_that_updates_buffers_has_no_choice(material, busy):
    files = export_files(material(*busy))
    assert "GRADIENTS =" not in files["module.py"]
    assert "updates buffers" in files["VERIFICATION.md"]


FROZEN = """
def make_model():
    return Model().requires_grad_(False)
"""


def verified(folder, outside, *arguments):
    """What verify.py says with these arguments; 0 is its end, or 1 where it times the forward."""
    code = f"""
import runpy, sys
sys.argv = {["verify.py", *arguments]!r}
try:
    runpy.run_path("verify.py", run_name="__main__")
except SystemExit as ended:
    assert ended.code == 0 or (ended.code == 1 and not {{"--steps", "--no-timing"}} & {{*sys.argv}})
"""
    return outside(code, cwd=folder)


def test_inputs_have_gradients_where_all_parameters_of_a_built_model_are_frozen(
    material, outside, tmp_path
):
    made = material(SCALED + FROZEN, SCALED_KERNEL, SCALED_PLAN, entry="make_model", makes=True)
    folder = export_folder(made, tmp_path / "frozen")
    said = verified(folder, outside, "--no-timing")
    assert "gradients 'recompute', own inputs" in said
    assert "gradients 'compile'" not in said, "it takes long, and nobody asked for its step"
    said = verified(folder, outside, "--steps", "--no-compile", "--seconds", "0.1")
    assert "against eager, GRADIENTS 'recompute'" in said


def test_a_backward_of_parameters_is_not_compared_where_all_of_them_are_frozen():
    exported = SimpleNamespace(_CHOICES=("reference", "compile", "recompute", "own", "own_forward"))
    evidence = {"task": {"entry_kind": "built"}}
    pair = SimpleNamespace(exported=exported, evidence=evidence, reference=nn.Linear(2, 2))
    assert exported_gradients._to_check(pair, True) == [*exported._CHOICES[1:]]
    pair.reference.requires_grad_(False)
    assert exported_gradients._to_check(pair, False) == ["recompute"]


def test_steps_of_an_export_that_nobody_trains_are_timed_only_when_asked(scaled, outside):
    said = verified(scaled, outside, "--no-compile", "--seconds", "0.1")
    assert "gradients 'recompute', own inputs" in said
    assert "training step" not in said


def test_a_choice_is_written_with_its_reason_and_the_evidence_holds_again(
    material, outside, tmp_path
):
    folder = export_folder(material(SCALED, SCALED_KERNEL, SCALED_PLAN), tmp_path / "chosen")
    kept = json.loads((folder / "evidence.json").read_text())
    verified(folder, outside, "--choose", "--steps", "--no-compile", "--seconds", "0.1")
    text = (folder / "module.py").read_text()
    (why,) = re.findall("^# Why this one: (.*)$", text, re.MULTILINE)
    assert why.startswith("by `verify.py --choose`, ")
    now = json.loads((folder / "evidence.json").read_text())
    assert now["files_sha256"]["module.py"] == hashlib.sha256(text.encode()).hexdigest()
    kept["files_sha256"]["module.py"] = now["files_sha256"]["module.py"]
    assert now == kept


def test_only_ways_that_may_be_the_fastest_are_timed_closely(monkeypatch):
    looks = {
        "compile": [1.0, 1.01],
        "recompute": [0.9, 1.2],
        "own": [0.7, 0.8],
        "own_forward": [1.1, 1.3],
        "own_backward": "no room",
    }
    said = []
    verify = SimpleNamespace(say=said.append)
    monkeypatch.setattr(exported_gradients, "_ratios", lambda *given: looks[given[3]])
    found = exported_gradients._closely(verify, None, [], 3.0, [*looks], lambda: None)
    assert found == ["recompute", "own", "own_forward"]
    assert said[0] == "  a first look at GRADIENTS 'compile': 1.005x eager's"
    assert said[-1] == "  GRADIENTS 'own_backward' could not run: no room"
    assert exported_gradients._closely(verify, None, [], 3.0, [], lambda: None) == []


def test_what_the_check_compiled_is_what_steps_are_timed_beside(monkeypatch):
    forward, module = object(), nn.Linear(2, 2)
    pair = SimpleNamespace(
        exported=SimpleNamespace(_compiled_reference=lambda: lambda *given: (forward, *given)),
        module=module,
        reference=nn.Linear(2, 2),
    )
    monkeypatch.setattr(exported_gradients, "_step", lambda *given: given)
    step = exported_gradients._compiled_step(None, pair, [], ["compile", "own"])
    assert step[2](1, two=2) == (forward, module, (1,), {"two": 2})
    assert step[3] is module
    step = exported_gradients._compiled_step(None, pair, [], ["own"])
    assert step[3] is pair.reference


def test_an_export_that_only_runs_the_reference_says_so_when_its_steps_are_asked_for(
    material, busy, outside, tmp_path
):
    folder = export_folder(material(*busy), tmp_path / "busy")
    said = verified(folder, outside, "--steps", "--choose", "--no-compile")
    assert "no gradients by kernels: it updates buffers, which" in said
    assert "no gradients" not in verified(folder, outside, "--no-timing")


def test_a_way_that_fails_without_words_is_said_by_its_kind():
    assert exported_verify.in_short(RuntimeError()) == "RuntimeError()"
    assert exported_verify.in_short(ValueError("first\nsecond")) == "first"


def test_gradients_of_complex_weights_are_compared_part_by_part():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = nn.Parameter(torch.randn(5, dtype=torch.cfloat))

        def forward(self, x):
            return (x * self.factors).abs()

    verify = SimpleNamespace(flat=lambda result: [result], run=lambda _, module, x: module(*x))
    pair = SimpleNamespace(exported=None, evidence={"task": {"entry_kind": "kernelbench"}})
    found = exported_gradients._gradients(verify, pair, Turned(), [torch.randn(3, 5)])
    assert found["factors"].shape == (5, 2)
    assert {value.dtype for value in found.values()} == {torch.float32}


class Rounds(torch.autograd.Function):
    """Doubles, in a type that forward and backward name."""

    @staticmethod
    def forward(ctx, x):
        return x.float() * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient.float() * 2


def test_what_gradients_are_held_against_is_in_float64_whatever_types_are_named(monkeypatch):
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = nn.Parameter(torch.rand(5, 3) / 3)

        def forward(self, x):
            counts = torch.zeros(len(x), 5).index_add_(0, torch.arange(len(x)), x)
            return Rounds.apply(counts @ self.factors)

    monkeypatch.setattr(
        exported_verify, "load_module", {"verify_widened": widened, "watch": watch}.__getitem__
    )
    given = {"run": lambda _, module, x: module(*x), "flat": lambda result: [result]}
    verify = SimpleNamespace(**(vars(exported_verify) | given))
    model, x = Counted(), torch.randn(4, 5)
    evidence = {"task": {"entry_kind": "kernelbench"}}
    pair = SimpleNamespace(
        exported=None,
        evidence=evidence,
        module=model,
        reference=model,
        inputs=lambda seed, change: [x],
    )
    theirs, exact = exported_gradients._expected(verify, pair, 0)
    torch.manual_seed(0)
    upstream = torch.randn(4, 3).double() * 2
    torch.testing.assert_close(exact["factors"], x.double().T @ upstream, rtol=0, atol=1e-14)
    assert theirs["factors"].dtype is torch.float32 is torch.get_default_dtype()


CUSTOM = """
import torch
from torch import nn


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2.0
        return x * ctx.factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor


class Model(nn.Module):
    def forward(self, x):
        return Twice.apply(torch.softmax(x, dim=-1)), x.argmax(1)


def get_inputs():
    return [torch.randn(48, 96)]


def get_init_inputs():
    return []
"""
CUSTOM_PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("softmax_rows", args=(x, y, rows, columns))
    return aten.mul(y, 2.0), aten.argmax(x, 1)
"""


@pytest.fixture(scope="module")
def custom(material, softmax, tmp_path_factory):
    made = material(CUSTOM, softmax[1], CUSTOM_PLAN)
    return export_folder(made, tmp_path_factory.mktemp("home") / "custom")


def test_a_custom_function_without_setup_context_is_recomputed(custom, taken_home, tmp_path):
    code = """
module.GRADIENTS = "recompute"
x = theirs.get_inputs()[0].requires_grad_()
mine(x)[0].square().sum().backward()
once = x.grad.clone()
x.grad = None
reference(x)[0].square().sum().backward()
torch.testing.assert_close(once, x.grad)
seconds = []
for model in (mine, reference):
    (slope,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
    seconds.append(torch.autograd.grad(slope.square().sum(), x)[0])
torch.testing.assert_close(*seconds)
assert module.COUNTS == {"kernel (recorded)": 2}, module.COUNTS
"""
    taken_home(BEGIN + code, custom, cwd=tmp_path)


def test_a_custom_function_without_setup_context_is_verified(custom, outside):
    said = verified(custom, outside, "--no-timing")
    assert "gradients 'recompute', own inputs" in said
    assert "WRONG" not in said


def test_a_module_that_was_changed_since_its_forward_is_not_differentiated(
    scaled, taken_home, tmp_path
):
    code = """
module.GRADIENTS = "recompute"
result = mine(theirs.get_inputs()[0])[0].sum()
mine.part = torch.nn.ReLU()
try:
    result.backward()
except RuntimeError as error:
    assert "changed before its backward: part part" in str(error), error
else:
    raise AssertionError("gradients of another module")
"""
    taken_home(BEGIN + code, scaled, cwd=tmp_path)
