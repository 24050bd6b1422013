"""The single file, executed as that benchmark's evaluator executes it."""

import ast
import re

import pytest

from kernelwright.tools.export import export_kernelbench
from kernelwright.tools.export.folder import literal, names
from kernelwright.tools.export.render import SEPARATOR

# The reference runs in a namespace, then the submission's text in the same one.
BEGIN = """
import sys, torch
reference, submission = (open(path).read() for path in sys.argv[1:3])
context = {}
exec(reference, context)
Model, get_inputs = context["Model"], context["get_inputs"]
arguments = context["get_init_inputs"]()
exec(compile(submission, "<string>", "exec"), context)
ModelNew = context["ModelNew"]
with torch.no_grad():
    torch.manual_seed(42)
    model = Model(*arguments)
    torch.manual_seed(42)
    model_new = ModelNew(*arguments)
"""


@pytest.mark.exhaustive
def test_results_and_weights_agree_under_one_seed(material, busy, outside, tmp_path):
    path = export_kernelbench(material(*busy), tmp_path / "model_new.py")
    (tmp_path / "reference.py").write_text(busy[0])
    code = """
assert list(model.state_dict()) == list(model_new.state_dict())
for a, b in zip(model.state_dict().values(), model_new.state_dict().values()):
    assert torch.equal(a, b)
with torch.no_grad():
    for seed in range(3):
        torch.manual_seed(seed)
        inputs = get_inputs()
        for a, b in zip(model(*inputs), model_new(*inputs)):
            assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)
torch.testing.assert_close(model.running, model_new.running)
"""
    outside(BEGIN + code, tmp_path / "reference.py", path, cwd=tmp_path)


def test_the_protocol_of_trials_and_training_mode_is_kept(material, softmax, outside, tmp_path):
    """Trial seeds come from one generator, modules stay as constructed and move by type."""
    path = export_kernelbench(material(*softmax), tmp_path / "model_new.py")
    (tmp_path / "reference.py").write_text(softmax[0])
    code = """
assert model_new.training == model.training
torch.manual_seed(42)
seeds = [torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(5)]
with torch.no_grad():
    for seed in seeds:
        torch.manual_seed(seed)
        inputs = [x.to(dtype=torch.float32) for x in get_inputs()]
        first = model.to(dtype=torch.float32)(*inputs)
        second = model_new.to(dtype=torch.float32)(*inputs)
        assert first.shape == second.shape
        assert torch.allclose(first, second, atol=1e-4, rtol=1e-4)
"""
    outside(BEGIN + code, tmp_path / "reference.py", path, cwd=tmp_path)


def test_what_was_not_verified_is_an_error_and_no_fallback(material, softmax, outside, tmp_path):
    path = export_kernelbench(material(*softmax), tmp_path / "model_new.py")
    (tmp_path / "reference.py").write_text(softmax[0])
    code = """
for inputs, grad in (([torch.ones(3, 4)], False), ([torch.ones(48, 96).double()], False),
                     ([torch.ones(48, 96, requires_grad=True)], True)):
    try:
        with torch.set_grad_enabled(grad):
            model_new(*inputs)
    except ValueError:
        continue
    raise AssertionError(inputs[0].shape)
"""
    outside(BEGIN + code, tmp_path / "reference.py", path, cwd=tmp_path)


def test_the_benchmarks_own_static_rules_hold(material, softmax, cuda_softmax, tmp_path):
    for made in (
        material(*softmax),
        material(softmax[0], *cuda_softmax, language="cuda"),
    ):
        text = export_kernelbench(made, tmp_path / "m.py").read_text()
        # The benchmark's rules leave comments out.
        ours = re.sub(r"(#|//).*", "", text.partition(SEPARATOR)[2])
        for pattern in (r"\btry\s*:", r"\bexcept\b", r"\bpass\b", "threading", "_make_subclass"):
            assert not re.search(pattern, ours), pattern


def test_a_cuda_submission_has_kernel_and_compiler_in_one_file(
    material, softmax, cuda_softmax, tmp_path
):
    made = material(softmax[0], *cuda_softmax, language="cuda")
    text = export_kernelbench(made, tmp_path / "m.py").read_text()
    ast.parse(text)
    assert "__global__" in text
    assert "load_inline" in text
    assert "softmax_rows" in text


def test_texts_survive_as_literals():
    for text in ('a "quoted" word', "back\\slash\n", 'ends with "', "ends with \\", '"""', "\\n\t"):
        assert ast.literal_eval(literal(text)) == text


def test_names_are_those_bound_at_the_top():
    assert names("import a\nb = c = 1\n(d, e) = 1, 2\ndef f(): g = 1\nclass H: pass") == {*"bcdefH"}
