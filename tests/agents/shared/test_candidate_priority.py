"""What comes next is what could be fastest: by its form's prediction and by what was seen of it."""

from collections.abc import Callable

from kernelwright.agents.shared.candidate_priority import (
    Prospect,
    Seen,
    Suspect,
    doubted,
    in_turn,
    seen,
)
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Verdict

MakeStanding = Callable[..., Standing]

CLOSE = (
    Prospect(form="turned", expected_ms=4.0, hopeful_ms=4.0),
    Prospect(form="turned", expected_ms=4.1, hopeful_ms=4.0),
    Prospect(form="written", expected_ms=5.0, hopeful_ms=2.6),
)
FAR = (*CLOSE[:2], Prospect(form="written", expected_ms=50.0, hopeful_ms=26.0))


def after(first: Seen, of: tuple[Prospect, ...]) -> list[str]:
    """Forms of the others, in turn, when the first one was seen."""
    return [of[1:][at].form for at in in_turn(of[1:], [first])]


def test_the_first_is_the_one_expected_fastest_and_the_second_the_most_hopeful() -> None:
    assert in_turn(CLOSE) == [0, 2, 1]
    assert in_turn(FAR) == [0, 1, 2]
    assert in_turn(()) == []


def test_a_third_of_one_form_gives_way_to_a_first_of_another() -> None:
    three = (*FAR[:2], FAR[1].model_copy(update={"expected_ms": 4.2}), FAR[2])
    assert [three[at].form for at in in_turn(three)] == ["turned", "turned", "written", "turned"]
    two = [Seen(form="turned", expected_ms=4.0, median_ms=ms) for ms in (4.0, 3.9)]
    assert in_turn(three[2:], two) == [1, 0]


def test_a_form_that_ran_slower_than_expected_gives_way_to_another() -> None:
    slow = Seen(form="turned", expected_ms=4.0, median_ms=30.0)
    assert after(slow, FAR) == ["written", "turned"]


def test_a_form_that_ran_faster_than_expected_says_nothing_against_another() -> None:
    """The roofline is off in the same direction for both, as long as nobody tried the other."""
    fast = Seen(form="turned", expected_ms=4.0, median_ms=2.0)
    assert after(fast, CLOSE) == ["written", "turned"]


def test_a_refused_result_puts_its_form_behind_every_other() -> None:
    refused = Seen(form="turned", expected_ms=4.0, refused=True)
    assert after(refused, FAR) == ["written", "turned"]
    both = [refused, Seen(form="written", expected_ms=50.0, median_ms=50.0)]
    again = (*FAR[1:], FAR[1])
    assert [again[at].form for at in in_turn(again, both)] == ["written", "turned", "turned"]


def test_a_form_of_which_something_is_right_is_not_in_doubt() -> None:
    refused = Seen(form="turned", expected_ms=4.0, refused=True)
    right = Seen(form="turned", expected_ms=4.1, median_ms=4.0)
    assert doubted([refused]) == {Suspect(form="turned")}
    assert doubted([refused, right]) == frozenset()
    assert doubted([refused.model_copy(update={"form": ""})]) == frozenset()


def test_factors_that_were_rounded_and_refused_leave_the_forms_exact_products_first() -> None:
    refused = Seen(form="tiled", rounded=True, expected_ms=1.0, refused=True)
    waiting = [
        Prospect(form="tiled", rounded=True, expected_ms=1.1, hopeful_ms=0.9),
        Prospect(form="written", expected_ms=5.0, hopeful_ms=4.0),
        Prospect(form="tiled", expected_ms=3.0, hopeful_ms=3.0),
    ]
    assert in_turn(waiting, [refused]) == [2, 1, 0]
    exact = Seen(form="tiled", expected_ms=3.0, median_ms=3.0)
    assert doubted([refused, exact]) == {Suspect(form="tiled", rounded=True)}
    assert doubted([refused.model_copy(update={"form": ""})]) == {Suspect(form="", rounded=True)}


def test_a_kernel_that_did_not_run_lets_another_form_come_first() -> None:
    assert after(Seen(form="turned", expected_ms=4.0), FAR) == ["written", "turned"]


def test_candidates_without_a_form_keep_the_order_of_their_times() -> None:
    plain = [Prospect(form="", expected_ms=ms, hopeful_ms=ms) for ms in (1.0, 2.0, 3.0)]
    for found in ([], [Seen(form="", expected_ms=1.0, refused=True)]):
        assert in_turn(plain, found) == [0, 1, 2]


def test_a_lower_precision_that_nobody_allowed_is_a_refusal_and_a_broken_build_is_none(
    standing: MakeStanding,
) -> None:
    right = standing(("form=turned",), 2.0)
    expected = {right.candidate.idea: 1.0}
    assert seen(right, expected) == Seen(form="turned", expected_ms=1.0, median_ms=2.0)
    found = right.evaluation.verification.model_copy(update={"apart": "computes in tf32"})
    evaluation = right.evaluation.model_copy(update={"verification": found})
    coarse = seen(right.model_copy(update={"evaluation": evaluation}), expected)
    assert coarse.refused
    assert coarse.median_ms is None
    broken = standing(("form=turned",), 2.0, verdict=Verdict.COMPILE_ERROR)
    assert not seen(broken, expected).refused


def test_a_repair_is_not_late_as_nothing_was_expected_of_it(standing: MakeStanding) -> None:
    right = standing(("form=written",), 5.0)
    repaired = right.model_copy(update={"author": "repair"})
    of = {right.candidate.idea: 1.0}
    waiting = [Prospect(form=name, expected_ms=6.0, hopeful_ms=6.0) for name in ("written", "o")]
    others = [seen(standing(("form=o",), 6.0), {})] * 2
    assert in_turn(waiting, [seen(repaired, of), *others]) == [0, 1]
    assert in_turn(waiting, [seen(right, of), *others]) == [1, 0]
