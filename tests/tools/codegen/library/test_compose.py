"""Candidates of regions put together: the whole computes what the model does, and stays small."""

import asyncio
import textwrap

import pytest
import torch

from kernelwright.tools.candidates.plan.vocabulary import ADMITTED
from kernelwright.tools.codegen.library.compose import (
    ComposeError,
    Part,
    compose,
    compose_in_parts,
)
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.tasks.outline import outline_in_parts, outline_of
from kernelwright.tools.tasks.regions import model_regions, region_source
from kernelwright.tools.types import Task, TracePolicy

STACK = """
    import torch
    import torch.nn as nn
    import torch.nn.functional as F


    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

        def forward(self, x):
            left, right = self.up(self.norm(x)).chunk(2, -1)
            return x + self.down(F.gelu(torch.cat([right, left], -1)))


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))

        def forward(self, x):
            return self.blocks(x).topk(3)


    def get_inputs():
        return [torch.randn(8, 32)]
"""

UPDATED = """
    import torch
    import torch.nn as nn


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
            self.one, self.two = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

        def forward(self, x):
            return self.two(self.second(torch.relu(self.one(self.first(x)))).transpose(2, 3))


    def get_inputs():
        return [torch.randn(4, 3, 10, 9)]
"""


ATTENTION = """
    import torch
    import torch.nn as nn
    import torch.nn.functional as F


    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.heads, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x):
            parts = self.heads(self.norm(x)).split(32, 2)
            q, k, v = (part.view(3, 20, 4, 8).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.out(BEHIND)


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(*(Block() for _ in range(2)))

        def forward(self, x):
            return self.blocks(x)


    def get_inputs():
        return [torch.randn(3, 20, 32)]
"""


class Whole:
    """A model and one candidate for it, made of the first draft of every class of regions."""

    def __init__(self, text: str, folder) -> None:
        self.task = _traced(textwrap.dedent(text), folder / "model.py")
        self.reference = Reference.build(self.task, "cpu")
        self.arguments = list(draw(self.task, "task", 0, "cpu"))
        outlined = outline_in_parts if self.task.parts else outline_of
        self.outline = outlined(self.reference, self.task, self.arguments, ADMITTED)
        self.regions = model_regions(self.outline, lambda moved, operations: 0.0)
        self.parts = []
        for item in self.regions.classes:
            source = region_source(self.outline, item.regions[0], item.words)
            task = _traced(source, folder / f"{item.name}.py")
            draft = repertoire_for(task, detect("cpu")).draft({})
            candidate = new_candidate("cpp", draft.kernel, draft.plan)
            self.parts.append(Part(item, candidate))
        names = tuple(spec.name for spec in self.task.inputs)
        if self.task.parts:
            self.candidate = compose_in_parts(self.outline, self.parts, names, "cpp")
        else:
            self.candidate = compose(self.outline.graph, self.parts, names, "cpp")

    def run(self):
        built = asyncio.run(compile_candidate(self.candidate, architecture=None, timeout_s=90))
        assert isinstance(built, Built), built
        runner = load_candidate(self.candidate, built, "cpu", host=self.reference.host)
        weights = {name: value.clone() for name, value in self.reference.weights().items()}
        runner.prepare(weights)
        return runner(self.arguments, weights), weights


def _traced(source: str, path) -> Task:
    path.write_text(source)
    task = trace(source, str(path), TracePolicy())
    assert isinstance(task, Task), task
    return task


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    return Whole(STACK.replace("LAYERS", "2"), tmp_path_factory.mktemp("stack"))


def test_a_stack_computes_what_it_did_with_one_kernel_a_class(stack):
    whole = stack
    kernel = parse_kernel(whole.candidate.kernel, "cpp")
    assert len(kernel.functions) == len(whole.parts)
    assert all(f"::{item.name};" in whole.candidate.kernel for item in kernel.functions)
    launches = whole.candidate.plan.count("launch(")
    assert launches == sum(len(part.of.regions) for part in whole.parts) > len(kernel.functions)
    made, _ = whole.run()
    for got, right in zip(made, whole.reference.forward(whole.arguments), strict=True):
        torch.testing.assert_close(got, right)


def test_buffers_are_updated_and_layouts_kept(tmp_path):
    whole = Whole(UPDATED, tmp_path)
    made, weights = whole.run()
    (right,) = whole.reference.forward(whole.arguments)
    torch.testing.assert_close(made if isinstance(made, torch.Tensor) else made[0], right)
    assert 'update("one.running_mean"' in whole.candidate.plan
    after = whole.reference.weights()
    for name in ("one.running_mean", "two.running_var"):
        torch.testing.assert_close(weights[name], after[name])


@pytest.mark.parametrize(
    "behind",
    [
        "F.gelu(y).transpose(1, 2).view(3, 20, 32)",
        "torch.tanh(F.gelu(y).sort(-1)[0]).transpose(1, 2).view(3, 20, 32)",
        "torch.view_as_complex(F.gelu(y).sort(-1)[0].transpose(1, 2).view(3, 20, 16, 2))"
        ".abs().repeat(1, 1, 2)",
    ],
)
def test_a_region_may_leave_its_result_in_another_layout_than_the_library(behind, tmp_path):
    """Attention's lies so that a view behind it is free; what our kernels make is contiguous."""
    whole = Whole(ATTENTION.replace("BEHIND", behind), tmp_path)
    gelu = next(part for part in whole.parts if "gelu" in part.of.words)
    shape, strides = (3, 4, 20, 8), (640, 8, 32, 1)
    assert f"{shape}" in gelu.candidate.plan
    nodes = {node.name: node for node in whole.outline.graph.nodes}
    read = nodes[gelu.of.regions[0].inputs[0]].out[0]
    assert (read.shape, read.strides) == (shape, strides)
    made, _ = whole.run()
    (right,) = whole.reference.forward(whole.arguments)
    torch.testing.assert_close(made if isinstance(made, torch.Tensor) else made[0], right)


def test_a_plan_that_returns_in_several_places_is_refused_in_words(stack):
    whole = stack
    first = whole.parts[0]
    plan = first.candidate.plan.replace(
        "\n    return", "\n    if 1 > 2:\n        return x0\n    return"
    )
    twice = Part(first.of, first.candidate.model_copy(update={"plan": plan}))
    with pytest.raises(ComposeError, match="returns in several places"):
        compose(whole.outline.graph, [twice], ("x",), "cpp")


def test_a_model_with_a_branch_on_values_has_a_function_for_every_part(tmp_path):
    text = STACK.replace("LAYERS", "2").replace(
        "return self.blocks(x).topk(3)", "return self.blocks[1](self.blocks[0](x) * x.sum().item())"
    )
    whole = Whole(text, tmp_path)
    assert [part.path for part in whole.task.parts] == ["blocks.0", "blocks.1"]
    assert "def part_0(p0_x0)" in whole.candidate.plan
    assert "def part_1(p1_x0)" in whole.candidate.plan
    assert whole.candidate.kernel.count("namespace r1 {") == 1
    (got,), _ = whole.run()
    torch.testing.assert_close(got, whole.reference.forward(whole.arguments)[0])
