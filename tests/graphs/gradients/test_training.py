"""What a search for gradients may spend, and what is said of a training step."""

import pytest

from kernelwright.graphs.gradients.search import none_correct, shares, step_share
from kernelwright.profiles.load import search_profile
from kernelwright.tools.types import Verdict, Verification
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.training import TrainingSummary


def test_both_ways_together_spend_what_one_would():
    whole = search_profile("standard").model_copy(update={"tokens": 1000, "usd": 1.0})
    forward, backward = shares(whole)
    assert forward.seconds + backward.seconds == pytest.approx(whole.seconds)
    assert forward.tokens is not None
    assert backward.tokens is not None
    assert forward.tokens + backward.tokens <= 1000
    assert backward.seconds > forward.seconds
    assert (forward.rounds, backward.rounds) == (whole.rounds, whole.rounds)


def test_a_step_pays_only_as_a_whole():
    found = TrainingSummary(
        reference_forward_ms=1.0, reference_step_ms=3.0, forward_ms=0.5, backward_ms=1.0
    )
    assert found.speedup == pytest.approx(2.0)
    assert found.pays
    assert "2.00x" in found.words
    slow = found.model_copy(update={"backward_ms": 2.9})
    assert not slow.pays
    assert "0.88x" in slow.words


def test_where_there_is_no_backward_the_reason_is_said():
    found = TrainingSummary(why="the module updates buffers")
    assert found.step_ms is None
    assert not found.pays
    assert found.words == "no backward of our own: the module updates buffers"


def test_where_no_candidate_serves_the_judge_says_why():
    """A GPT's backward came to nothing on an H200, and nobody could tell whether it was slow."""
    assert none_correct((), "backward", 36.2) == "no candidate for the backward was judged in 36 s"
    wrong = Verification(verdict=Verdict.WRONG_RESULT, reason="result 3 is off\nby 7 times")
    assert none_correct((wrong,), "backward", 9.0) == (
        "the only candidate for the backward is no use, wrong result: result 3 is off by 7 times"
    )
    apart = Verification(verdict=Verdict.CORRECT, reason="", apart="it computes in tf32")
    assert none_correct((wrong, apart), "backward", 9.0) == (
        "1 of 2 candidates for the backward were right, but it computes in tf32"
    )
    assert none_correct((wrong, wrong), "backward", 9.0) == (
        "none of 2 candidates for the backward is correct, the first wrong result: result 3 is off "
        "by 7 times"
    )


def test_a_step_has_what_its_forward_left_of_the_seconds_that_a_person_named():
    named = search_profile("standard").limited(seconds=60.0)
    _, share = shares(named)
    ended = Summary.model_construct(seconds=25.0)
    assert step_share(named, share, ended).seconds == pytest.approx(35.0)
    assert step_share(named, share, Summary.model_construct(seconds=75.0)).seconds == 1.0
    usual = search_profile("standard")
    _, share = shares(usual)
    assert step_share(usual, share, ended) == share
