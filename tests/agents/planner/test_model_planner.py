import json

import pytest

from kernelwright.agents.llm.client import BudgetSpentError, LLMError
from kernelwright.agents.planner.model import ModelPlanner
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.shared.facts import Steering
from kernelwright.tools.types import Evidence, Idea, LedgerEntry, Rank, StrategyVersion
from kernelwright.tools.types.value import AwaitingError

TILES = {
    "title": "Tiles through shared memory",
    "mechanism": "Each block copies a tile of 64 x 64 into shared memory and transposes it there.",
    "reason": "reads 32 KB instead of 64 KB",
    "category": "memory",
    "metric": "bytes read: 2x -> 1x",
    "predicted_ms": "0.02 ms",
    "risk": "bank conflicts",
}
WARPS = {
    "title": "A warp a row",
    "mechanism": "32 lanes hold a row in registers and reduce by shuffles; no barriers.",
    "category": "Parallelism (occupancy)",
    "predicted_ms": 0.03,
}
FUSED = {
    "title": "Fused tail",
    "mechanism": "The addition happens in the epilogue, before the store.",
    "category": "fusion",
}


def said(*ideas: dict[str, object], reasoning: str = "because") -> str:
    return "```json\n" + json.dumps({"reasoning": reasoning, "ideas": ideas}) + "\n```"


def tried(idea: str, title: str, mechanism: str) -> Idea:
    return Idea(
        id=idea, title=title, mechanism=mechanism, reason="", category="memory", metric="",
        round=1, origin="model",
    )  # fmt: skip


def entry(idea: str, measured_ms: float | None) -> LedgerEntry:
    return LedgerEntry(
        idea=idea, category="memory", predicted_ms=None, measured_ms=measured_ms,
        best_before_ms=0.05, candidates=1, correct=int(measured_ms is not None), round=1,
    )  # fmt: skip


async def test_ideas_come_back_as_objects_in_the_models_order(
    planner_of, scripted, planner_input
) -> None:
    strategy = StrategyVersion(id="planner:0", role="planner", text="- look at the floor")
    planner_input = planner_input.model_copy(update={"strategy": strategy})
    proposal = await planner_of(scripted(said(TILES, WARPS))).plan(planner_input)
    first, second = proposal.ideas
    assert [first.id, second.id] == ["r2i1", "r2i2"]
    assert (first.title, first.predicted_ms, first.metric) == (
        "Tiles through shared memory", 0.02, "bytes read: 2x -> 1x",
    )  # fmt: skip
    assert (second.category, first.origin, first.strategy) == ("parallelism", "model", "planner:0")
    assert first.recipe == ""
    assert proposal.reasoning == "because"
    assert proposal.notes == ()


async def test_the_prompt_shows_the_task_and_what_the_playbook_would_do(
    planner_of, scripted, planner_input
) -> None:
    client = scripted(said(TILES))
    await planner_of(client).plan(planner_input)
    (asked,) = client.asked
    assert (asked.key, asked.role, asked.round) == ("planner:2", "planner", 2)
    assert [message.author for message in asked.messages] == ["system", "person"]
    text = asked.messages[1].text
    assert 'add = add(x, w["bias"])  # float32[64, 128]' in text
    assert "{{ nothing }} is filled in" in text
    assert "- P1: " in text
    assert "Write 2 ideas for round 2" in text


async def test_an_option_of_the_playbook_brings_its_recipe(
    planner_of, scripted, planner_input
) -> None:
    planner = planner_of(scripted(said({**TILES, "playbook": "P1"}, {**WARPS, "playbook": "9"})))
    proposal = await planner.plan(planner_input)
    first, second = proposal.ideas
    assert json.loads(first.recipe)["picks"]
    assert first.title == "Tiles through shared memory"
    assert second.recipe == ""
    assert proposal.notes == ("the playbook has no open option '9'",)


async def test_what_was_measured_is_turned_away_and_the_model_told_once(
    planner_of, scripted, planner_input
) -> None:
    planner_input = planner_input.model_copy(
        update={
            "tried": (
                tried("r1i1", "Shared memory tiles", TILES["mechanism"].replace("64", "32")),
            ),
            "ledger": (entry("r1i1", 0.04),),
        }
    )
    client = scripted(said(TILES, WARPS), said(TILES, FUSED))
    proposal = await planner_of(client).plan(planner_input)
    assert [idea.title for idea in proposal.ideas] == ["A warp a row", "Fused tail"]
    first, second = client.asked
    assert second.key == "planner:2:differently"
    assert "which reached 0.04 ms" in second.messages[-1].text
    assert "These stand, and need not be repeated: A warp a row." in second.messages[-1].text
    assert second.messages[: len(first.messages) - 1] == first.messages[:-1]
    assert any("which reached 0.04 ms" in note for note in proposal.notes)


async def test_what_failed_may_be_tried_once_more_but_not_twice(
    planner_of, scripted, planner_input
) -> None:
    failed = tried("r1i1", TILES["title"], TILES["mechanism"])
    once = {"tried": (failed,), "ledger": (entry("r1i1", None),)}
    proposal = await planner_of(scripted(said(TILES))).plan(planner_input.model_copy(update=once))
    assert proposal.ideas[0].title == TILES["title"]
    again = tried("r1i2", TILES["title"], TILES["mechanism"])
    twice = {"tried": (failed, again), "ledger": (entry("r1i1", None), entry("r1i2", None))}
    client = scripted(said(TILES), said(WARPS))
    proposal = await planner_of(client).plan(planner_input.model_copy(update=twice))
    assert [idea.title for idea in proposal.ideas] == ["A warp a row"]


async def test_the_same_idea_twice_in_one_answer_counts_once(
    planner_of, scripted, planner_input
) -> None:
    client = scripted(said(WARPS, {**WARPS, "title": "Warps own rows"}), said(TILES))
    proposal = await planner_of(client).plan(planner_input)
    assert [idea.title for idea in proposal.ideas] == ["A warp a row", TILES["title"]]


async def test_bans_are_enforced_and_pins_come_first(planner_of, scripted, planner_input) -> None:
    steering = Steering(pins=("fused tail",), bans=("shared memory",))
    planner_input = planner_input.model_copy(update={"steering": steering})
    client = scripted(said(TILES, WARPS), said(FUSED))
    proposal = await planner_of(client).plan(planner_input)
    assert [idea.title for idea in proposal.ideas] == ["Fused tail", "A warp a row"]
    assert "the person ruled out 'shared memory'" in client.asked[1].messages[-1].text
    assert "must be tried first: fused tail" in client.asked[0].messages[1].text


async def test_a_pin_that_the_model_passes_over_is_taken_from_the_playbook(
    planner_of, scripted, planner_input
) -> None:
    planner_input = planner_input.model_copy(update={"steering": Steering(pins=("tiled",))})
    proposal = await planner_of(scripted(said(WARPS), said(FUSED))).plan(planner_input)
    assert proposal.ideas[0].origin == "playbook"
    assert '"tiled"' in proposal.ideas[0].recipe
    assert len(proposal.ideas) == 2


async def test_an_idea_starts_from_a_candidate_by_its_id_or_as_the_best(
    planner_of, scripted, planner_input, standing
) -> None:
    best, other = standing(("rows=once",), 0.04), standing(("rows=twice",), 0.05)
    update = {"best": best, "standings": (best, other)}
    client = scripted(
        said(
            {**TILES, "start_from": "best"}, {**WARPS, "start_from": f"`{other.candidate.id[:8]}`"}
        )
    )
    proposal = await planner_of(client).plan(planner_input.model_copy(update=update))
    assert [idea.parent for idea in proposal.ideas] == [best.candidate.id, other.candidate.id]
    assert other.candidate.id in client.asked[0].messages[1].text


async def test_what_the_profiler_said_stands_before_the_symptoms(
    planner_of, scripted, planner_input, standing
) -> None:
    update = {"best": standing(("rows=once",), 0.04), "explanation": "It waits for memory."}
    client = scripted(said(TILES))
    await planner_of(client).plan(planner_input.model_copy(update=update))
    text = client.asked[0].messages[1].text
    assert "of the best candidate\n\nIt waits for memory.\n\nNothing telling" in text


async def test_what_was_measured_of_the_best_stands_with_its_rank(
    planner_of, scripted, planner_input, standing
) -> None:
    best = standing(("rows=once",), 0.04)
    readings = (
        Evidence(
            name="occupancy", rank=Rank.STATIC, value=0.5, unit="", source="limited by registers"
        ),
        Evidence(
            name="rows.dram_read", rank=Rank.MEASURED, value=6.8e7, unit="bytes", source="ncu"
        ),
        Evidence(name="counters", rank=Rank.UNAVAILABLE, value=None, unit="", source="no right"),
    )
    client = scripted(said(TILES))
    update = {"best": best, "readings": readings}
    await planner_of(client).plan(planner_input.model_copy(update=update))
    text = client.asked[0].messages[1].text
    id = best.candidate.id
    measured, static = (
        f"| {id} | rows.dram_read | 6.8e+07 | bytes | measured |",
        f"| {id} | occupancy | 0.5 |  | static |",
    )
    assert text.index(measured) < text.index(static)
    assert "| counters |" not in text


async def test_a_candidate_that_does_not_exist_is_noted_and_left_out(
    planner_of, scripted, planner_input
) -> None:
    client = scripted(said({**TILES, "start_from": "abcdef123456"}))
    proposal = await planner_of(client).plan(planner_input)
    assert proposal.ideas[0].parent is None
    assert proposal.notes == ("there is no candidate 'abcdef123456' to start from",)


async def test_without_an_answer_the_playbook_plans_the_round_and_says_so(
    planner_of, scripted, planner_input
) -> None:
    proposal = await planner_of(scripted(LLMError("the server is down"))).plan(planner_input)
    assert len(proposal.ideas) == 2
    assert {idea.origin for idea in proposal.ideas} == {"playbook"}
    assert proposal.notes == ("the playbook planned round 2: the server is down",)


async def test_where_nobody_plans_the_coder_has_a_free_hand_unless_the_budget_is_spent(
    task, hardware, scripted, planner_input, repertoire
) -> None:
    nothing = type(repertoire)({})
    fallback = PlaybookPlanner(nothing)
    lost = scripted(LLMError("the server is down"))
    proposal = await ModelPlanner(lost, task, hardware, fallback, nothing).plan(planner_input)
    assert [(idea.id, idea.recipe) for idea in proposal.ideas] == [("r2i1", "")]
    assert proposal.notes == ("nobody planned round 2: the server is down",)
    spent = scripted(BudgetSpentError("the budget is used up"))
    proposal = await ModelPlanner(spent, task, hardware, fallback, nothing).plan(planner_input)
    assert proposal.ideas == ()


async def test_an_answer_that_cannot_be_read_twice_ends_in_the_playbook(
    planner_of, scripted, planner_input
) -> None:
    client = scripted("I would rather not.", "Still not.")
    proposal = await planner_of(client).plan(planner_input)
    assert proposal.ideas
    assert [prompt.key for prompt in client.asked] == ["planner:2", "planner:2:again"]
    assert proposal.notes[0].startswith("the playbook planned round 2")


async def test_a_second_question_without_an_answer_costs_nothing_that_stood(
    planner_of, scripted, planner_input
) -> None:
    client = scripted(said(WARPS, WARPS), LLMError("the budget is used up"))
    proposal = await planner_of(client).plan(planner_input)
    assert [idea.title for idea in proposal.ideas] == ["A warp a row"]
    assert "the budget is used up" in proposal.notes


async def test_an_answer_that_is_awaited_goes_through(planner_of, scripted, planner_input) -> None:
    with pytest.raises(AwaitingError):
        await planner_of(scripted(AwaitingError("waiting"))).plan(planner_input)


async def test_no_more_ideas_than_wanted(planner_of, scripted, planner_input) -> None:
    proposal = await planner_of(scripted(said(TILES, WARPS, FUSED))).plan(planner_input)
    assert len(proposal.ideas) == 2
