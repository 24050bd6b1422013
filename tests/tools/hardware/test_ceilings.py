"""Ceilings: what confirms them, what renews them, and how a wrong one heals."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from kernelwright.tools.hardware import (
    cached_ceilings,
    detect,
    floor_ms,
    floor_words,
    keep_ceilings,
    stored_ceilings,
)
from kernelwright.tools.hardware.ceilings import Ceilings, merged

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def taken(gb_s: float, after_s: float = 0.0, others: float = 0.0) -> Ceilings:
    """A measurement so long after noon, with so much company."""
    return Ceilings(
        copy_gb_s=gb_s,
        read_gb_s=0.9 * gb_s,
        fp32_tflops=0.1,
        torch_version="2",
        at=NOON + timedelta(seconds=after_s),
        others_share=others,
    )


@pytest.mark.parametrize("others", [0.0, 0.12])  # what a virtual machine at rest shows
def test_two_that_agree_undisturbed_and_apart_confirm_each_other(others: float) -> None:
    found = merged(taken(31.0, others=others), taken(30.5, after_s=5, others=others))
    assert found.confirmed
    assert found.times == 2
    assert found.bandwidth_gb_s == 31.0
    assert found.spread == pytest.approx(0.016, abs=1e-3)
    assert "measured 2 times" in found.words
    assert "alike within 1.6%" in found.words


@pytest.mark.parametrize(
    "later",
    [
        taken(31.0, after_s=0.5),  # in the same moment
        taken(31.0, after_s=60, others=0.4),  # a busy machine
        taken(17.0, after_s=60),  # they disagree
    ],
)
def test_nothing_else_confirms_a_ceiling(later: Ceilings) -> None:
    found = merged(taken(31.0), later)
    assert not found.confirmed
    assert "not confirmed yet" in found.words
    assert found.bandwidth_gb_s == 31.0


def test_a_raised_ceiling_replaces_a_confirmed_one_and_has_to_be_confirmed_itself() -> None:
    low = merged(taken(17.0), taken(17.1, after_s=5))
    assert low.confirmed
    raised = merged(low, taken(31.0, after_s=100))
    assert raised.bandwidth_gb_s == 31.0
    assert not raised.confirmed
    assert merged(raised, taken(30.8, after_s=110)).confirmed


def test_a_lower_measurement_takes_nothing_from_a_confirmed_one() -> None:
    good = merged(taken(31.0), taken(30.8, after_s=5))
    assert merged(good, taken(17.0, after_s=100, others=0.5)) == good


def test_what_an_earlier_version_stored_too_low_heals(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    cpu = detect("cpu")
    keep_ceilings(cpu, taken(17.0))
    (file,) = (tmp_path / "ceilings").iterdir()
    old = {"copy_gb_s": 17.0, "read_gb_s": 16.0, "fp32_tflops": 0.1, "torch_version": "2"}
    file.write_text(json.dumps(old))
    before = cached_ceilings(cpu)
    assert before is not None
    assert not before.confirmed
    assert "not confirmed yet" in floor_words(before)
    keep_ceilings(cpu, taken(31.0))
    after = keep_ceilings(cpu, taken(31.2, after_s=3))
    assert after == cached_ceilings(cpu)
    assert after.confirmed
    assert floor_ms(10**8, 0, after) < 0.6 * floor_ms(10**8, 0, before)
    assert stored_ceilings(cpu).times == 2


def test_a_floor_says_where_it_comes_from() -> None:
    assert "data sheet" in floor_words(detect("cpu"))
