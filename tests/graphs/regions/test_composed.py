"""What a model's regions were put together to is the first round of its search, and kept."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.agents.coder.coder import CoderAnswer, CoderRequest
from kernelwright.agents.planner.planner import PlannerInput, Proposal
from kernelwright.agents.roles import GivenCoder
from kernelwright.agents.roles.composed import (
    ComposedPlanner,
    Composition,
    Compositions,
)
from kernelwright.graphs.regions import search
from kernelwright.graphs.regions.search import RegionResult, by_regions, pays_by_itself
from kernelwright.tools.types import Candidate, Idea

IDEA = Idea(
    id="r1i1",
    title="regions put together: R1",
    mechanism="",
    reason="",
    category="fusion",
    metric="",
)
WHOLE = Candidate(id="whole", language="cpp", kernel="k", plan="p")
GIVEN = Compositions(items=(Composition(idea=IDEA, candidate=WHOLE),))


class Other:
    """Plans and writes what nobody else does."""

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        return Proposal(ideas=(IDEA.model_copy(update={"id": "r2i1"}),), reasoning="other")

    async def write(self, request: CoderRequest) -> CoderAnswer:
        return CoderAnswer(candidates=(), notes=("other",))


@pytest.mark.asyncio
async def test_the_first_round_is_what_was_put_together():
    planner, coder = ComposedPlanner(Other(), GIVEN), GivenCoder(Other(), GIVEN.candidates)
    proposal = await planner.plan(PlannerInput(round=1, wanted=4, floor_ms=0.0))
    assert proposal.ideas == (IDEA,)
    answer = await coder.write(CoderRequest(idea=IDEA, count=1))
    assert [item.id for item in answer.candidates] == ["whole"]
    assert answer.candidates[0].idea == IDEA.id


@pytest.mark.asyncio
async def test_where_none_of_it_held_the_model_is_searched_as_one():
    planner, coder = ComposedPlanner(Other(), GIVEN), GivenCoder(Other(), GIVEN.candidates)
    proposal = await planner.plan(PlannerInput(round=2, wanted=4, floor_ms=0.0))
    assert [idea.id for idea in proposal.ideas] == ["r2i1"]
    answer = await coder.write(CoderRequest(idea=proposal.ideas[0], count=1))
    assert answer.notes == ("other",)


def test_only_what_is_certainly_ahead_of_eager_counts_as_faster():
    assert RegionResult(run="a", candidate=WHOLE, ratio=1.2, low=1.1).faster
    assert not RegionResult(run="a", candidate=WHOLE, ratio=1.2, low=0.9).faster
    assert not RegionResult(run="a", why="no candidate was correct").faster
    assert by_regions("off") is None


@pytest.mark.parametrize(
    ("seconds", "kind", "remote", "wanted"),
    [
        (240, "cpu", False, True),
        (32, "cpu", False, False),
        (240, "cuda", False, False),
        (240, "cpu", True, False),
    ],
)
def test_regions_are_searched_unasked_where_there_is_time_for_each(
    monkeypatch: pytest.MonkeyPatch, seconds: float, kind: str, remote: bool, wanted: bool
):
    large, small = SimpleNamespace(parts=()), SimpleNamespace(parts=())
    monkeypatch.setattr(search, "is_large", lambda task: task is large)
    context: Any = SimpleNamespace(
        task=large,
        profile=SimpleNamespace(seconds=seconds),
        hardware=SimpleNamespace(kind=kind),
        executor=SimpleNamespace(capabilities=SimpleNamespace(remote=remote)),
    )
    assert pays_by_itself(context) is wanted
    context.task = small
    assert not pays_by_itself(context)
    context.task = SimpleNamespace(parts=("first",))
    assert pays_by_itself(context)  # there is no other way


@pytest.mark.parametrize(("kind", "modes"), [("cpu", ["compile"]), ("cuda", ["compile", "graph"])])
def test_what_was_put_together_is_also_called_in_every_other_mode(kind: str, modes: list[str]):
    made = [search._called(GIVEN.items[0], mode, 4) for mode in search._MODES[kind]]
    assert [item.candidate.mode for item in made] == modes
    assert len({WHOLE.id, *(item.candidate.id for item in made)}) == 1 + len(modes)
    assert {item.candidate.plan for item in made} == {WHOLE.plan}
    assert made[0].idea.title == "regions put together: R1, inside torch.compile"
    assert made[0].idea.id == "r1i4"
