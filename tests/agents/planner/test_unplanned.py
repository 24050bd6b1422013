from collections.abc import Callable

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.critic.critic import CriticInput, SilentCritic
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.planner.unplanned import DrawingPlanner, FreeHand, unplanned
from kernelwright.agents.shared.facts import Steering
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.kernel_library import Recipe, Repertoire
from kernelwright.tools.types import Idea


def planner_input(
    round: int = 1, tried: tuple[Idea, ...] = (), bans: tuple[str, ...] = ()
) -> PlannerInput:
    return PlannerInput(
        round=round, wanted=4, floor_ms=0.1, tried=tried, steering=Steering(bans=bans)
    )  # fmt: skip


async def test_what_is_drawn_differs_has_no_prediction_and_can_be_written(
    repertoire: Repertoire,
) -> None:
    proposal = await DrawingPlanner(repertoire, seed=3).plan(planner_input())
    recipes = [Recipe.from_idea(idea) for idea in proposal.ideas]
    assert len({recipe.picks for recipe in recipes if recipe}) == len(proposal.ideas) == 4
    assert all(idea.predicted_ms is None for idea in proposal.ideas)
    answer = await PlaybookCoder(repertoire).write(CoderRequest(idea=proposal.ideas[0], count=2))
    assert len(answer.candidates) == 2


async def test_the_same_seed_draws_the_same_and_another_one_does_not(
    repertoire: Repertoire,
) -> None:
    drawn = [await DrawingPlanner(repertoire, seed).plan(planner_input()) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


async def test_when_everything_was_drawn_it_goes_on_with_other_settings(
    one_loop: Repertoire,
) -> None:
    planner = DrawingPlanner(one_loop, seed=0)
    first = await planner.plan(planner_input())
    second = await planner.plan(planner_input(2, first.ideas))
    assert len(second.ideas) == 4
    assert all("other settings" in idea.title for idea in second.ideas)


async def test_what_a_person_rules_out_is_never_drawn(repertoire: Repertoire) -> None:
    planner = DrawingPlanner(repertoire, seed=0)
    ideas = (await planner.plan(planner_input(bans=("twice",)))).ideas
    assert ideas
    assert not [idea for idea in ideas if "rows=twice" in idea.recipe or '"twice"' in idea.recipe]
    nothing = await planner.plan(planner_input(bans=("memory",)))
    assert nothing.ideas == ()


async def test_a_model_without_planning_has_a_free_hand(repertoire: Repertoire) -> None:
    planner = unplanned(FreeHand(), seed=0)
    ideas = (await planner.plan(planner_input(round=2))).ideas
    assert [idea.id for idea in ideas] == ["r2i1", "r2i2", "r2i3", "r2i4"]
    assert {(idea.origin, idea.recipe, idea.predicted_ms) for idea in ideas} == {
        ("model", "", None)
    }
    assert isinstance(unplanned(PlaybookPlanner(repertoire), 0), DrawingPlanner)


async def test_a_silent_critic_says_nothing(standing: Callable[..., Standing]) -> None:
    standings = (standing(("rows=once",), 1.0), standing(("rows=twice",), 3.0))
    analysis = await SilentCritic().critique(CriticInput(round=1, standings=standings))
    assert (analysis.claims, analysis.prefer, analysis.predictions) == ((), (), ())
