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
from kernelwright.graphs.regions import composing
from kernelwright.graphs.regions.composing import called
from kernelwright.graphs.regions.listing import Listed
from kernelwright.graphs.regions.results import RegionResult
from kernelwright.graphs.regions.search import by_regions
from kernelwright.graphs.search.options.call_modes import modes_of
from kernelwright.tools.types import Candidate, Idea
from kernelwright.tools.types.outline import Region, RegionClass

IDEA = Idea(
    id="r1i1",
    title="regions put together: R1",
    mechanism="",
    reason="",
    category="fusion",
    metric="",
    round=1,
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


@pytest.mark.asyncio
async def test_the_model_as_one_has_its_first_idea_in_the_first_round():
    given = GIVEN.model_copy(update={"whole": True, "beside": True})
    proposal = await ComposedPlanner(Other(), given).plan(
        PlannerInput(round=1, wanted=4, floor_ms=0.0)
    )
    assert [idea.id for idea in proposal.ideas] == ["r1i1", "r1i2"]
    assert proposal.ideas[0] == IDEA


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


@pytest.mark.parametrize(("kind", "modes"), [("cpu", ["compile"]), ("cuda", ["compile", "graph"])])
def test_what_was_put_together_is_also_called_in_every_other_mode(kind: str, modes: list[str]):
    task: Any = SimpleNamespace(parts=(), draws_random=False)
    made = [called(GIVEN.items[0], mode, 4) for mode in modes_of(task, kind)]
    assert [item.candidate.mode for item in made] == modes
    assert len({WHOLE.id, *(item.candidate.id for item in made)}) == 1 + len(modes)
    assert {item.candidate.plan for item in made} == {WHOLE.plan}
    assert made[0].idea.title == "regions put together: R1, inside torch.compile"
    assert made[0].idea.id == "r1i4"


def hopeful(number: int, time_ms: float, fused_ms: float) -> RegionClass:
    place = Region(nodes=("n",), inputs=("x",), weights=(), outputs=("n",))
    return RegionClass(
        name=f"R{number}", key=str(number), words="", regions=(place,), time_ms=time_ms,
        share=0.5, floor_ms=0.0, fused_ms=fused_ms,
    )  # fmt: skip


def made_of(monkeypatch: pytest.MonkeyPatch, *parts: tuple[RegionClass, float]) -> Compositions:
    """What classes with these ratios to eager are put together to; plans are the classes' names."""

    def written(graph: object, of: list[Any], *given: object) -> Candidate:
        names = "+".join(part.of.name for part in of)
        parents = tuple(part.candidate.id for part in of)
        return Candidate(id=names, language="cpp", kernel="k", plan=names, parents=parents)

    monkeypatch.setattr(composing, "compose", written)
    context: Any = SimpleNamespace(
        task=SimpleNamespace(parts=(), draws_random=False, inputs=()),
        hardware=SimpleNamespace(kind="cuda"),
    )
    found = Listed.model_construct(
        outline=SimpleNamespace(parts=(), graph=None, whole_ms=10.0), regions=None
    )
    searched = [
        (item, RegionResult(run="a", candidate=WHOLE, ratio=ratio, low=ratio))
        for item, ratio in parts
    ]
    return composing.compositions(context, found, searched)


def test_inside_torch_compile_a_region_stays_with_it_where_it_would_be_as_fast(
    monkeypatch: pytest.MonkeyPatch,
):
    # Eager takes 4 ms for both; R1 took 1 in its search and R2 2, of which Inductor needs 1.5.
    both = made_of(monkeypatch, (hopeful(1, 4.0, 3.0), 4.0), (hopeful(2, 4.0, 1.5), 2.0))
    told = [(item.candidate.plan, item.candidate.mode) for item in both.items]
    assert told == [
        ("R1+R2", "eager"),
        ("R1", "compile"),
        ("R1+R2", "compile"),
        ("R1+R2", "graph"),
        ("R1", "eager"),
    ]
    assert [item.idea.id for item in both.items] == [f"r1i{number}" for number in range(1, 6)]
    expected = [item.idea.predicted_ms for item in both.items]
    assert expected == [5.0, 5.0, 5.0, 5.0, 7.0]  # of 10 ms R1 saves 3 and R2 2


def test_what_is_ahead_of_torch_compile_everywhere_is_put_together_once_a_mode(
    monkeypatch: pytest.MonkeyPatch,
):
    made = made_of(monkeypatch, (hopeful(1, 4.0, 3.0), 4.0))
    assert [item.candidate.mode for item in made.items] == ["eager", "compile", "graph"]


def test_what_may_be_faster_promises_nothing_and_comes_behind_what_is(
    monkeypatch: pytest.MonkeyPatch,
):
    made = made_of(monkeypatch, (hopeful(1, 4.0, 3.0), 4.0), (hopeful(2, 4.0, 3.0), 0.98))
    told = [(item.candidate.plan, item.candidate.mode) for item in made.items]
    assert told[0] == ("R1", "eager")
    assert told[-1] == ("R1+R2", "eager")
    assert {item.idea.predicted_ms for item in made.items} == {7.0}
