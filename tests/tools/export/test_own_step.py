"""An export whose training step has a forward of its own, which keeps products for the backward."""

import re
import runpy
from pathlib import Path

import pytest
import torch

from kernelwright.tools.export import OwnBackward, export_folder
from kernelwright.tools.export.gradients import gradients_of, training_of, why_not_own
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types.backward import BackwardRead

SUITE = Path(__file__).resolve().parents[3] / "benchmarks" / "suites" / "real_models.py"

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8, 12))

    def forward(self, x):
        y = x @ self.weight
        return y * y


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return []
"""

KERNEL = """#include "kernelwright.hpp"
extern "C" void square(const float* x, float* y, int count) {
  for (int i = 0; i < count; ++i) y[i] = x[i] * x[i];
}
"""

PLAN = """
def forward(x):
    made = aten.mm(x, weights["weight"])
    rows, columns = made.shape
    y = empty_like(made)
    launch("square", args=(made, y, rows * columns))
    return y
"""

STEP_PLAN = """
def forward(x0, x1):
    made = aten.mm(x0, x1)
    rows, columns = made.shape
    y = empty_like(made)
    launch("square", args=(made, y, rows * columns))
    return y, aten.t(aten.mm(aten.t(x1), aten.t(x0)))  # kept, but laid out as nobody expects
"""

BACKWARD_KERNEL = """#include "kernelwright.hpp"
extern "C" void square_backward(const float* kept, const float* g, float* d, int count) {
  for (int i = 0; i < count; ++i) d[i] = 2 * g[i] * kept[i];
}
"""

BACKWARD_PLAN = """
def forward(x0, x1, x2, x3):
    rows, columns = x2.shape
    d = empty_like(x2)
    launch("square_backward", args=(x2, x3, d, rows * columns))
    of_input = aten.mm(d, aten.t(x1))
    of_weight = aten.mm(aten.t(x0), d)
    return RETURNED
"""

BEGIN = """
reference, mine = module.reference.Model(), module.Model()
mine.load_state_dict(reference.state_dict())
torch.manual_seed(0)
x, g = torch.randn(16, 8, requires_grad=True), torch.randn(16, 12)


def same(called):
    for a, b in zip(*(torch.autograd.grad(m(x), (x, m.weight), g) for m in (called, reference))):
        torch.testing.assert_close(a, b)
"""


@pytest.fixture(scope="module")
def own_step(material):
    made = material(SOURCE, KERNEL, PLAN)
    found = backward_of(Reference.build(made.task, "cpu"), made.task, [torch.randn(16, 8)])
    assert (found.kept, len(found.reads), len(found.forward_reads)) == (1, 4, 2)
    places = sorted(found.gives, key=lambda item: item.place)
    plan = BACKWARD_PLAN.replace("RETURNED", ", ".join(f"of_{item.kind}" for item in places))
    step = OwnBackward(
        found=found.model_copy(update={"step_ms": 100.0}),
        material=material(found.source, BACKWARD_KERNEL, plan, forced=True),
        forward=material(found.forward, KERNEL, STEP_PLAN, forced=True),
    )
    return made, step


@pytest.fixture(scope="module")
def own(own_step, tmp_path_factory):
    made, step = own_step
    whole = made.model_copy(update={"backward": step})
    return export_folder(whole, tmp_path_factory.mktemp("home") / "own")


def test_what_the_forward_keeps_is_given_to_the_backward(own, taken_home, tmp_path):
    code = """
assert module.GRADIENTS == "own"
same(mine)
assert module.COUNTS == {"kernel (recorded)": 1}, module.COUNTS
assert module.forward.COUNTS == module.backward.COUNTS == {"kernel": 1}, module.forward.COUNTS
y = mine(x)
module.GRADIENTS = "recompute"                    # switched between the two: both are right
(a,) = torch.autograd.grad(y, x, g)
torch.testing.assert_close(a, torch.autograd.grad(reference(x), x, g)[0])
y = mine(x)                                       # nothing is kept
module.GRADIENTS = "own"
(a,) = torch.autograd.grad(y, x, g)
torch.testing.assert_close(a, torch.autograd.grad(reference(x), x, g)[0])
assert module.backward.COUNTS == {"kernel": 1}, module.backward.COUNTS
module.GRADIENTS = "own_forward"
same(mine)
assert (module.forward.COUNTS["kernel"], module.backward.COUNTS["kernel"]) == (3, 1)
module.GRADIENTS = "own_backward"
same(mine)
assert (module.forward.COUNTS["kernel"], module.backward.COUNTS["kernel"]) == (3, 2)
seconds = []
for m in (mine, reference):
    (a,) = torch.autograd.grad(m(x), x, g, create_graph=True)
    seconds.append(torch.autograd.grad(a.square().sum(), x)[0])
torch.testing.assert_close(*seconds)
"""
    taken_home(BEGIN + code, own, cwd=tmp_path)


def test_a_graph_of_torch_compile_s_and_the_choice_of_it_run_the_reference(
    own, taken_home, tmp_path
):
    code = """
torch.compile = __import__("functools").partial(torch.compile, backend="aot_eager")
whole = torch.compile(mine)
(a,) = torch.autograd.grad(whole(x), x, g)
torch.testing.assert_close(a, torch.autograd.grad(reference(x), x, g)[0])
module.GRADIENTS = "compile"
same(mine)
assert module.COUNTS == {"reference (compiled)": 1}, module.COUNTS
"""
    taken_home(BEGIN + code, own, cwd=tmp_path)


def module_choices(folder):
    (line,) = re.findall(r"^_CHOICES = \((.*)\)$", (folder / "module.py").read_text(), re.MULTILINE)
    return {word.strip('" ') for word in line.split(",")}


def test_verify_times_whole_steps_and_writes_the_fastest_certain_way(own, outside):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--steps", "--choose", "--no-compile", "--seconds", "0.1"]
runpy.run_path("verify.py", run_name="__main__")
"""
    said = outside(code, cwd=own)
    assert "WRONG" not in said
    assert re.search(r"against eager, GRADIENTS 'own' +[\d.]+x, 95 % interval", said)
    (chosen,) = re.findall(r"module.py has GRADIENTS = '(\w+)' now", said)
    assert chosen in module_choices(own)
    assert f'\nGRADIENTS = "{chosen}"\n' in (own / "module.py").read_text()


@pytest.mark.parametrize(
    ("interval", "chosen", "end"),
    [
        ("1.010 to 1.030", "own", "faster"),
        ("0.970 to 1.030", "own", "level"),
        ("0.970 to 0.990", "own", "slower"),
        ("0.900 to 1.100", "own", "open"),
        ("1.010 to 1.030", "recompute", "open"),
        ("1.010 to 1.030", "compile", "compile"),
        ("1.010 to 1.030", "", "DEFECT"),
    ],
)
def test_the_suite_of_real_models_reads_what_verify_says_of_steps(interval, chosen, end):
    suite = runpy.run_path(str(SUITE))
    words = f"""
  gradients 'own', own inputs          error 1.20 times the reference's
  against torch.compile, GRADIENTS 'own' 1.020x, 95 % interval {interval}: faster
""" + (f"  module.py has GRADIENTS = '{chosen}' now" if chosen else "")
    row = suite["steps_of"](words) | {"verify": {"exit": 0, "late": False}}
    assert row["gradients"] == {"own": 1.2}
    assert suite["end_of_steps"](row) == end


def test_an_export_whose_gradients_are_the_reference_s_is_no_defect_of_the_suite():
    suite = runpy.run_path(str(SUITE))
    row = suite["steps_of"]("  no gradients by kernels: it draws random numbers")
    row |= {"verify": {"exit": 0, "late": False}}
    assert suite["end_of_steps"](row) == "by_reference"
    assert row["no_gradients"] == "it draws random numbers"


def test_a_direction_that_had_one_look_only_is_exported_and_what_is_lacking_is_named(own_step):
    made, step = own_step
    assert step.forward is not None
    eager = step.forward.baselines.named("eager")
    assert eager is not None
    looked = step.forward.evaluation.model_copy(
        update={"comparisons": (), "screen": eager.measurement}
    )
    forward = step.forward.model_copy(update={"evaluation": looked})
    whole = made.model_copy(update={"backward": step.model_copy(update={"forward": forward})})
    assert not why_not_own(whole)
    training = training_of(whole)
    assert training is not None
    assert training.speedup is not None
    assert not training.pays, "times of different moments decide nothing"
    assert gradients_of(whole).choice == "reference"
    reads = (BackwardRead(kind="weight", name="other"), *step.found.forward_reads[1:])
    found = step.found.model_copy(update={"forward_reads": reads})
    lacks = made.model_copy(update={"backward": step.model_copy(update={"found": found})})
    assert why_not_own(lacks).startswith("a step needs the weight other, which")


def test_a_first_look_that_was_disturbed_claims_no_more_than_its_least_ratio(own_step):
    made, step = own_step
    baselines = step.forward.baselines
    eager = baselines.named("eager")
    disturbed = eager.measurement.model_copy(
        update={"median_ms": 77.0, "p10_ms": 6.5, "p90_ms": 90.0}
    )
    screen = eager.measurement.model_copy(update={"median_ms": 1.0, "p10_ms": 0.9, "p90_ms": 1.3})
    forward = step.forward.model_copy(
        update={
            "evaluation": step.forward.evaluation.model_copy(
                update={"comparisons": (), "screen": screen}
            ),
            "baselines": baselines.model_copy(
                update={"items": (eager.model_copy(update={"measurement": disturbed}),)}
            ),
        }
    )
    whole = made.model_copy(update={"backward": step.model_copy(update={"forward": forward})})
    training = training_of(whole)
    assert training is not None
    took = training.forward_ms - (forward.evaluation.prepare_ms or 0.0)
    assert took == pytest.approx(step.found.eager_step_forward_ms / (6.5 / 1.3))


def test_the_forward_s_ratio_is_of_the_time_of_its_own_file(own_step):
    made, step = own_step
    assert step.found.eager_step_forward_ms > 0
    times = {"eager_forward_ms": 1.0, "eager_step_forward_ms": 8.0, "eager_backward_ms": 2.0}
    found = step.found.model_copy(update=times)
    whole = made.model_copy(update={"backward": step.model_copy(update={"found": found})})
    training = training_of(whole)
    assert training is not None
    (over_eager,) = (c.ratio for c in step.forward.evaluation.comparisons if c.baseline == "eager")
    assert training.forward_ms == pytest.approx(8.0 / over_eager)
    assert training.pays, "a step of 100 ms by PyTorch"
