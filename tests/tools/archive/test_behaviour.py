from collections.abc import Callable

from kernelwright.tools.archive import (
    Behaviour,
    Standing,
    gain,
    improvements,
    strategy_words,
    transitions,
)
from kernelwright.tools.types import Candidate, Comparison, Conditions, Evaluation, Verdict

MakeCandidate = Callable[..., Candidate]
MakeEvaluation = Callable[..., Evaluation]


class Family:
    """Judged candidates with parents; the memory label is the cell."""

    def __init__(self, candidate: MakeCandidate, evaluation: MakeEvaluation) -> None:
        self.standings: list[Standing] = []
        self._candidate, self._evaluation = candidate, evaluation

    def born(
        self, id: str, ms: float | None, idea: str, memory: str, parents: tuple[str, ...] = ()
    ) -> None:
        update = {"strategies": (f"memory={memory}",), "parents": parents}
        self.standings.append(
            Standing(
                number=len(self.standings) + 1,
                candidate=self._candidate(id, idea).model_copy(update=update),
                round=len(self.standings) + 1,
                author="coder",
                effort="screen",
                evaluation=self._evaluation(id, ms, Verdict.CORRECT if ms else Verdict.TIMED_OUT),
            )
        )


def test_a_move_says_from_where_to_where_and_what_it_brought(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    family = Family(candidate, evaluation)
    family.born("a", 2.0, "i1", "streams")
    family.born("b", 1.6, "i2", "on chip", ("a",))
    family.born("c", 1.0, "i2", "on chip", ("a",))
    (move,) = transitions(family.standings)
    assert (move.before.memory, move.after.memory) == ("streams", "on chip")
    assert (move.source, move.candidate, move.idea, move.round) == ("a", "c", "i2", 2)
    assert (move.gain, move.tried, move.correct) == (2.0, 2, 2)


def test_repairs_and_tuned_settings_belong_to_the_move_of_their_idea(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    family = Family(candidate, evaluation)
    family.born("a", 2.0, "i1", "streams")
    family.born("b", None, "i2", "on chip", ("a",))
    family.born("repaired", 1.0, "i2", "on chip", ("b",))
    family.born("tuned", 0.5, "i2", "on chip", ("repaired",))
    (move,) = transitions(family.standings)
    assert (move.source, move.candidate, move.gain) == ("a", "tuned", 4.0)
    assert (move.tried, move.correct) == (3, 2)


def test_a_move_that_never_ran_has_no_gain_and_one_from_nothing_is_none(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    family = Family(candidate, evaluation)
    family.born("a", 2.0, "i1", "streams")
    family.born("b", None, "i2", "on chip", ("a", "unknown"))
    (move,) = transitions(family.standings)
    assert (move.gain, move.correct) == (None, 0)
    assert move.after == Behaviour(memory="on chip", compute="unknown", parallel="unknown")
    assert transitions(family.standings[:1]) == ()


def test_parents_in_a_circle_end_the_search_for_an_origin(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    family = Family(candidate, evaluation)
    family.born("a", 2.0, "i1", "streams", ("b",))
    family.born("b", 1.0, "i1", "streams", ("a",))
    assert transitions(family.standings) == ()


def test_improvement_is_against_what_a_candidate_set_out_from(
    candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    family = Family(candidate, evaluation)
    family.born("a", 2.0, "i1", "streams")
    family.born("b", 1.0, "i2", "on chip", ("a",))
    family.born("c", 4.0, "i3", "cache", ("b",))
    family.born("d", None, "i4", "cache", ("b",))
    assert improvements(family.standings) == {"b": 2.0, "c": 0.25}


def _compared(evaluation: Evaluation, ratio: float) -> Evaluation:
    conditions = Conditions(device="toy", l2_flushed=False, input_sets=1)
    comparison = Comparison(
        baseline="eager", candidate_ms=1.0, baseline_ms=ratio, ratio=ratio, ci95_low=ratio,
        ci95_high=ratio, pairs=9, candidate_samples_ms=(1.0,), baseline_samples_ms=(ratio,),
        conditions=conditions,
    )  # fmt: skip
    return evaluation.model_copy(update={"comparisons": (comparison,)})


def test_gain_compares_like_with_like(evaluation: MakeEvaluation) -> None:
    slow, fast = evaluation("a", 2.0), evaluation("b", 1.0)
    assert gain(slow, fast) == 2.0
    compared = [_compared(slow, 1.0), _compared(fast, 3.0)]
    assert gain(*compared) == 3.0
    assert gain(slow, compared[1]) == 2.0
    assert gain(slow, evaluation("c", None, Verdict.TIMED_OUT)) is None


def test_many_loops_of_one_strategy_are_read_as_one() -> None:
    layers = tuple(f"L{number}=rows" for number in range(1, 13))
    labels = ("memory=plain", "compute=plain", "parallel=plain")
    assert strategy_words((*layers, "L13=flat", *labels)) == (
        "L1=rows (and 11 more), L13=flat, memory=plain, compute=plain, parallel=plain"
    )
    assert strategy_words(layers[:3]) == "L1=rows, L2=rows, L3=rows"
