"""Models whose forward cannot be traced as a whole: which parts can, and why the rest cannot."""

import pytest
import torch

from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.tasks.outline import outline_in_parts
from kernelwright.tools.tasks.regions import model_regions
from kernelwright.tools.types import Task, TracePolicy

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
BLOCK = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 16)
    def forward(self, x):
        return x + self.up(F.gelu(self.norm(x)))
"""
BRANCH = f"""{BLOCK}
class Gated(Block):
    def forward(self, x):
        if x.sum() > 0:
            return super().forward(x)
        return -self.norm(x)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Gated(), Block()])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
def get_inputs(): return [torch.randn(6, 16)]
"""
ROOT = f"""{BLOCK}
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(x.numpy().round(1))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = Block(), Block()
        MORE
    def forward(self, x):
        BODY
def get_inputs(): return [torch.randn(6, 16)]
"""
EXPERTS = f"""{BLOCK}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.expert = Block(), Block()
    def forward(self, x):
        x = self.first(x)
        rows = (x.sum(-1) > 0).nonzero().squeeze(-1)
        return x.index_copy(0, rows, self.expert(x[rows]))
def get_inputs(): return [torch.randn(64, 16)]
"""


SETS_GATED = "super().__init__()\n        self.gated = False\n        self.norm"


def rooted(body: str, more: str = "pass") -> str:
    return ROOT.replace("BODY", body).replace("MORE", more)


@pytest.fixture(scope="module")
def branch(tmp_path_factory) -> Task:
    """The model with a branch, traced once."""
    path = tmp_path_factory.mktemp("branch") / "model.py"
    path.write_text(HEADER + BRANCH)
    task = trace(path.read_text(), str(path), TracePolicy())
    assert isinstance(task, Task), task
    return task


def test_a_branch_on_values_leaves_the_other_blocks_to_be_traced(branch):
    task = branch
    found = [(part.path, part.kind) for part in task.parts]
    assert found == [
        ("blocks.0", "Block"),
        ("blocks.1.norm", "LayerNorm"),
        ("blocks.1.up", "Linear"),
        ("blocks.2", "Block"),
    ]
    (why,) = task.untraced
    assert (why.path, why.kind) == ("blocks.1", "Gated")
    assert "values of tensors at model.py:14" in why.why
    assert any("cannot be traced as a whole" in words for words in task.warnings)
    assert any(
        "depends on the values of tensors at model.py:14" in words for words in task.warnings
    )
    assert Task.model_validate_json(task.model_dump_json()) == task


def test_submodules_of_one_class_are_told_apart_by_what_their_code_branches_on(traced):
    """A flag that is in no `extra_repr` decides whether the values are looked at."""
    body = "if self.gated and x.sum() > 0:\n            return -x\n        return "
    gated = BRANCH.replace("return x + self.up", f"{body}x + self.up")
    source = gated.replace("Gated(), Block()", "Block(), Block()").replace(
        "    def forward(self, x):\n        for",
        "        self.blocks[1].gated = True\n    def forward(self, x):\n        for",
    )
    source = source.replace("super().__init__()\n        self.norm", SETS_GATED)
    paths = [part.path for part in traced(source).parts]
    assert {"blocks.0", "blocks.2"} <= {*paths}
    assert "blocks.1" not in paths


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("return self.after(Round.apply(self.before(x)))", "pass"),
        ("return self.after(self.before(x) * torch.sigmoid(x).mean().item())", "pass"),
        (
            "return self.after(torch.sparse.mm(self.edges, self.before(x)))",
            "self.register_buffer('edges', torch.eye(6).to_sparse())",
        ),
    ],
    ids=["custom function", "item", "sparse"],
)
def test_what_the_model_itself_does_keeps_no_part_from_being_traced(traced, body, more):
    task = traced(rooted(body, more))
    assert [part.path for part in task.parts] == ["before", "after"]
    assert [item.path for item in task.untraced] == [""]
    assert "edges" not in {weight.name for weight in task.weights}
    reference = Reference.build(task, "cpu")
    arguments = list(draw(task, "task", 1, "cpu"))
    calls = []

    def ours(x):
        calls.append(x.shape)
        return x + 1

    with torch.no_grad():
        weights = {name: value.clone() for name, value in reference.weights().items()}
        plain = reference.host(arguments, weights, {})
        torch.testing.assert_close(plain, reference.forward(arguments)[0])
        changed = reference.host(arguments, weights, {1: ours})
    assert calls == [(6, 16)]
    assert not torch.equal(changed, plain)


def test_the_model_runs_on_the_weights_that_it_is_given(branch):
    reference = Reference.build(branch, "cpu")
    arguments = [torch.ones(6, 16)]
    weights = {name: value.clone() for name, value in reference.weights().items()}
    with torch.no_grad():
        before = reference.host(arguments, weights, {})
        weights["blocks.2.up.bias"].add_(1.0)
        after = reference.host(arguments, weights, {})
    torch.testing.assert_close(after, before + 1.0)
    torch.testing.assert_close(reference.forward(arguments)[0], before)


def test_parts_that_are_called_with_other_shapes_each_time_are_left_alone(traced):
    task = traced(EXPERTS)
    assert [part.path for part in task.parts] == ["first"]
    said = {item.path: item.why for item in task.untraced}
    assert said["expert"] == "its calls differ in shape, type or layout"


def test_the_outline_of_parts_finds_equal_regions_across_them(branch):
    task = branch
    reference = Reference.build(task, "cpu")
    arguments = list(draw(task, "task", 0, "cpu"))
    outline = outline_in_parts(reference, task, arguments, {"layer_norm", "gelu", "linear"})
    found = model_regions(outline, lambda moved, operations: 0.0)
    assert {item.words: len(item.regions) for item in found.classes} == {
        "layer_norm, gelu": 2,
        "layer_norm": 1,
        "add": 2,
    }
    assert len(outline.parts) == len(task.parts)
    read = {node.target for node in outline.graph.nodes if node.op == "weight"}
    assert "blocks.2.norm.weight" in read
    assert read <= {weight.name for weight in task.weights}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return self.after(x) * torch.rand(1).item()", "depends on the values"),
        ("x += x.sum().item(); return self.after(x)", "depends on the values"),
        ("return x * x.sum().item()", "depends on the values"),
        ("return self.missing(x).item()", "has no attribute 'missing'"),
    ],
)
def test_what_has_no_use_for_parts_is_refused_as_before(sentence, body, words):
    assert words in sentence(rooted(body))
