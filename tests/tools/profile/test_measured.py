"""Kernel records as torch's profiler exported them on an H200, and times made of them."""

import json
from pathlib import Path

import pytest

from kernelwright.tools.profile.measured import Span, device_spans, kernel_times, measured_evidence
from kernelwright.tools.types import Missing, Profile, Rank

TRACE = (Path(__file__).parent / "recorded" / "kineto_trace.json").read_text()
OWN = ("transposed_copy", "row_sums")


def test_a_trace_holds_what_ran_on_the_device_and_nothing_of_the_host():
    spans = device_spans(TRACE)
    assert [span.kernel for span in spans] == [*OWN, "cunn_SoftMaxForwardReg"]
    assert spans[1].time_ms == pytest.approx(1.431026)
    assert (spans[0].grid_blocks, spans[0].block_threads) == (128 * 128, 1024)
    assert (spans[0].registers, spans[0].shared_bytes) == (16, 4096)


def test_copies_and_fills_count_as_work():
    event = {"cat": "gpu_memset", "name": "Memset (Device)", "ts": 1, "dur": 5.0, "args": {}}
    (span,) = device_spans(json.dumps({"traceEvents": [event]}))
    assert span == Span(kernel="memset", time_ms=0.005)


@pytest.mark.parametrize("text", ["[]", "{}", '{"traceEvents": 3}', "no json"])
def test_what_is_no_trace_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  # json's own, or ours
        device_spans(text)


def test_times_are_sums_of_a_call_and_medians_over_calls():
    calls = [[Span(kernel="a", time_ms=ms), Span(kernel="a", time_ms=1.0)] for ms in (1, 2, 9)]
    calls[0].append(Span(kernel="b", time_ms=7.0))
    main, other = kernel_times(calls, ("a",), "wall")
    assert (main.kernel, main.time_ms, main.launches, main.own) == ("a", 3.0, 2, True)
    assert (other.kernel, other.time_ms, other.launches) == ("b", 0.0, 0)
    assert main.share == 1.0


def test_shares_are_of_the_whole_call_where_that_is_known():
    (time,) = kernel_times([[Span(kernel="a", time_ms=1.0)]], (), "wall", whole_ms=4.0)
    assert time.share == 0.25


def test_times_are_evidence_under_the_kernels_names():
    times = kernel_times([device_spans(TRACE)], OWN, "cupti")
    found = {item.name: item for item in measured_evidence(Profile(candidate="c", times=times))}
    assert found["row_sums.time"].source == "CUPTI activity"
    assert found["row_sums.time_share"].value == pytest.approx(0.802, abs=0.001)
    assert found["cunn_SoftMaxForwardReg.block_threads"].value == 1024


def test_a_missing_step_is_a_reading_with_its_remedy():
    missing = Missing(step="counters", why="there is no ncu", remedy="install it")
    (reading,) = measured_evidence(Profile(candidate="c", missing=(missing,)))
    assert (reading.name, reading.rank, reading.value) == ("counters", Rank.UNAVAILABLE, None)
    assert reading.source == "there is no ncu; install it"
