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
from kernelwright.graphs.regions.paying import too_little, turns
from kernelwright.graphs.regions.search import RegionResult, by_regions, may_pay
from kernelwright.graphs.search.options.call_modes import modes_of
from kernelwright.tools.types import Candidate, Idea
from kernelwright.tools.types.outline import ModelRegions, Region, RegionClass

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


@pytest.mark.asyncio
@pytest.mark.parametrize("whole", [True, False])
async def test_beside_what_was_put_together_a_model_is_searched_as_one_if_it_may_be(whole: bool):
    planner = ComposedPlanner(Other(), GIVEN.model_copy(update={"whole": whole}))
    second = PlannerInput(round=2, wanted=4, floor_ms=0.0)
    proposal = await planner.plan(second.model_copy(update={"best": SimpleNamespace()}))
    assert [idea.id for idea in proposal.ideas] == (["r2i1"] if whole else [])


@pytest.mark.parametrize(
    ("seconds", "kind", "remote", "wanted"),
    [
        (240, "cpu", False, True),
        (32, "cpu", False, False),
        (240, "cuda", False, True),
        (32, "cuda", False, True),
        (10, "cuda", False, False),
        (240, "cpu", True, False),
        (240, "cuda", True, False),
    ],
)
def test_regions_are_listed_unasked_where_two_of_them_can_have_a_turn(
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
    assert may_pay(context) is wanted
    context.task = small
    assert not may_pay(context)
    context.task = SimpleNamespace(parts=("first",))
    assert may_pay(context)  # there is no other way


def parted(*kinds: tuple[int, float]) -> ModelRegions:
    """Classes with so many places and so much of the time each, all of it to be gained."""
    place = Region(nodes=("n",), inputs=("x",), weights=(), outputs=("n",))
    classes = tuple(
        RegionClass(
            name=f"R{number}", key=str(number), words="", regions=(place,) * places,
            time_ms=share, share=share, floor_ms=0.0,
        )
        for number, (places, share) in enumerate(kinds, start=1)
    )  # fmt: skip
    return ModelRegions(classes=classes, left=(), whole_ms=1.0)


def test_a_module_of_one_or_two_regions_is_searched_as_one():
    assert "only 2 of its regions" in too_little(parted((2, 0.9)), 9)
    assert "only 2 of its regions" in too_little(parted((2, 0.9), (40, 0.001)), 9)
    assert not too_little(parted((2, 0.6), (1, 0.3)), 9)


def test_regions_are_searched_where_those_that_have_a_turn_hold_half_of_what_there_is_to_gain():
    different = parted(*[(1, 0.05)] * 12)
    words = too_little(different, 5)
    assert "the time is for 5 of 12 regions that differ" in words
    assert "42% of what there is to gain" in words
    assert not too_little(different, 6)
    assert not too_little(parted((12, 0.5), (1, 0.1), (1, 0.1)), 1)  # twelve equal layers


@pytest.mark.asyncio
async def test_what_regions_take_beside_their_slices_is_not_taken_from_the_whole(
    monkeypatch: pytest.MonkeyPatch,
):
    found: Any = SimpleNamespace(regions=parted(*[(1, 0.1)] * 10))
    told: list[tuple[str, str]] = []
    context: Any = SimpleNamespace(
        searched_s=0.0,
        searching_ends_s=100.0,
        archive=SimpleNamespace(
            decisions=lambda: (), record_decision=lambda *kept: told.append(kept)
        ),
        executor=SimpleNamespace(
            compile_ahead=lambda wanted: None, beside_eager_alone=lambda wanted: None
        ),
        emit=lambda event, key: None,
    )
    slices: list[float] = []

    async def searching(context: Any, found: Any, item: RegionClass, slice_s: float):
        if slice_s < 4.0:
            return RegionResult(why="the time was over before its turn")
        slices.append(slice_s)
        context.searched_s += slice_s + 6.0  # to be read, and for eager's time
        return RegionResult(run=item.name)

    monkeypatch.setattr(search, "_search", searching)
    results = await search._searched(context, found)
    assert len(results) == len(told) == 10
    assert len(slices) >= 5
    assert context.searched_s <= 70.0


def test_a_longer_search_gives_more_regions_a_turn_on_every_device():
    for kind in ("cpu", "cuda"):
        assert turns(10, kind) == 0
        assert turns(240, kind) > turns(120, kind) > 1


@pytest.mark.parametrize(("kind", "modes"), [("cpu", ["compile"]), ("cuda", ["compile", "graph"])])
def test_what_was_put_together_is_also_called_in_every_other_mode(kind: str, modes: list[str]):
    task: Any = SimpleNamespace(parts=(), draws_random=False)
    made = [search._called(GIVEN.items[0], mode, 4) for mode in modes_of(task, kind)]
    assert [item.candidate.mode for item in made] == modes
    assert len({WHOLE.id, *(item.candidate.id for item in made)}) == 1 + len(modes)
    assert {item.candidate.plan for item in made} == {WHOLE.plan}
    assert made[0].idea.title == "regions put together: R1, inside torch.compile"
    assert made[0].idea.id == "r1i4"
