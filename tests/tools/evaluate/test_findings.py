"""What the judge found, in rows: nothing that takes weight from a speed-up is left out."""

import pytest

from kernelwright.tools.evaluate.findings import NOT_TRIED, findings
from kernelwright.tools.types import (
    Clocks,
    Comparison,
    Conditions,
    Evaluation,
    ModeTiming,
    Verdict,
    Verification,
)


def comparison(noise: float = 0.0) -> Comparison:
    return Comparison(
        baseline="eager", candidate_ms=1.0, baseline_ms=1.02, ratio=1.02, ci95_low=1.01,
        ci95_high=1.03, pairs=12, candidate_samples_ms=(1.0,), baseline_samples_ms=(1.02,),
        conditions=Conditions(device="a CPU", l2_flushed=True, input_sets=3), noise=noise,
    )  # fmt: skip


def rows(found: Verification, **timings: object) -> dict[str, str]:
    return dict(findings(Evaluation(candidate="c1", verification=found, **timings)))


def test_both_of_kernelbenchs_tolerances_stand_beside_the_error_ratio():
    found = Verification(
        verdict=Verdict.CORRECT, reason="", error_ratio=1.25, allclose_1e4=False, allclose_1e2=True
    )
    said = rows(found)
    assert said["error"] == "1.25 times PyTorch's own"
    assert said["allclose"].startswith("NO at 1e-04, yes at 1e-02")


@pytest.mark.parametrize("shapes", ["", "shape-generic, verified on one row (1 x 8)"])
def test_where_else_it_is_right_is_said_and_so_is_that_nobody_tried(shapes):
    found = Verification(verdict=Verdict.CORRECT, reason="", shapes=shapes)
    assert rows(found)["shapes"] == (shapes or NOT_TRIED)


def test_a_wrong_candidate_claims_nothing_of_shapes():
    assert "shapes" not in rows(Verification(verdict=Verdict.WRONG_RESULT, reason="2 for 1"))


def test_a_precision_that_nobody_allowed_is_named_with_its_digits():
    found = Verification(
        verdict=Verdict.CORRECT, reason="", precision="tf32", effective_bits=10.94,
        apart="computes in tf32, the task in fp32",
    )  # fmt: skip
    said = rows(found)
    assert said["precision"] == "tf32, 10.9 correct bits measured"
    assert "not allowed" in said["ranked apart"]


def test_other_loads_say_whether_they_can_be_told_from_equal():
    found = Verification(verdict=Verdict.CORRECT, reason="")
    modes = (
        ModeTiming(mode="offline", comparison=comparison()),
        ModeTiming(mode="server", comparison=comparison(noise=0.02)),
    )
    said = rows(found, modes=modes, launch_ms=0.0042, comparisons=(comparison(noise=0.02),))
    assert ", faster; 1 ms against 1.02 ms (back to back" in said["offline mode"]
    assert "not distinguishable" in said["server mode"]
    assert said["launch"].startswith("4.2 µs")
    assert "the host's share (0% of it)" in said["launch"]  # 4.2 µs beside 1 ms
    assert "2.00%" in said["noise"]


def test_clocks_and_walls_and_gaps_are_there():
    found = Verification(verdict=Verdict.CORRECT, reason="", not_verified=("a", "b"))
    clocks = Clocks(wall_ms=2.0, own_ms=1.9, work_ms=1.8, protocol_ms=0.1)
    every = findings(Evaluation(candidate="c1", verification=found, clocks=clocks))
    assert ("not verified", "a") in every
    assert ("not verified", "b") in every
    assert dict(every)["isolation"] == "not isolated"
    assert "summed work 1.8 ms" in dict(every)["clocks"]
    assert "timed by" not in dict(every)  # it was not


def test_how_foreign_calls_were_timed_is_said():
    clocks = Clocks(wall_ms=2.0, own_ms=1.9, work_ms=1.8, protocol_ms=0.1)
    beside = comparison()
    noted = beside.conditions.model_copy(update={"notes": ("our clock", "threads sleep")})
    beside = beside.model_copy(update={"conditions": noted})
    found = Verification(verdict=Verdict.CORRECT, reason="")
    assert (
        rows(found, clocks=clocks, comparisons=(beside,))["timed by"] == "our clock; threads sleep"
    )
