"""The exported module, run where Kernelwright cannot be imported."""

import zipfile

import pytest

from kernelwright.tools.export import export_folder, export_zip

# What every script below begins with: both modules with the same weights.
BEGIN = """
arguments = theirs.get_init_inputs()
torch.manual_seed(0)
reference = theirs.Model(*arguments)
torch.manual_seed(0)
mine = module.Model(*arguments)

def flat(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)

def same(inputs, **keywords):
    a, b = flat(mine(*inputs, **keywords)), flat(reference(*inputs, **keywords))
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert x.dtype == y.dtype, (x.dtype, y.dtype)
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    for (name, x), y in zip(mine.state_dict().items(), reference.state_dict().values()):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, msg=name)
"""


@pytest.fixture(scope="module")
def soft(material, tmp_path_factory):
    return export_folder(material(), tmp_path_factory.mktemp("home") / "soft")


@pytest.fixture(scope="module")
def busy_export(material, busy, tmp_path_factory):
    return export_folder(material(*busy), tmp_path_factory.mktemp("home") / "busy")


def test_it_gives_the_references_results_without_kernelwright(soft, taken_home, tmp_path):
    code = """
with torch.no_grad():
    for seed in range(3):
        torch.manual_seed(seed)
        same(theirs.get_inputs())
assert module.COUNTS == {"kernel": 3}, module.COUNTS
assert not any(name.split(".")[0] == "kernelwright" for name in sys.modules)
"""
    taken_home(BEGIN + code, soft, cwd=tmp_path)


def test_everything_at_once_agrees_buffers_included(busy_export, taken_home, tmp_path):
    code = """
with torch.no_grad():
    for seed in range(4):
        torch.manual_seed(seed)
        same(theirs.get_inputs())
assert mine.calls == 4 and mine.running.abs().sum() > 0
assert module.COUNTS == {"kernel": 4}, module.COUNTS
x, index, scale = theirs.get_inputs()
with torch.no_grad():
    same((x,), index=index, scale=scale)      # keyword arguments reach the kernel too
assert module.COUNTS["kernel"] == 5
"""
    taken_home(BEGIN + code, busy_export, cwd=tmp_path)


def test_state_dicts_and_constructors_are_interchangeable(busy_export, taken_home, tmp_path):
    code = """
import inspect
assert inspect.signature(module.Model) == inspect.signature(theirs.Model)
assert list(mine.state_dict()) == list(reference.state_dict())
other = theirs.Model(*arguments)
mine.load_state_dict(other.state_dict())
reference.load_state_dict(mine.state_dict())
with torch.no_grad():
    same(theirs.get_inputs())
assert isinstance(mine, theirs.Model)
import copy, io, pickle
again = pickle.loads(pickle.dumps(copy.deepcopy(mine)))
assert list(again.state_dict()) == list(mine.state_dict())
"""
    taken_home(BEGIN + code, busy_export, cwd=tmp_path)


def test_other_constructor_arguments_run_the_reference(busy_export, taken_home, tmp_path):
    code = """
import inspect
names = list(inspect.signature(theirs.Model).parameters)
alike = module.Model(**dict(zip(names, arguments)))
reference, mine = theirs.Model(*arguments, momentum=0.5), module.Model(*arguments, momentum=0.5)
mine.load_state_dict(reference.state_dict())
with torch.no_grad():
    alike(*theirs.get_inputs())
    same(theirs.get_inputs())
    torch.compile(mine, backend="eager", fullgraph=True)(*theirs.get_inputs())
assert module.COUNTS == {"kernel": 1, "reference: constructor arguments": 1}, module.COUNTS
"""
    taken_home(BEGIN + code, busy_export, cwd=tmp_path)


def test_prepared_weights_follow_changes_of_the_weights(busy_export, taken_home, tmp_path):
    code = """
inputs = theirs.get_inputs()
with torch.no_grad():
    same(inputs)
    for model in (mine, reference):
        model.parts[0].weight.mul_(2)          # in place, as an optimiser does
    same(inputs)
    fresh = {name: torch.randn_like(w) if w.is_floating_point() else w
             for name, w in reference.state_dict().items()}
    for model in (mine, reference):
        model.load_state_dict(fresh)
    same(inputs)
    for model in (mine, reference):
        model.parts[0].weight = torch.nn.Parameter(torch.ones(24, 24))
    same(inputs)
    with torch.inference_mode():               # such a weight does not tell that it changed
        told = torch.nn.Parameter(torch.ones(24, 24))
    for model in (mine, reference):
        model.parts[0].weight = told
    same(inputs)
    with torch.inference_mode():
        told.mul_(3)
    same(inputs)
assert module.COUNTS == {"kernel": 6}, module.COUNTS
"""
    taken_home(BEGIN + code, busy_export, cwd=tmp_path)


def test_calls_that_were_not_verified_run_the_reference_and_are_counted(soft, taken_home, tmp_path):
    code = """
x = theirs.get_inputs()[0]
aligned = torch.randn(48 * 96 + 1)
calls = {
    "shape of x": torch.randn(7, 9),
    "dtype of x": x.double(),
    "layout of x": torch.randn(96, 48).t(),
    "alignment of x": aligned[1:].view(48, 96),
}
with torch.no_grad():
    for value in calls.values():
        same([value])
    same([x.to("meta")]) if False else None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same([x])
    result = torch.func.vmap(mine)(torch.randn(3, 96))
    assert result.shape == (3, 96)
y = x.clone().requires_grad_()
mine(y).square().sum().backward()
z = x.clone().requires_grad_()
reference(z).square().sum().backward()
torch.testing.assert_close(y.grad, z.grad)
expected = {f"reference: {why}": 1 for why in calls} | {"reference: gradient": 1}
got = dict(module.COUNTS)
assert got.pop("reference: mode") == 2, got
assert got == expected, got
"""
    taken_home(BEGIN + code, soft, cwd=tmp_path)


def test_another_value_of_a_fixed_argument_runs_the_reference(busy_export, taken_home, tmp_path):
    code = """
x, index, scale = theirs.get_inputs()
with torch.no_grad():
    same((x, index, 3.0))
    same((x, index))                           # the reference's own default
assert module.COUNTS == {"reference: value of an argument": 1, "reference: arguments": 1}
"""
    taken_home(BEGIN + code, busy_export, cwd=tmp_path)


def test_training_goes_through_the_reference(busy_export, taken_home, tmp_path):
    code = """
x, index, scale = theirs.get_inputs()
mine(x, index, scale)[0].sum().backward()
reference(x, index, scale)[0].sum().backward()
torch.testing.assert_close(mine.parts[0].weight.grad, reference.parts[0].weight.grad)
assert module.COUNTS == {"reference: gradient": 1}
"""
    taken_home(BEGIN + code, busy_export, cwd=tmp_path)


MODES = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return torch.softmax(self.dropout(x), dim=-1)


def get_inputs():
    return [torch.randn(48, 96)]


def get_init_inputs():
    return []
"""


def test_where_the_mode_matters_only_the_verified_one_runs_the_kernel(
    material, softmax, taken_home, tmp_path
):
    evaluating = MODES.replace("nn.Dropout(0.5)\n", "nn.Dropout(0.5)\n        self.eval()\n")
    folder = export_folder(material(evaluating, *softmax[1:]), tmp_path / "modes")
    code = """
x = theirs.get_inputs()[0]
with torch.no_grad():
    same([x])
    mine.train()
    mine(x)
assert module.COUNTS == {"kernel": 1, "reference: training mode": 1}, module.COUNTS
"""
    taken_home(BEGIN + code, folder, cwd=tmp_path)


@pytest.mark.exhaustive
def test_torch_compile_takes_it_whole(busy_export, taken_home, tmp_path):
    code = """
whole = torch.compile(mine, fullgraph=True)
inputs = theirs.get_inputs()
with torch.no_grad():
    for _ in range(2):
        for x, y in zip(flat(whole(*inputs)), flat(reference(*inputs))):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    for x, y in zip(mine.buffers(), (mine.running, mine.calls, mine.shift)):
        assert x is y
    torch.testing.assert_close(mine.running, reference.running)
    assert mine.calls == reference.calls == 2
    assert module.COUNTS == {"kernel (compiled)": 2}, module.COUNTS
    x, index, scale = inputs
    whole(x[:5].clone(), index[:5].clone(), scale)       # another shape: traced as the reference
whole(*inputs)[0].sum().backward()                       # and so is training
assert mine.parts[0].weight.grad is not None
assert module.COUNTS == {"kernel (compiled)": 2}, module.COUNTS
tensors = [*inputs[:2], *mine._weights()]
torch.library.opcheck(module.OPERATOR, tuple(t.detach() for t in tensors),
                      test_utils=("test_schema", "test_faketensor"))
"""
    taken_home(BEGIN + code, busy_export, cwd=tmp_path)


def test_without_a_compiler_it_warns_once_and_runs_the_reference(soft, taken_home, tmp_path):
    code = """
import warnings
with warnings.catch_warnings(record=True) as told, torch.no_grad():
    warnings.simplefilter("always")
    same(theirs.get_inputs())
    same(theirs.get_inputs())
assert len(told) == 1 and "install g++" in str(told[0].message), told
assert module.COUNTS == {"reference: kernels unavailable": 2}
whole = torch.compile(mine, fullgraph=True, backend="eager")
with torch.no_grad():
    torch.testing.assert_close(whole(torch.ones(48, 96)), torch.full((48, 96), 1 / 96))
"""
    taken_home(BEGIN + code, soft, cwd=tmp_path, path=str(tmp_path))


def test_verify_exits_zero_for_a_correct_export_and_says_what_it_did(busy_export, outside):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""
    said = outside(code, cwd=busy_export)
    assert "own inputs" in said
    assert "WRONG" not in said


@pytest.mark.exhaustive
def test_verify_times_both_baselines_with_an_interval(soft, outside):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--seconds", "0.1"]
try:
    runpy.run_path("verify.py", run_name="__main__")
except SystemExit as end:
    assert end.code in (0, 1)    # a busy machine may find it slower
"""
    said = outside(code, cwd=soft)
    assert "against eager" in said
    assert "against torch.compile" in said
    assert "95 % interval" in said


def test_verify_fails_a_wrong_kernel(material, softmax, outside, tmp_path):
    source, kernel, plan = softmax
    wrong = kernel.replace("- top) / sum;", "- top) / sum * 1.01f;")
    folder = export_folder(material(source, wrong, plan), tmp_path / "wrong")
    code = """
import runpy, sys
sys.argv = ["verify.py"]
runpy.run_path("verify.py", run_name="__main__")
"""
    assert "WRONG" in outside(code, cwd=folder, status=1)


def test_an_export_can_be_imported_as_a_package(soft, outside, tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(soft.parent)!r})
from soft.module import Model
import torch
with torch.no_grad():
    Model()(torch.zeros(48, 96))
"""
    outside(code, cwd=tmp_path)


def test_a_zip_holds_the_same_files(material, tmp_path):
    made = material()
    folder = export_folder(made, tmp_path / "softmax")
    with zipfile.ZipFile(export_zip(made, tmp_path / "softmax.zip")) as archive:
        names = {name.removeprefix("softmax/") for name in archive.namelist()}
        module = archive.read("softmax/module.py").decode()
    assert names == {path.name for path in folder.iterdir()}
    assert module == (folder / "module.py").read_text()


# Runs the Python that README.md shows, as it stands there.
SHOWN = r"""
import re, sys
from pathlib import Path
import torch
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder.parent))
text = (folder / sys.argv[2]).read_text()
shown = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
"""


@pytest.mark.parametrize("name", ["README.md", "VERIFICATION.md"])
def test_what_the_readme_shows_runs_the_kernels(soft, outside, tmp_path, name):
    code = """
x = torch.randn(48, 96)
exec(shown)
torch.testing.assert_close(y, torch.softmax(x, -1), rtol=1e-4, atol=1e-5)
import soft
assert soft.COUNTS == {"kernel": 1}, soft.COUNTS
from soft import Model
assert isinstance(model, Model)
"""
    outside(SHOWN + code, soft, name, cwd=tmp_path)


def test_the_readme_knows_constructor_weights_and_scalars(busy_export, outside, tmp_path):
    code = """
x, index = torch.randn(32, 24), torch.randint(0, 5, (32,))
exec(shown)
import busy
assert busy.COUNTS == {"kernel": 1}, busy.COUNTS
assert "Model(24)" in shown and "load_state_dict" in shown and "2.0" in shown
"""
    outside(SHOWN + code, busy_export, "README.md", cwd=tmp_path)


def test_a_zip_of_any_name_holds_a_package(material, outside, tmp_path):
    made = material()
    with zipfile.ZipFile(export_zip(made, tmp_path / "softmax-1121-ab3f.zip")) as archive:
        archive.extractall(tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name == f"faster_{made.task.name}"
    code = "x = torch.randn(48, 96)\nexec(shown)\nimport torch as t\nassert y.shape == x.shape\n"
    outside(SHOWN + code, folder, "README.md", cwd=tmp_path)


def test_a_folder_that_cannot_be_imported_says_so(material, tmp_path):
    folder = export_folder(material(), tmp_path / "my-export")
    text = (folder / "README.md").read_text()
    assert "under a name that Python can import" in text
    assert "from faster_model import Model" in text


FROZEN = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(96, affine=False).eval()

    def forward(self, x):
        return torch.softmax(self.norm(x) * (1 + 1e-5) ** 0.5, dim=-1)


def get_inputs():
    return [torch.randn(48, 96)]
"""


def test_a_norm_that_was_frozen_is_computed_as_one_that_is_none_after_train(
    material, softmax, outside, tmp_path
):
    folder = export_folder(material(FROZEN, softmax[1], softmax[2]), tmp_path / "frozen")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from module import COUNTS, Model, reference
mine, theirs, x = Model(), reference.Model(), torch.randn(48, 96)
torch.testing.assert_close(mine(x), theirs(x))
assert COUNTS.pop("kernel") == 1, COUNTS
torch.testing.assert_close(mine.train()(x), theirs.train()(x))
assert COUNTS == {"reference: attribute norm.training": 1}, COUNTS
mine.norm.eval()
mine(x)
assert COUNTS["kernel"] == 1, COUNTS
"""
    outside(code, folder, cwd=tmp_path)
    outside(
        "import runpy, sys\nsys.argv = ['verify.py', '--no-timing']\n"
        "runpy.run_path('verify.py', run_name='__main__')",
        cwd=folder,
    )
