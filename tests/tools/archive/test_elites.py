from collections.abc import Callable

from kernelwright.tools.archive import Standing, behaviour, elites, parents
from kernelwright.tools.types import Candidate, CompileReport, Evaluation, Verdict

MakeCandidate = Callable[..., Candidate]
MakeEvaluation = Callable[..., Evaluation]


def standings(
    candidate: MakeCandidate, evaluation: MakeEvaluation, *of: tuple[str, float | None, str]
) -> list[Standing]:
    return [
        Standing(
            number=number,
            candidate=candidate(id).model_copy(update={"strategies": (f"memory={memory}",)}),
            round=1,
            author="coder",
            effort="screen",
            evaluation=evaluation(id, ms, Verdict.CORRECT if ms else Verdict.WRONG_RESULT),
        )
        for number, (id, ms, memory) in enumerate(of, start=1)
    ]


def test_the_fastest_of_every_behaviour_is_its_elite(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    found = standings(
        candidate, evaluation,
        ("a", 2.0, "cache"), ("b", 1.0, "streams"), ("c", 1.5, "cache"), ("d", 9.0, "cache"),
    )  # fmt: skip
    assert [elite.standing.candidate.id for elite in elites(found)] == ["b", "c"]
    assert elites(found) == elites(found)


def test_a_wrong_candidate_is_no_elite(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    assert elites(standings(candidate, evaluation, ("a", None, "cache"))) == ()
    assert elites([]) == ()


def test_of_two_equals_the_earlier_one_stays(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    found = standings(candidate, evaluation, ("a", 1.0, "cache"), ("b", 1.0, "cache"))
    assert [elite.standing.candidate.id for elite in elites(found)] == ["a"]


def test_parents_are_the_fastest_and_then_what_is_fast_and_little_known(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    found = elites(
        standings(
            candidate, evaluation,
            ("a", 1.0, "cache"), ("b", 2.0, "streams"), ("c", 2.5, "streams"),
            ("d", 3.0, "streams"), ("e", 2.1, "on chip"),
        )
    )  # fmt: skip
    assert [elite.standing.candidate.id for elite in parents(found, 2)] == ["a", "b"]
    assert {elite.standing.candidate.id for elite in parents(found, 9)} == {"a", "b", "e"}
    assert parents((), 2) == ()


def test_what_the_compiler_measured_goes_into_the_behaviour(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    plain = evaluation("a", 1.0)
    reports = (CompileReport(kernel="k", registers=40, spill_bytes=8, shared_bytes=2048),)
    measured = plain.model_copy(update={"reports": reports})
    of = candidate("a").model_copy(update={"strategies": ("memory=cache", "parallel=rows")})
    assert behaviour(of, plain).memory == "cache"
    found = behaviour(of, measured)
    assert found.memory == "cache, shared <= 16384 bytes, spills"
    assert found.compute == "unknown, registers <= 64"
    assert found.parallel == "rows"


def test_of_parents_that_are_equal_otherwise_the_one_that_improved_goes_first(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    found = standings(
        candidate, evaluation,
        ("a", 1.0, "cache"), ("b", 2.0, "streams"), ("x", 2.5, "streams"), ("c", 2.1, "on chip"),
    )  # fmt: skip
    assert [e.standing.candidate.id for e in parents(elites(found), 2)] == ["a", "b"]
    chosen = parents(elites(found), 2, {"c": 1.5})
    assert [elite.standing.candidate.id for elite in chosen] == ["a", "c"]
