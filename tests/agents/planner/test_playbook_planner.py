from collections.abc import Callable

from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.shared.facts import Steering
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.kernel_library import Recipe, Repertoire
from kernelwright.tools.types import Analysis, Idea, LedgerEntry

MakeStanding = Callable[..., Standing]


def choices(idea: Idea) -> dict[str, str]:
    recipe = Recipe.from_idea(idea)
    assert recipe is not None
    return recipe.choices


def entry(idea: Idea, ms: float, before: float | None = None) -> LedgerEntry:
    return LedgerEntry(
        idea=idea.id, category=idea.category, predicted_ms=idea.predicted_ms, measured_ms=ms,
        best_before_ms=before, candidates=1, correct=1, round=idea.round,
    )  # fmt: skip


async def test_the_first_idea_is_the_one_predicted_fastest(one_loop: Repertoire) -> None:
    proposal = await PlaybookPlanner(one_loop).plan(PlannerInput(round=1, wanted=3, floor_ms=0.5))
    assert [choices(idea)["rows"] for idea in proposal.ideas] == ["once", "tiled", "twice"]
    assert [idea.predicted_ms for idea in proposal.ideas] == [1.0, 1.5, 2.0]
    assert "expected 1 ms (roofline 1 ms, nothing measured" in proposal.reasoning


async def test_the_dominant_loop_is_attacked_first(repertoire: Repertoire) -> None:
    proposal = await PlaybookPlanner(repertoire).plan(PlannerInput(round=1, wanted=1, floor_ms=0.5))
    assert choices(proposal.ideas[0]) == {"rows": "once", "tail": "flat"}


async def test_no_idea_is_proposed_twice_and_the_end_is_said(one_loop: Repertoire) -> None:
    planner = PlaybookPlanner(one_loop)
    first = await planner.plan(PlannerInput(round=1, wanted=9, floor_ms=0.5))
    second = await planner.plan(PlannerInput(round=2, wanted=9, floor_ms=0.5, tried=first.ideas))
    assert len(first.ideas) == 3
    assert second.ideas == ()
    assert "Nothing is left to try" in second.reasoning


async def test_what_an_idea_really_brought_corrects_its_kind(repertoire: Repertoire) -> None:
    planner = PlaybookPlanner(repertoire)
    first = await planner.plan(PlannerInput(round=1, wanted=1, floor_ms=0.5))
    ledger = (entry(first.ideas[0], 12.0),)
    planner_input = PlannerInput(round=2, wanted=9, floor_ms=0.5, tried=first.ideas, ledger=ledger)
    second = await planner.plan(planner_input)
    plain = await planner.plan(planner_input.model_copy(update={"ledger": ()}))
    assert min(i.predicted_ms or 0 for i in second.ideas) > min(
        i.predicted_ms or 0 for i in plain.ideas
    )
    assert "corrected by 1 measured memory idea" in second.reasoning


async def test_what_the_critic_says_changes_what_is_tried_next(one_loop: Repertoire) -> None:
    planner = PlaybookPlanner(one_loop)
    analysis = Analysis(
        round=1, claims=(), implies="", prefer=("memory=cache",), avoid=("memory=on chip",)
    )
    before = await planner.plan(PlannerInput(round=2, wanted=1, floor_ms=0.5))
    after = await planner.plan(PlannerInput(round=2, wanted=1, floor_ms=0.5, analysis=analysis))
    assert choices(before.ideas[0])["rows"] == "once"
    assert choices(after.ideas[0])["rows"] == "tiled"
    assert "the critic prefers memory=cache" in after.reasoning


async def test_pins_come_first_and_bans_never_come(one_loop: Repertoire) -> None:
    steering = Steering(pins=("twice",), bans=("on chip",))
    proposal = await PlaybookPlanner(one_loop).plan(
        PlannerInput(round=1, wanted=9, floor_ms=0.5, steering=steering)
    )
    assert [choices(idea)["rows"] for idea in proposal.ideas] == ["twice", "tiled"]


async def test_gains_of_two_loops_are_combined(
    repertoire: Repertoire, standing: MakeStanding
) -> None:
    tried = tuple(
        Idea(
            id=f"r1i{n}", title="t", mechanism="m", reason="r", category="memory", metric="ms",
            round=1, recipe=Recipe.of(chosen, 1.0, changed=loop).model_dump_json(),
        )
        for n, (loop, chosen) in enumerate(
            [
                ("rows", {"rows": "once", "tail": "flat"}),
                ("rows", {"rows": "tiled", "tail": "flat"}),
                ("tail", {"rows": "once", "tail": "wide"}),
            ]
        )
    )  # fmt: skip
    ledger = (entry(tried[1], 1.0, before=2.0), entry(tried[2], 1.5, before=2.0))
    best = standing(("rows=tiled", "tail=flat"), 1.0)
    proposal = await PlaybookPlanner(repertoire).plan(
        PlannerInput(round=2, wanted=9, floor_ms=0.1, tried=tried, ledger=ledger, best=best)
    )
    assert {"rows": "tiled", "tail": "wide"} in [choices(idea) for idea in proposal.ideas]
    assert len({str(choices(idea)) for idea in proposal.ideas}) == len(proposal.ideas)


async def test_an_elite_is_tried_again_with_other_settings(
    one_loop: Repertoire, standing: MakeStanding
) -> None:
    planner = PlaybookPlanner(one_loop)
    first = await planner.plan(PlannerInput(round=1, wanted=9, floor_ms=0.5))
    elite = standing(("rows=once",), 0.9, idea=first.ideas[0].id)
    planner_input = PlannerInput(
        round=2, wanted=9, floor_ms=0.5, tried=first.ideas, parents=(elite,), best=elite
    )
    second = await planner.plan(planner_input)
    recipe = Recipe.from_idea(second.ideas[0])
    assert recipe is not None
    assert recipe.variant == 1
    assert second.ideas[0].parent == elite.candidate.id


async def test_an_allowed_precision_is_answered_with_what_the_playbook_can_do(
    one_loop: Repertoire,
) -> None:
    planner_input = PlannerInput(round=1, wanted=1, floor_ms=0.5, allow=("tf32",))
    told = (await PlaybookPlanner(one_loop).plan(planner_input)).reasoning
    assert "Computing in tf32 is allowed, but the playbook writes no kernels in it" in told
