"""Only a weight as the module holds it is packed once, and a plan can do without."""

import re

import pytest
import torch

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, repertoire_for
from kernelwright.tools.codegen.library.prepare import without_prepare
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import Task, TracePolicy

FILE = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2048, 1024)
        self.register_buffer("seen", torch.zeros(1024, 2048))

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn({rows}, 2048)]
"""
PLAIN = "return F.relu(self.layer(x))"


def drafted(
    forward: str, strategy: str = "split_wgmma", *, rows: int = 256, prepares: bool = True
) -> LibraryDraft:
    text = FILE.format(forward=forward, rows=rows)
    task = trace(text, "/tmp/layer.py", TracePolicy())
    assert isinstance(task, Task), task
    found = repertoire_for(task, hardware_profile("H200"), prepares=prepares)
    loops = {one.loop for one in found.options() if one.strategy.name == strategy}
    assert loops
    return found.draft({"form": "products", **dict.fromkeys(loops, strategy)})


@pytest.mark.parametrize(
    ("strategy", "rows"),
    [("split_wgmma", 256), ("split_mma", 256), ("streamed_wgmma", 256),
     ("streamed_wgmma_splits", 64)],
)  # fmt: skip
def test_a_layer_packs_its_weight_in_prepare(strategy: str, rows: int) -> None:
    draft = drafted(PLAIN, strategy, rows=rows)
    plan = validate_plan(draft.plan, parse_kernel(draft.kernel, "cuda"))
    assert plan.prepared is not None
    assert sum("image" in name for name in plan.prepared) == 1
    # The bias and the input are none of its business.
    prepare = draft.plan.partition("def forward")[0]
    assert '"layer.weight"' in prepare
    assert '"layer.bias"' not in prepare
    assert '"prepared' not in prepare


@pytest.mark.parametrize(
    "forward",
    [
        "return F.linear(x, self.layer.weight * 2)",
        "return F.linear(x, torch.tril(self.layer.weight))",
        "self.seen.add_(1); return F.linear(x, self.seen)",
        "return x @ x.t()",
    ],
)
def test_what_is_computed_or_changed_in_a_call_is_packed_in_every_call(forward: str) -> None:
    assert "def prepare" not in drafted(forward).plan


def test_kernels_for_several_sizes_pack_in_every_call() -> None:
    assert "def prepare" not in drafted(PLAIN, prepares=False).plan


def test_a_plan_without_prepare_does_the_same_in_every_call() -> None:
    plan = """def prepare(weights):
    w = weights["w"]
    y = aten.mul(w, 2.0)
    return {"twice": y, "w": w}


def forward(x):
    y = aten.add(x, prepared["twice"])
    return aten.add(y, prepared["w"])
"""
    text = without_prepare(plan)
    assert "prepare" not in text
    space = {"weights": {"w": torch.ones(3)}, "aten": torch.ops.aten}
    exec(text, space)
    assert torch.equal(space["forward"](torch.zeros(3)), torch.full((3,), 3.0))
    assert without_prepare(text) == text


def test_a_drafted_plan_without_prepare_is_a_plan() -> None:
    draft = drafted(PLAIN)
    plan = validate_plan(without_prepare(draft.plan), parse_kernel(draft.kernel, "cuda"))
    assert plan.prepared is None
    assert set(plan.weights) == {"layer.weight", "layer.bias"}


CONVOLUTIONS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))


def get_inputs():
    return [torch.randn(2, 16, 9, 8)]
"""


def turned_draft(device: str) -> tuple[Task, LibraryDraft]:
    task = trace(CONVOLUTIONS, "/tmp/convolutions.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire = repertoire_for(task, hardware_profile(device))
    draft = repertoire.draft({"form": "channels_last"})
    # Nothing is gained by another way to do what is done once.
    loops = {name for option in repertoire.options() for name in option.loops}
    names = set(re.findall(r"prepared\['?\"?(\w+)_laid_out", draft.plan))
    assert len(names) == 2
    assert not names & loops
    assert not any(f"{name}_" in line for name in names for line in tunables(draft))
    return task, draft


def tunables(draft: LibraryDraft) -> list[str]:
    return [line for line in draft.kernel.splitlines() if line.startswith("// tune:")]


def test_weights_of_convolutions_are_laid_out_once_by_one_kernel() -> None:
    _, draft = turned_draft("H200")
    prepare, _, forward = draft.plan.partition("def forward")
    plan = validate_plan(draft.plan, parse_kernel(draft.kernel, "cuda"))
    assert plan.prepared is not None
    assert len(plan.prepared) == 2
    assert prepare.count("launch(") == 2
    (kernel,) = set(re.findall(r"launch\('(\w+)'", prepare))
    assert kernel not in forward
    # The input's layout is nobody's to keep.
    assert "x_turned = empty" in forward


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.cat([x, self.w.expand(4, 1, 64)], 1)",
        "return torch.cat([self.w.expand(4, 1, 64), x], 1)",
        "return torch.cat([self.w.expand(4, 1, 64), x @ self.v.mT], 1) + x.mean()",
        "return x + 1, self.w.repeat(1, 3, 1)",
        "return x + 1, self.v.mT.contiguous()",
        "return x + 1, torch.stack([self.v, self.v])",
        "return x + 1, self.v.half()",
        "return x + 1, F.embedding(self.at, self.v)",
        # What a loop has no need to compute is no reason to hand the weight itself out.
        "return x + 1, self.v.clone().t()",
        "return x + 1, self.v.view(8, 8, 64).to(torch.float32, copy=True).view(64, 64)",
        "return x + 1, self.v.clone().chunk(2)[1]",
        "return x + 1, F.interpolate(self.w, scale_factor=1)",
        "return x + 1, torch.tensor([[1.0, 2.0]]).t()",
    ],
)
async def test_what_leaves_or_is_written_in_parts_is_made_in_every_call(forward: str) -> None:
    """Twice, the first answer changed in between."""
    text = f"""
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(1, 1, 64))
        self.v = torch.nn.Parameter(torch.randn(64, 64))
        self.register_buffer("at", torch.arange(3))

    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn(4, 7, 64)]
"""
    task = trace(text, "/tmp/parts.py", TracePolicy())
    assert isinstance(task, Task), task
    draft = repertoire_for(task, hardware_profile("generic_cpu")).draft({})
    candidate = new_candidate("cpp", draft.kernel, draft.plan)
    built = await compile_candidate(candidate, architecture="", timeout_s=120)
    assert isinstance(built, Built), built
    module = Reference.build(task, "cpu")
    weights, inputs = module.weights(), draw(task, "task", 0, "cpu")
    runner = load_candidate(candidate, built, "cpu")
    runner.prepare(weights)
    wanted = module.forward(inputs)
    first = runner(inputs, weights)
    torch.testing.assert_close(tuple(first), tuple(wanted), rtol=1e-4, atol=1e-5)
    for one in first:
        one.zero_()
    again = runner(inputs, weights)
    torch.testing.assert_close(tuple(again), tuple(wanted), rtol=1e-4, atol=1e-5)


async def test_what_was_laid_out_follows_the_weight() -> None:
    task, draft = turned_draft("generic_cpu")
    candidate = new_candidate("cpp", draft.kernel, draft.plan)
    built = await compile_candidate(candidate, architecture="", timeout_s=120)
    assert isinstance(built, Built), built
    module = Reference.build(task, "cpu")
    weights, inputs = module.weights(), draw(task, "task", 0, "cpu")
    runner = load_candidate(candidate, built, "cpu")
    for _ in range(2):
        runner.prepare(weights)
        (mine,) = runner(inputs, weights)
        torch.testing.assert_close(mine, module.forward(inputs)[0], rtol=1e-4, atol=1e-5)
        for weight in weights.values():
            weight.mul_(-1.5)
