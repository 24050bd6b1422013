"""What may be claimed of a candidate: the one rule, on made-up figures."""

import pytest

from kernelwright.tools.types import (
    Clock,
    Comparison,
    Conditions,
    Evaluation,
    ModeTiming,
    Verdict,
    Verification,
)
from kernelwright.tools.types.measurement import Paired
from kernelwright.tools.types.verdict import SpeedClaim


def interval(low: float, high: float) -> dict[str, float]:
    """A comparison's figures for a candidate of 1 ms."""
    middle = (low * high) ** 0.5
    return {
        "candidate_ms": 1.0, "baseline_ms": middle, "ratio": middle,
        "ci95_low": low, "ci95_high": high, "pairs": 20,
    }  # fmt: skip


def beside(
    baseline: str,
    low: float,
    high: float,
    *,
    clock: Clock = "device",
    others_share: float | None = None,
    latency: tuple[float, float] | None = None,
) -> Comparison:
    conditions = Conditions(device="gpu", l2_flushed=True, input_sets=3, others_share=others_share)
    return Comparison.model_validate(
        interval(low, high)
        | {
            "baseline": baseline,
            "candidate_samples_ms": (1.0,),
            "baseline_samples_ms": (1.0,),
            "conditions": conditions,
            "clock": clock,
            "latency": Paired.model_validate(interval(*latency)) if latency else None,
        }
    )


def claim(*comparisons: Comparison, modes: tuple[ModeTiming, ...] = ()) -> SpeedClaim:
    found = Evaluation(
        candidate="c1",
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        comparisons=comparisons,
        modes=modes,
    ).claim
    assert found is not None
    return found


def test_faster_needs_every_baseline_and_a_narrow_interval() -> None:
    assert claim(beside("eager", 1.5, 1.52), beside("compile", 1.1, 1.12)).outcome == "faster"
    found = claim(beside("eager", 1.5, 1.52), beside("compile", 0.99, 1.02))
    assert found.outcome == "not distinguishable"
    assert "compile" in found.words
    assert claim(beside("eager", 0.9, 0.95)).outcome == "slower"


def test_the_headline_that_was_seen_is_not_settled() -> None:
    """1.94x, with an interval of 1.06 to 2.93 from 10 pairs."""
    found = claim(beside("eager", 1.06, 2.93, clock="wall"))
    assert found.outcome == "not settled"
    assert "eager" in found.words


def test_a_baseline_that_may_yet_be_harder_settles_nothing() -> None:
    found = claim(beside("eager", 1.5, 1.52), beside("graph", 0.8, 2.4))
    assert found.outcome == "not settled"
    assert "graph" in found.words


def test_a_busy_machine_settles_nothing_on_a_wall_clock_alone() -> None:
    assert claim(beside("eager", 1.5, 1.52, clock="wall", others_share=0.4)).outcome == (
        "not settled"
    )
    # The host is ahead of the device, so that its company does not count.
    assert claim(beside("eager", 1.5, 1.52, others_share=0.4)).outcome == "faster"


@pytest.mark.parametrize(
    ("latency", "outcome"),
    [((1.2, 1.3), "faster"), ((0.97, 1.02), "faster"), ((0.9, 0.95), "slower alone")],
)
def test_single_calls_must_not_be_certainly_behind(
    latency: tuple[float, float], outcome: str
) -> None:
    found = claim(beside("eager", 1.5, 1.52), beside("compile", 1.1, 1.12, latency=latency))
    assert found.outcome == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.2, 1.3, "faster"),
        (0.99, 1.02, "faster"),  # equal with warm caches, and sure of it
        (0.8, 1.4, "not settled"),
        (0.8, 0.85, "not settled"),
    ],
)
def test_other_loads_that_disagree_settle_nothing(low: float, high: float, outcome: str) -> None:
    mode = ModeTiming(mode="offline", comparison=beside("eager", low, high))
    assert claim(beside("eager", 1.3, 1.32), modes=(mode,)).outcome == outcome


def test_a_candidates_time_is_that_of_its_headline() -> None:
    hard = beside("compile", 1.1, 1.12).model_copy(update={"candidate_ms": 0.9})
    found = Evaluation(
        candidate="c1",
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        comparisons=(beside("eager", 1.5, 1.52), hard),
        launch_ms=0.1,
    )
    assert found.median_ms == 0.9
    assert found.host_share == pytest.approx(0.1)
    assert Evaluation(candidate="c1", verification=found.verification).claim is None
