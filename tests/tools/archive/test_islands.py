from collections.abc import Callable

from kernelwright.tools.archive import Standing, island, population
from kernelwright.tools.archive.elites import MIGRATION
from kernelwright.tools.types import Candidate, Evaluation, Idea

MakeCandidate = Callable[..., Candidate]
MakeEvaluation = Callable[..., Evaluation]


def _idea(round: int) -> Idea:
    return Idea(
        id=f"r{round}", title="", mechanism="", reason="", category="", metric="", round=round
    )


def _born(
    candidate: MakeCandidate, evaluation: MakeEvaluation, ms: float, idea: int, round: int
) -> Standing:
    id = f"c{round}-{ms:g}"
    return Standing(
        number=1, candidate=candidate(id, f"r{idea}"), round=round, author="coder",
        effort="screen", evaluation=evaluation(id, ms),
    )  # fmt: skip


def test_rounds_take_turns() -> None:
    assert [island(round, 2) for round in range(1, 6)] == [0, 1, 0, 1, 0]
    assert {island(round, 1) for round in range(1, 6)} == {0}


def test_a_round_starts_from_its_own_island_and_on_the_first_visit_from_nothing(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    ideas = [_idea(1), _idea(2)]
    first = _born(candidate, evaluation, 1.0, 1, 1)
    assert population([first], ideas, 2, 2) == ()
    assert population([first], ideas, 2, 1) == (first,)
    second = _born(candidate, evaluation, 2.0, 2, 2)
    assert population([first, second], ideas, 3, 2) == (first,)
    assert population([first, second], ideas, 4, 2) == (second,)


def test_tuning_moves_nobody_to_another_island(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    tuned = _born(candidate, evaluation, 0.5, 1, 2)
    ideas = [_idea(1), _idea(2)]
    assert population([tuned], ideas, 3, 2) == (tuned,)
    assert population([tuned], ideas, 4, 2) == ()


def test_migration_is_rare_and_brings_the_best_of_the_neighbour_alone(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    ideas = [_idea(round) for round in range(1, 9)]
    here = [_born(candidate, evaluation, 5.0 + n, n, n) for n in (1, 3, 5)]
    there = [_born(candidate, evaluation, float(n), n, n) for n in (2, 4, 6)]
    found = [*here, *there]
    mixed = [
        round for round in range(1, 20, 2) if set(population(found, ideas, round, 2)) != set(here)
    ]
    assert mixed == [1 + 2 * MIGRATION, 1 + 4 * MIGRATION, 1 + 6 * MIGRATION]
    assert set(population(found, ideas, mixed[0], 2)) == {*here, there[0]}
