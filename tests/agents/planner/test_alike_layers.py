"""What is alike in equal layers is changed, predicted, written and recorded together."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.agents.coder.coder import CoderRequest, Failure, PlaybookCoder
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.planner.unplanned import DrawingPlanner
from kernelwright.agents.shared.facts import Steering, choices, loop_times
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.cuda.attention.warpgroups import WGMMA_ATTENTION
from kernelwright.tools.codegen.ir.kernel_family import LIBRARY
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    PlaybookRepertoire,
    Recipe,
    repertoire_for,
)
from kernelwright.tools.languages import Built, compile_candidate, load_candidate
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import (
    Candidate,
    Evaluation,
    Evidence,
    Idea,
    LedgerEntry,
    Rank,
    Task,
    TracePolicy,
    Verdict,
    Verification,
)

LAYERS = """
import torch
from torch import nn
from torch.nn import functional as F

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(128), nn.Linear(128, 384), nn.Linear(128, 128)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).view(4, 256, 3, 2, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.norm(self.out(y.transpose(1, 2).reshape(4, 256, 128)) + x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.to(torch.bfloat16)

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return x

def get_inputs():
    return [torch.randn(4, 256, 128).bfloat16(), torch.rand(4, 1, 1, 256) < 0.9]
"""
BLOCKS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(2048) for _ in range(3))
        self.mixes = nn.ParameterList(torch.randn(8, 8) for _ in range(3))

    def forward(self, x):
        for norm, mix in zip(self.norms, self.mixes):
            x = norm(mix @ x)
        return x

def get_inputs():
    return [torch.randn(8, 2048)]
"""
CLASS_OF_THREE = 3


def traced(source: str) -> Task:
    task = trace(source, "/tmp/layers.py", TracePolicy())
    assert isinstance(task, Task), task
    return task


@pytest.fixture(scope="module")
def layers() -> PlaybookRepertoire:
    return repertoire_for(traced(LAYERS), hardware_profile("h200"))


@pytest.fixture(scope="module")
def blocks() -> PlaybookRepertoire:
    return repertoire_for(traced(BLOCKS), hardware_profile("generic_cpu"))


def norms_of(blocks: PlaybookRepertoire) -> list[Option]:
    """The options of the three equal norms."""
    return [one for one in blocks.options() if len(one.loops) == CLASS_OF_THREE]


def input_of(**more: Any) -> PlannerInput:
    return PlannerInput(round=1, wanted=12, floor_ms=1e-4, **more)


async def ideas_of(repertoire: PlaybookRepertoire, **more: Any) -> tuple[Idea, ...]:
    return (await PlaybookPlanner(repertoire).plan(input_of(**more))).ideas


def recipe_of(idea: Idea) -> Recipe:
    found = Recipe.from_idea(idea)
    assert found is not None
    return found


def test_a_time_is_that_of_all_and_every_loop_answers_to_its_name(
    layers: PlaybookRepertoire,
) -> None:
    alike = [one for one in layers.options() if one.strategy.name == WGMMA_ATTENTION]
    for one in alike:
        assert len(one.loops) == CLASS_OF_THREE
        assert one.only(one.loops[1:]).predicted_ms == pytest.approx(one.predicted_ms * 2 / 3)
        assert one.only(one.loops[1:]).loop == one.loops[1]
        assert all(f"{loop}={WGMMA_ATTENTION}" in one.texts for loop in one.loops)
    loops = [(one.form, loop, one.strategy.name) for one in layers.options() for loop in one.loops]
    assert len(loops) == len(set(loops))


async def test_attention_of_all_layers_is_one_idea_beside_the_librarys(
    layers: PlaybookRepertoire,
) -> None:
    ideas = await ideas_of(layers)
    ways = [
        {name for loop, name in recipe_of(idea).choices.items() if "attention" in loop}
        for idea in ideas
        if recipe_of(idea).choices[FORM] == recipe_of(ideas[0]).choices[FORM]
    ]
    assert {WGMMA_ATTENTION} in ways
    assert {LIBRARY.name} in ways
    assert all(len(way) == 1 for way in ways), "no idea is about one layer of three"
    titles = [idea.title for idea in ideas if "attention" in recipe_of(idea).changed]
    assert titles
    assert all(", in 3 alike loops from " in title for title in titles)


async def test_the_recipe_names_every_loop_and_the_kernel_is_written_once(
    layers: PlaybookRepertoire,
) -> None:
    ideas = await ideas_of(layers)
    own = next(i for i in ideas if WGMMA_ATTENTION in recipe_of(i).choices.values())
    chosen = recipe_of(own).choices
    attention = [loop for loop in chosen if "attention" in loop]
    assert len(attention) == CLASS_OF_THREE
    answer = await PlaybookCoder(layers).write(CoderRequest(idea=own, count=1))
    (candidate,) = answer.candidates
    assert choices(candidate) == chosen
    launched = re.findall(r"launch\(['\"](\w*attention\w*)['\"]", candidate.plan)
    assert len(launched) == CLASS_OF_THREE
    assert len(set(launched)) == 1
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built


async def test_a_split_class_is_written_as_chosen_and_counted_in_parts(
    blocks: PlaybookRepertoire,
) -> None:
    """As records from before have it, whose ideas were about one loop each."""
    one, other = norms_of(blocks)[:2]
    mixed = {**one.change, one.loops[1]: other.strategy.name}
    planner = PlaybookPlanner(blocks)
    whole = planner._roofline_ms(one.change)
    changed = (other.predicted_ms - one.predicted_ms) / CLASS_OF_THREE
    assert planner._roofline_ms(mixed) == pytest.approx(whole + changed)
    draft = blocks.draft(mixed)
    assert {f"{loop}={name}" for loop, name in mixed.items()} <= set(draft.strategies)
    assert blocks.draft({one.loop: other.strategy.name}) == blocks.draft(other.change)


async def test_a_run_from_before_goes_on(
    blocks: PlaybookRepertoire, standing: Callable[..., Standing]
) -> None:
    one, other = norms_of(blocks)[:2]
    mixed = {**one.change, one.loops[1]: other.strategy.name}
    picks = ",".join(f'{{"loop":"{a}","strategy":"{b}"}}' for a, b in sorted(mixed.items()))
    old = Idea(
        id="r1i1", title="t", mechanism="m", reason="r", category="memory", metric="ms", round=1,
        recipe=f'{{"picks":[{picks}],"changed":"{one.loops[1]}","variant":0,"roofline_ms":1.0}}',
    )  # fmt: skip
    best = standing(tuple(f"{loop}={name}" for loop, name in sorted(mixed.items())), 1.0)
    gained = LedgerEntry(
        idea="r1i1", category="memory", predicted_ms=1.0, measured_ms=1.0, best_before_ms=1.5,
        candidates=1, correct=1, round=1,
    )  # fmt: skip
    ideas = await ideas_of(
        blocks, best=best, parents=(best,), tried=(old,), ledger=(gained,), standings=(best,)
    )
    ways = [{recipe_of(idea).choices[loop] for loop in one.loops} for idea in ideas]
    assert {other.strategy.name} in ways, "what one of them gained by, all are given"
    again = [idea for idea in ideas if recipe_of(idea).variant]
    assert recipe_of(again[0]).choices == mixed, "the best is refined as it was written"
    assert f" in {one.loops[1]}, other settings" in again[0].title
    fresh = [recipe_of(idea).choices for idea in ideas if not recipe_of(idea).variant]
    assert mixed not in fresh


async def test_a_repair_and_a_draw_change_all_of_them(blocks: PlaybookRepertoire) -> None:
    idea = (await ideas_of(blocks))[0]
    coder = PlaybookCoder(blocks)
    first = (await coder.write(CoderRequest(idea=idea, count=1))).candidates[0]
    wrong = Verification(verdict=Verdict.WRONG_RESULT, reason="it is off")
    failure = Failure(
        candidate=first, evaluation=Evaluation(candidate=first.id, verification=wrong)
    )
    request = CoderRequest(idea=idea, count=1, written=(first,))
    (repaired,) = (await coder.repair(request, failure)).candidates
    drawn = (await DrawingPlanner(blocks, 1).plan(input_of())).ideas[0]
    for chosen in (choices(repaired), recipe_of(drawn).choices):
        assert len({chosen[loop] for loop in norms_of(blocks)[0].loops}) == 1
    assert choices(repaired) != choices(first)


async def test_a_ban_of_one_of_them_holds_for_all(blocks: PlaybookRepertoire) -> None:
    banned = norms_of(blocks)[0]
    steering = Steering(bans=(f"{banned.loops[2]}={banned.strategy.name}",))
    ideas = await ideas_of(blocks, steering=steering)
    changed = [recipe_of(idea) for idea in ideas if recipe_of(idea).changed == banned.loop]
    assert all(one.choices[one.changed] != banned.strategy.name for one in changed)


async def test_a_measured_kernel_is_the_time_of_all_its_launches(
    blocks: PlaybookRepertoire,
) -> None:
    one, _other = norms_of(blocks)[:2]
    candidate = Candidate(
        id="c", language="cpp", kernel="", plan="",
        strategies=tuple(f"{loop}={name}" for loop, name in one.change.items()),
    )  # fmt: skip
    source = "a profiler of the device"
    taken = Evidence(
        name=f"{one.loop}_rows.time", rank=Rank.MEASURED, value=7.0, unit="ms", source=source
    )
    ideas = await ideas_of(blocks, loop_ms=loop_times((taken,), candidate))
    expected = {
        recipe_of(idea).choices[one.loop]: idea.predicted_ms or 0.0
        for idea in ideas
        if recipe_of(idea).changed == one.loop
    }
    assert all(ms < 7.0 for name, ms in expected.items() if name != one.strategy.name)
    assert expected.get(one.strategy.name, 7.0) >= 7.0


@pytest.mark.parametrize("split", [False, True])
async def test_kernels_of_a_class_compute_what_the_module_does(
    blocks: PlaybookRepertoire, split: bool
) -> None:
    one, other = norms_of(blocks)[:2]
    chosen = {**one.change, **({one.loops[1]: other.strategy.name} if split else {})}
    recipe = Recipe.of(chosen, 0.0)
    idea = (await ideas_of(blocks))[0].model_copy(update={"recipe": recipe.model_dump_json()})
    candidate = (await PlaybookCoder(blocks).write(CoderRequest(idea=idea, count=1))).candidates[0]
    built = await compile_candidate(candidate, architecture=None, timeout_s=120)
    assert isinstance(built, Built), built
    scope: dict[str, Any] = {}
    exec(BLOCKS, scope)
    module, (x,) = scope["Model"](), scope["get_inputs"]()
    with torch.no_grad():
        for value in module.parameters():
            value.normal_(std=0.3)
        weights = {name: value.detach() for name, value in module.named_parameters()}
        (y,) = load_candidate(candidate, built, "cpu")((x,), weights)
        torch.testing.assert_close(y, module(x), rtol=1e-4, atol=1e-4)
