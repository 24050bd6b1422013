from collections.abc import Sequence

from kernelwright.agents.strategist.strategist import moves
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import (
    Candidate,
    Conditions,
    Evaluation,
    Idea,
    Measurement,
    Verdict,
    Verification,
)

CONDITIONS = Conditions(device="toy", l2_flushed=False, input_sets=1)


def born(
    id: str, ms: float | None, idea: str, memory: str, parents: Sequence[str] = ()
) -> Standing:
    verdict = Verdict.CORRECT if ms else Verdict.WRONG_RESULT
    measured = ms and Measurement(
        median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=CONDITIONS
    )
    candidate = Candidate(
        id=id, language="cpp", kernel=id, plan="p", idea=idea, parents=tuple(parents),
        strategies=(f"memory={memory}", "compute=plain", "parallel=rows"),
    )  # fmt: skip
    evaluation = Evaluation(
        candidate=id,
        verification=Verification(verdict=verdict, reason=""),
        screen=measured or None,
    )
    return Standing(
        number=1, candidate=candidate, round=1, author="coder", effort="screen",
        evaluation=evaluation,
    )  # fmt: skip


def titled(id: str, title: str) -> Idea:
    return Idea(id=id, title=title, mechanism="", reason="", category="", metric="")


FOUND = (
    born("a", 2.0, "i1", "streams"),
    born("b", 1.0, "i2", "on chip", ["a"]),
    born("c", 3.0, "i3", "cache", ["b"]),
    born("d", None, "i4", "tensor", ["b"]),
    born("e", 1.6, "i5", "on chip", ["a"]),
    born("f", 1.01, "i6", "on chip", ["b"]),
)
IDEAS = (titled("i2", "Rows on chip"), titled("i3", "Through the cache"))


def test_what_paid_comes_first_then_what_cost_then_what_never_ran() -> None:
    assert moves(FOUND, IDEAS) == (
        "2.00 times as fast: memory 'streams' -> 'on chip' "
        "(i2 'Rows on chip', from a; 1 of 1 correct, best of 2 ideas)",
        "3.00 times as slow: memory 'on chip' -> 'cache' "
        "(i3 'Through the cache', from b; 1 of 1 correct)",
        "nothing correct: memory 'on chip' -> 'tensor' (i4, from b; 0 of 1 correct)",
    )


def test_a_move_within_one_behaviour_says_where_it_stayed() -> None:
    found = (*FOUND[:2], born("g", 0.5, "i7", "on chip", ["b"]))
    (line,) = (line for line in moves(found, ()) if "i7" in line)
    assert line.startswith(
        "2.00 times as fast: within memory 'on chip', compute 'plain', parallel 'rows'"
    )


def test_nothing_tried_is_no_move() -> None:
    assert moves(FOUND[:1], ()) == ()
