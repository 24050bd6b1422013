"""A ratio that may not be called a gain is shown nowhere without the words that say so."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from kernelwright.graphs.conversation.about import claim_words
from kernelwright.graphs.conversation.answers import best_words
from kernelwright.graphs.run_view import folded
from kernelwright.graphs.run_view.events import (
    BaselinesMeasured,
    CandidateJudged,
    CandidateWritten,
    Event,
)
from kernelwright.graphs.run_view.figures import compared_words, summed_up
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.search.summary import best_summary
from kernelwright.tools.archive import RunRecord, Standing
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Comparison,
    Conditions,
    Evaluation,
    Measurement,
    Verdict,
    Verification,
)
from kernelwright.tools.types.verdict import SpeedOutcome
from kernelwright.ui.chat.messages.roles import candidate
from kernelwright.ui.terminal.cards import leaderboard

CONDITIONS = Conditions(device="gpu", l2_flushed=True, input_sets=3)
COMPILE_MS = 1.4
MADE = new_candidate("cpp", 'extern "C" void f(float* y) {}\n', "def forward(x):\n    return x\n")


def paired(ratio: float, width: float) -> dict[str, object]:
    return {
        "candidate_ms": 1.0, "baseline_ms": ratio, "ratio": ratio,
        "ci95_low": ratio - width / 2, "ci95_high": ratio + width / 2, "pairs": 20,
    }  # fmt: skip


def judged(ratio: float, width: float, single: float) -> Evaluation:
    """A finalist beside torch.compile, by device time and by single calls."""
    beside = Comparison.model_validate(
        paired(ratio, width)
        | {
            "baseline": "compile",
            "candidate_samples_ms": (1.0,),
            "baseline_samples_ms": (ratio,),
            "conditions": CONDITIONS,
            "clock": "device",
            "latency": paired(single, 0.02),
        }
    )
    return Evaluation(
        candidate=MADE.id,
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        comparisons=(beside,),
    )


KNOWN = Baselines(
    items=(
        Baseline(
            name="compile",
            measurement=Measurement(
                median_ms=COMPILE_MS,
                p10_ms=COMPILE_MS,
                p90_ms=COMPILE_MS,
                samples_ms=(COMPILE_MS,),
                conditions=CONDITIONS,
            ),
        ),
    )
)


FIVE = [
    ((1.40, 0.02, 1.2), "faster"),
    ((0.80, 0.02, 1.2), "slower"),
    ((1.00, 0.04, 1.2), "not distinguishable"),
    ((1.40, 0.40, 1.2), "not settled"),
    ((1.40, 0.02, 0.9), "slower alone"),
]
DOUBTS = ("not distinguishable", "not settled", "slower alone")


def standing(evaluation: Evaluation) -> Standing:
    return Standing(
        number=1, candidate=MADE, round=1, author="coder", effort="certify", evaluation=evaluation
    )


def told(evaluation: Evaluation) -> Story:
    """A run of one candidate, as it is shown."""
    events: tuple[Event, ...] = (
        BaselinesMeasured(baselines=KNOWN),
        CandidateWritten(candidate=MADE),
        CandidateJudged(evaluation=evaluation, effort="certify"),
    )
    return Story(RunRecord.model_construct(id="r"), Path(), events, folded(events), (), (), {})


@pytest.mark.parametrize(("figures", "outcome"), FIVE)
def test_every_outcome_but_faster_and_slower_stands_beside_its_ratio(
    figures: tuple[float, float, float], outcome: SpeedOutcome
) -> None:
    evaluation = judged(*figures)
    assert evaluation.claim is not None
    assert evaluation.claim.outcome == outcome
    story = told(evaluation)
    (written,) = story.view.candidates.values()
    console = Console(file=io.StringIO(), width=200)
    console.print(leaderboard(story))
    expected = [outcome] if outcome in DOUBTS else []
    # A comparison alone does not know what single calls keep from being claimed.
    alone = [] if outcome == "slower alone" else expected
    places = {
        "list of runs": (summed_up(best_summary(standing(evaluation), KNOWN, 0.1)), expected),
        "leaderboard": (console.file.getvalue(), expected),  # type: ignore[attr-defined]
        "answer": (best_words(story.view), expected),
        "comparison": (compared_words(evaluation.comparisons[0]), alone),
        "chat, candidate": (candidate("k", "p", written, story.view).words, alone),
    }
    for place, (words, doubts) in places.items():
        assert f"{figures[0]:.2f}x" in words, place
        assert [doubt for doubt in DOUBTS if doubt in words] == doubts, place


@pytest.mark.parametrize(("figures", "outcome"), FIVE)
def test_why_it_is_not_faster_is_the_claim_of_every_headline(
    figures: tuple[float, float, float], outcome: SpeedOutcome
) -> None:
    evaluation = judged(*figures)
    words = claim_words(standing(evaluation))
    assert evaluation.claim is not None
    assert "against compile, its hardest rival" in words.lower()
    assert words.startswith("It is faster") == (outcome == "faster")
    assert (evaluation.claim.words in words) == (outcome != "faster")


def test_what_was_only_screened_says_nothing_pair_by_pair() -> None:
    screened = judged(1.4, 0.02, 1.2).model_copy(update={"comparisons": ()})
    assert "only timed briefly" in claim_words(standing(screened))
