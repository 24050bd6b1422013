"""What an export notices: settings, kinds, hooks and ties that are not what was traced."""

import pytest

from kernelwright.tools.export import export_files, export_folder
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

# A module with a setting in itself, in its own parts and in one of torch's; two weights are one.
SOURCE = """
import torch
from torch import nn


class Config:
    def __init__(self, factor=2.0):
        self.factor = factor


class Scaled(nn.Module):
    usual = 1.0
    plan = None

    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(96))
        self.factor, self.calls, self.device = config.factor, 0, "cuda:7"
        self.plan = {}

    def forward(self, x):
        self.calls = self.calls + 1
        return x * self.weight * (self.factor * self.usual)


class Model(nn.Module):
    def __init__(self, config=Config()):
        super().__init__()
        self.layers = nn.ModuleList([Scaled(config), Scaled(config)])
        self.layers[1].weight = self.layers[0].weight
        self.norm, self.flag = nn.LayerNorm(96, elementwise_affine=False), True

    def forward(self, x):
        x = torch.softmax(x, dim=-1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) if self.flag else x


def get_inputs():
    return [torch.randn(48, 96)]
"""
PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("softmax_rows", args=(x, y, rows, columns))
    w = weights["layers.0.weight"]
    y = aten.mul(aten.mul(aten.mul(aten.mul(y, w), 2.0), w), 2.0)
    return aten.layer_norm(y, [96], None, None, 1e-5)
"""
BEGIN = """
from torch import nn
torch.manual_seed(0)
mine, reference = module.Model(), theirs.Model()
mine.load_state_dict(reference.state_dict())
x = torch.randn(48, 96)

def reason(call=None):
    "Why one call ran the reference, whose result it had; kernel where it did not."
    before = module.COUNTS.copy()
    with torch.no_grad():
        call = mine if call is None else call
        torch.testing.assert_close(call(x), reference(x), rtol=1e-4, atol=1e-5)
    (why,) = module.COUNTS - before or ["nothing"]
    return why.removeprefix("reference: ")

assert reason() == "kernel"
"""


@pytest.fixture(scope="module")
def noticing(material, softmax, tmp_path_factory):
    return export_folder(
        material(SOURCE, softmax[1], PLAN), tmp_path_factory.mktemp("home") / "noticing"
    )


def test_a_changed_attribute_of_any_part_runs_the_reference(noticing, taken_home, tmp_path):
    code = """
changes = [("flag", False, True), ("norm.eps", 1.0, 1e-5), ("layers.1.factor", 3.0, 2.0),
           ("layers.0.factor", torch.tensor(3.0), 2.0), ("layers.0.usual", 2.0, 1.0)]
for name, other, before in changes:
    path, _, last = name.rpartition(".")
    for value, why in ((other, f"attribute {name}"), (before, "kernel")):
        for model in (mine, reference):
            setattr(model.get_submodule(path), last, value)
        assert reason() == why, (name, value, reason())
mine.layers[0].calls = 100                       # its own forward counts: nothing reads it
mine.layers[0].device = "cpu"                    # where it is shows in its tensors
mine.layers[0].plan = {"a": 1}                   # what hides a plain value was there before
mine.unheard_of = 3.0
mine.train().eval()
assert reason() == "kernel"
for model in (mine, reference):
    model.norm.__dict__["eps"] = 1.0             # past nn.Module: seen when the mode is set
mine.eval()
assert reason() == "attribute norm.eps"
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


def test_a_configuration_s_value_is_seen_when_it_is_constructed(noticing, taken_home, tmp_path):
    code = """
mine, reference = (of.Model(theirs.Config(5.0)) for of in (module, theirs))
mine.load_state_dict(reference.state_dict())
assert reason() == "attribute layers.0.factor", reason()
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


def test_weights_that_are_tied_no_more_run_the_reference(noticing, taken_home, tmp_path):
    code = """
own = {name: torch.rand(96) for name in mine.state_dict()}
for model in (mine, reference):
    model.load_state_dict(own, assign=True)
assert reason() == "tied weights", reason()
for model in (mine, reference):
    model.layers[0].weight = model.layers[1].weight
assert reason() == "kernel"
for model in (mine, reference):
    model.layers[1].weight = nn.Parameter(torch.ones(96))
assert reason() == "tied weights"
for model in (mine, reference):
    model.layers[1].weight = model.layers[0].weight
assert reason() == "kernel"
whole = torch.compile(mine, backend="eager", fullgraph=True)
for weight, why in ((nn.Parameter(torch.ones(96)), "tied weights"), (None, "kernel")):
    for model in (mine, reference):               # past nn.Module
        model.layers[1]._parameters["weight"] = (
            model.layers[0].weight if weight is None else weight
        )
    assert reason() == why, reason()
    assert reason(whole) == ("kernel (compiled)" if why == "kernel" else "nothing")
parts = {"layers.0.weight": torch.ones(96), "layers.1.weight": torch.zeros(96)}
with torch.no_grad():
    result = torch.func.functional_call(mine, parts, x, tie_weights=False)
assert not result.any() and reason() == "kernel"
mine.double().float()
reference.double().float()
assert reason() == "kernel"
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


def test_hooks_of_parts_and_parts_that_were_replaced_are_seen(noticing, taken_home, tmp_path):
    code = """
def twice(part, args, result):
    return result * 2

for register in ("register_forward_hook", "register_forward_pre_hook"):
    hook = twice if register == "register_forward_hook" else lambda part, args: (args[0] + 1,)
    handles = [getattr(model.layers[1], register)(hook) for model in (mine, reference)]
    assert reason() == "hooks of layers.1", reason()
    [handle.remove() for handle in handles]
    assert reason() == "kernel"
handle = mine.register_forward_hook(lambda part, args, result: result)
assert reason() == "kernel"                       # the module's own runs either way
handle.remove()
handle = torch.nn.modules.module.register_module_forward_hook(lambda *args: None)
assert reason() == "hooks of all modules"
handle.remove()
for model in (mine, reference):
    model.norm = nn.Tanh()
assert reason() == "kind of part norm", reason()
for model in (mine, reference):
    model.norm = nn.LayerNorm(96, eps=0.5, elementwise_affine=False)
assert reason() == "attribute norm.eps", reason()
for model in (mine, reference):
    model.norm.eps = 1e-5                         # a new part is heard as well
assert reason() == "kernel"
for model in (mine, reference):
    model.norm.forward = torch.tanh
assert reason() == "hooks of norm", reason()
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


def test_hooks_of_the_reference_s_own_making_are_no_change(noticing, taken_home, tmp_path):
    code = """
base = module.Model.__mro__[1]
forward = base.forward

def capturing(self, x):                          # as transformers' models do at their first call
    if not self.norm._forward_hooks:
        self.norm.register_forward_hook(lambda *_: None)
    return forward(self, x)

base.forward = capturing
with torch.no_grad():
    mine(x[:3])                                  # a shape that was not verified
assert mine.norm._forward_hooks and reason() == "kernel", reason()
mine = module.Model()
mine.load_state_dict(reference.state_dict())
module.GRADIENTS = "recompute"
mine(x.clone().requires_grad_()).sum().backward()
assert mine.norm._forward_hooks and reason() == "kernel", reason()
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


def test_copies_notice_for_themselves(noticing, taken_home, tmp_path):
    code = """
import copy, pickle
original = mine
copies = (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine)), copy.copy(mine))
assert type(vars(pickle.loads(pickle.dumps(mine.norm)))["_buffers"]) is dict
for mine in copies:
    assert reason() == "kernel", reason()
copies[0].norm.eps = copies[1].norm.eps = 1.0
assert reason(original) == "kernel"
reference.norm.eps = 1.0
for mine in copies[:2]:
    assert reason() == "attribute norm.eps"
again = copy.deepcopy(copies[0])                 # a changed one is not the new measure
assert reason(again) == "attribute norm.eps"
assert type(mine.norm) is nn.LayerNorm
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


def test_a_compiled_call_notices_too(noticing, taken_home, tmp_path):
    code = """
whole = torch.compile(mine, backend="eager", fullgraph=True)
assert reason(whole) == "kernel (compiled)"
for value, why in ((1.0, "nothing"), (1e-5, "kernel (compiled)")):
    for model in (mine, reference):
        model.norm.eps = value
    assert reason(whole) == why, reason(whole)
for model in (mine, reference):
    model.layers[1].weight = nn.Parameter(torch.ones(96))
assert reason(whole) == "nothing"
for model in (mine, reference):
    model.layers[1].weight = model.layers[0].weight
assert reason(whole) == "kernel (compiled)"
handles = [m.layers[1].register_forward_hook(lambda p, a, y: y * 2) for m in (mine, reference)]
assert reason(whole) == "nothing"
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


@pytest.mark.parametrize("change", ["parametrize", "prune", "wrapper", "delete"])
def test_a_weight_that_is_gone_runs_the_reference_compiled_or_not(
    noticing, taken_home, tmp_path, change
):
    code = f"""
class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1

class Doubled(nn.Module):
    def forward(self, x):
        return x * 2

def parametrize(model):
    nn.utils.parametrize.register_parametrization(model.layers[0], "weight", Doubled())

def prune(model):
    from torch.nn.utils import prune
    prune.random_unstructured(model.layers[0], "weight", 0.5)

def wrapper(model):
    model.layers[0] = Wrapper(model.layers[0])

def delete(model):
    weight = model.layers[0]._parameters.pop("weight")
    model.layers[0].__dict__["weight"] = weight.detach()

for model in (mine, reference):
    torch.manual_seed(0)
    {change}(model)
for call in (torch.compile(mine, backend="eager", fullgraph=True), mine):
    assert "kernel" not in reason(call), reason(call)
"""
    taken_home(BEGIN + code, noticing, cwd=tmp_path)


def test_verify_runs_the_kernels_of_it(noticing, outside):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""
    assert "WRONG" not in outside(code, cwd=noticing)


def test_what_a_forward_sets_and_where_it_runs_is_not_traced():
    task = trace(SOURCE, "model.py", TracePolicy())
    assert isinstance(task, Task), task
    (layer,) = (item for item in task.submodules if item.path == "layers.1")
    assert layer.kind == "Scaled"
    assert layer.attributes == (("factor", "2.0"), ("calls", "?"), ("plan", "a dict"))
    assert layer.shared == (("weight", "layers.0.weight"),)


def test_an_export_of_a_task_from_before_is_held_against_its_beginning(
    material, softmax, taken_home, tmp_path
):
    made = material(SOURCE, softmax[1], PLAN)
    old = made.model_copy(update={"task": made.task.model_copy(update={"submodules": None})})
    assert "TRACED = None" in export_files(old)["module.py"]
    code = """
for model in (mine, reference):
    model.norm.eps = 1.0
assert reason() == "attribute norm.eps"
"""
    taken_home(BEGIN + code, export_folder(old, tmp_path / "old"), cwd=tmp_path)


# The same, whose own code looks at values: its layers are parts, and each holds a norm.
PARTS = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.factor = nn.LayerNorm(96), 2.0
        self.second = nn.LayerNorm(96)
        self.second.weight = self.norm.weight

    def forward(self, x):
        return self.second(self.norm(torch.softmax(x, dim=-1))) * self.factor


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.flag = Layer(), True

    def forward(self, x):
        x = self.first(x)
        return x * 2 if self.flag and x.sum().item() > -1e9 else x


def get_inputs():
    return [torch.randn(48, 96)]
"""
PARTS_PLAN = """
def part_0(x0):
    rows, columns = x0.shape
    y = empty_like(x0)
    launch("softmax_rows", args=(x0, y, rows, columns))
    w = weights["first.norm.weight"]
    y = aten.layer_norm(y, [96], w, weights["first.norm.bias"], 1e-5)
    y = aten.layer_norm(y, [96], w, weights["first.second.bias"], 1e-5)
    return aten.mul(y, 2.0)

def forward(x):
    return reference(x)
"""


def test_a_part_notices_what_is_set_in_it_and_in_what_it_holds(
    material, softmax, taken_home, tmp_path
):
    folder = export_folder(material(PARTS, softmax[1], PARTS_PLAN), tmp_path / "parts")
    code = """
import copy
for name, other, before in (("first.norm.eps", 1.0, 1e-5), ("first.factor", 3.0, 2.0)):
    path, _, last = name.rpartition(".")
    for value, why in ((other, "attribute " + name.removeprefix("first.")), (before, "kernel")):
        for model in (mine, reference):
            setattr(model.get_submodule(path), last, value)
        assert reason() == why, (name, value, reason())
for model in (mine, reference):
    model.flag = False                            # the code around a part is the model's own
assert reason() == "kernel"
handles = [m.first.norm.register_forward_hook(lambda p, a, y: y * 2) for m in (mine, reference)]
assert reason() == "hooks of norm", reason()
[handle.remove() for handle in handles]
handles = [m.first.register_forward_hook(lambda p, a, y: y * 2) for m in (mine, reference)]
assert reason() == "kernel"                       # a part's own runs behind its kernels
[handle.remove() for handle in handles]
handle = torch.nn.modules.module.register_module_forward_hook(lambda *args: None)
assert reason() == "hooks of all modules"
handle.remove()
for model in (mine, reference):
    model.load_state_dict({n: torch.rand(96) for n in model.state_dict()}, assign=True)
reference.load_state_dict(mine.state_dict())
assert reason() == "tied weights", reason()
for model in (mine, reference):
    model.first.second.weight = model.first.norm.weight
assert reason() == "kernel"
whole = copy.deepcopy(mine)
mine.first.norm.eps = 1.0
assert reason(whole) == "kernel"
reference.first.norm.__dict__["eps"] = whole.first.norm.__dict__["eps"] = 1.0
whole.eval()
assert reason(whole) == "attribute norm.eps" == reason(mine)
"""
    taken_home(BEGIN + code, folder, cwd=tmp_path)
