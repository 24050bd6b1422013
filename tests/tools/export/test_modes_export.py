"""An export of what was timed in another mode calls its plan so, and falls back where it cannot."""

import ast

import pytest

from kernelwright.tools.export import ExportRefusedError, export_folder
from kernelwright.tools.export.folder import kernelbench
from kernelwright.tools.languages import in_mode

# Both modules with the same weights; a capture without a device reads the arguments anew.
BEGIN = """
import warnings
arguments = theirs.get_init_inputs()
torch.manual_seed(0)
reference = theirs.Model(*arguments)
torch.manual_seed(0)
mine = module.Model(*arguments)

def same(times=2):
    for _ in range(times):
        given = theirs.get_inputs()
        with torch.no_grad():
            torch.testing.assert_close(mine(*given), reference(*given), rtol=1e-4, atol=1e-5)
        for (name, x), y in zip(mine.state_dict().items(), reference.state_dict().values()):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, msg=name)

def again(call):
    kept = call()
    def replay():
        for old, new in zip(kept, call()):
            old.copy_(new)
        return kept
    return replay

def other_weights():
    for model in (mine, reference):
        torch.manual_seed(7)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
"""


@pytest.fixture
def exported(material, busy, tmp_path):
    """Exports the module that has everything at once, timed in a mode."""

    def make(mode: str):
        made = material(*busy)
        candidate = in_mode(made.candidate, mode)
        return export_folder(made.model_copy(update={"candidate": candidate}), tmp_path / mode)

    return make


@pytest.mark.exhaustive
def test_inside_torch_compile_it_gives_the_references_results(exported, taken_home, tmp_path):
    code = """
assert module.MODE == "compile"
same()
other_weights()
same()
assert module.COUNTS == {"kernel": 4}, module.COUNTS
x, index, scale = theirs.get_inputs()
with torch.no_grad():
    mine(x[:3], index[:3], scale)
assert len(module.COUNTS) == 2, module.COUNTS  # another shape is the reference's
y, _ = mine(x, index, scale)
y.sum().backward()
assert mine.parts[0].weight.grad is not None
module.MODE = "eager"
reference.load_state_dict(mine.state_dict())
same()
"""
    taken_home(BEGIN + code, exported("compile"), cwd=tmp_path)


def test_as_a_graph_it_follows_arguments_buffers_and_weights(exported, taken_home, tmp_path):
    code = """
assert module.MODE == "graph"
module.modes.Replayed.__init__.__defaults__ = (again,)
same()
other_weights()  # what was prepared of the old ones is not replayed
same()
"""
    taken_home(BEGIN + code, exported("graph"), cwd=tmp_path)


def test_what_cannot_be_captured_is_called_eagerly_after_a_warning(exported, taken_home, tmp_path):
    code = """
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    same()
assert len([w for w in told if "called eagerly" in str(w.message)]) == 1, told
try:
    module.MODE = "fast"
    same()
    raise SystemExit("no mode")
except ValueError as error:
    assert "eager" in str(error)
"""
    taken_home(BEGIN + code, exported("graph"), cwd=tmp_path)


def test_an_eager_export_has_no_switch(exported):
    folder = exported("eager")
    assert not (folder / "modes.py").exists()
    assert "MODE" not in (folder / "module.py").read_text()


def test_a_kernelbench_file_is_refused_in_words(material):
    made = material()
    made = made.model_copy(update={"candidate": in_mode(made.candidate, "compile")})
    with pytest.raises(ExportRefusedError, match=r"inside torch\.compile"):
        kernelbench(made)


def test_what_is_shipped_uses_nothing_of_ours(exported):
    tree = ast.parse((exported("compile") / "modes.py").read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in named if "kernelwright" in name]
