from collections.abc import Callable
from itertools import pairwise

from kernelwright.agents.coder.coder import CoderRequest, Failure, PlaybookCoder, spread
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.tools.archive import Standing
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.library.kernel_library import Repertoire
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import Analysis, Idea, Verdict

MakeStanding = Callable[..., Standing]


async def first_idea(repertoire: Repertoire) -> Idea:
    planner = PlaybookPlanner(repertoire)
    return (await planner.plan(PlannerInput(round=1, wanted=1, floor_ms=0.1))).ideas[0]


async def test_an_idea_becomes_candidates_with_settings_that_lie_apart(
    one_loop: Repertoire,
) -> None:
    idea = await first_idea(one_loop)
    answer = await PlaybookCoder(one_loop).write(CoderRequest(idea=idea, count=3))
    assert len({candidate.id for candidate in answer.candidates}) == 3
    assert {candidate.idea for candidate in answer.candidates} == {idea.id}
    first = {setting.name: setting.value for setting in answer.candidates[0].settings}
    assert first == {"THREADS": 64, "VECTOR": 1}
    for one, other in pairwise(answer.candidates):
        assert len(set(one.settings) - set(other.settings)) == 2


async def test_what_is_written_already_is_not_written_again(one_loop: Repertoire) -> None:
    idea = await first_idea(one_loop)
    coder = PlaybookCoder(one_loop)
    first = await coder.write(CoderRequest(idea=idea, count=5))
    second = await coder.write(CoderRequest(idea=idea, count=50, written=first.candidates))
    assert not {c.id for c in first.candidates} & {c.id for c in second.candidates}
    assert len(first.candidates) + len(second.candidates) == 8


async def test_settings_that_the_critic_prefers_come_first(one_loop: Repertoire) -> None:
    idea = await first_idea(one_loop)
    analysis = Analysis(round=1, claims=(), implies="", prefer=("VECTOR=4",), avoid=("THREADS=64",))
    answer = await PlaybookCoder(one_loop).write(
        CoderRequest(idea=idea, count=1, analysis=analysis)
    )
    chosen = {setting.name: setting.value for setting in answer.candidates[0].settings}
    assert chosen == {"THREADS": 128, "VECTOR": 4}


async def test_a_wrong_result_is_answered_with_another_strategy_and_the_real_message(
    one_loop: Repertoire, standing: MakeStanding
) -> None:
    idea = await first_idea(one_loop)
    coder = PlaybookCoder(one_loop)
    written = (await coder.write(CoderRequest(idea=idea, count=1))).candidates
    evaluation = standing(("rows=once",), None).evaluation
    failure = Failure(candidate=written[0], evaluation=evaluation)
    answer = await coder.repair(CoderRequest(idea=idea, count=1, written=written), failure)
    repaired = answer.candidates[0]
    assert "rows=tiled" in repaired.strategies
    assert repaired.parents == (written[0].id,)
    assert "wrong result: it is off" in repaired.note


async def test_a_kernel_that_does_not_fit_is_answered_with_other_settings(
    one_loop: Repertoire, standing: MakeStanding
) -> None:
    idea = await first_idea(one_loop)
    coder = PlaybookCoder(one_loop)
    written = (await coder.write(CoderRequest(idea=idea, count=1))).candidates
    judged = standing(("rows=once",), 1.0, verdict=Verdict.LAUNCH_ERROR).evaluation
    failure = Failure(candidate=written[0], evaluation=judged)
    answer = await coder.repair(CoderRequest(idea=idea, count=1, written=written), failure)
    assert answer.candidates[0].kernel == written[0].kernel
    assert answer.candidates[0].settings != written[0].settings


async def test_repair_ends_when_every_strategy_failed(
    one_loop: Repertoire, standing: MakeStanding
) -> None:
    idea = await first_idea(one_loop)
    written = tuple(
        standing((f"rows={name}",), None).candidate for name in ("once", "twice", "tiled")
    )
    failure = Failure(candidate=written[0], evaluation=standing(("rows=once",), None).evaluation)
    answer = await PlaybookCoder(one_loop).repair(
        CoderRequest(idea=idea, count=1, written=written), failure
    )
    assert answer.candidates == ()
    assert "nothing to put instead of" in answer.notes[0]


def test_spreading_is_the_same_for_the_same_seed(standing: MakeStanding) -> None:
    candidate = standing(("rows=once",), 1.0).candidate
    valid = valid_settings(parse_kernel(candidate.kernel, candidate.language))
    assert spread(valid, 4, set(), seed=3) == spread(valid, 4, set(), seed=3)
    assert len(spread(valid, 99, set())) == len(valid)
