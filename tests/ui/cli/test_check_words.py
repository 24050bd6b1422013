"""What `check` prints and writes: nothing that takes weight from a result is left out."""

import json

from kernelwright.tools.types import (
    Baselines,
    Comparison,
    Conditions,
    Evaluation,
    ModeTiming,
    Verdict,
    Verification,
)
from kernelwright.ui.cli.check import result_of, tell

COMPARED = Comparison(
    baseline="eager", candidate_ms=1.0, baseline_ms=1.02, ratio=1.02, ci95_low=1.01,
    ci95_high=1.03, pairs=20, candidate_samples_ms=(1.0,), baseline_samples_ms=(1.02,),
    conditions=Conditions(device="cpu", l2_flushed=True, input_sets=3), noise=0.05,
)  # fmt: skip
FOUND = Verification(
    verdict=Verdict.CORRECT, reason="within the bound", error_ratio=1.1, allclose_1e4=False,
    allclose_1e2=True, precision="tf32", effective_bits=10.9, apart="computes in tf32",
    shapes="this shape only: wrong on one row", not_verified=("denormal inputs",),
)  # fmt: skip
EVALUATION = Evaluation(
    candidate="c1", verification=FOUND, comparisons=(COMPARED,), launch_ms=0.004,
    modes=(ModeTiming(mode="server", comparison=COMPARED),),
)  # fmt: skip


def test_machines_read_all_of_it():
    told = json.loads(result_of(EVALUATION, Baselines(items=())).model_dump_json())
    assert (told["outcome"], told["noise"]) == ("not distinguishable", 0.05)
    assert (told["apart"], told["effective_bits"]) == ("computes in tf32", 10.9)
    assert told["conditions"]["input_sets"] == 3
    assert told["shapes"] == "this shape only: wrong on one row"
    assert told["modes"][0]["mode"] == "server"
    assert "candidate_samples_ms" not in told["modes"][0]
    assert (told["launch_ms"], told["allclose_1e4"]) == (0.004, False)


def test_people_read_it_in_plain_words(capsys):
    tell(result_of(EVALUATION, Baselines(items=())), EVALUATION)
    said = capsys.readouterr().out
    for words in ("NO at 1e-04", "this shape only", "ranked apart", "denormal inputs", "server"):
        assert words in said


def test_a_reader_is_told_what_the_comparisons_come_to(capsys):
    tell(result_of(EVALUATION, Baselines(items=())), EVALUATION)
    assert (
        "speed: it is not shown to be faster than every PyTorch baseline: no faster than eager"
        in (capsys.readouterr().out)
    )
