"""Nsight Compute's output as it was recorded on an H200: three launches, one of them torch's."""

from pathlib import Path

import pytest

from kernelwright.tools.profile.measured import measured_evidence, reading_name
from kernelwright.tools.profile.ncu_report import (
    METRICS,
    failure,
    number,
    plain_name,
    read_counters,
    read_rules,
    selection,
)
from kernelwright.tools.types import KernelCounters, Profile, Rank

RECORDED = Path(__file__).parent / "recorded"
OWN = ("transposed_copy", "row_sums")


@pytest.fixture
def counters():
    return read_counters((RECORDED / "ncu_raw.csv").read_text(), OWN)


@pytest.fixture
def rules():
    return read_rules((RECORDED / "ncu_details.csv").read_text())


def test_every_launch_is_read_in_order_and_the_longest_is_marked(counters):
    assert [item.kernel for item in counters] == [*OWN, "cunn_SoftMaxForwardReg"]
    assert [item.own for item in counters] == [True, True, False]
    assert [item.dominant for item in counters] == [False, True, False]
    assert counters[0].grid_blocks == 128 * 128
    assert counters[0].block_threads == 1024


def test_units_are_those_of_the_names(counters):
    copy, sums, softmax = counters
    assert sums.counted_time_ms == pytest.approx(1.409, abs=0.001)
    assert copy.dram_read_bytes == pytest.approx(4096 * 4096 * 4, rel=0.01)
    assert 0 < softmax.achieved_occupancy < 1
    assert sums.local_read_bytes == pytest.approx(4096 * 4096 * 32, rel=0.01)


def test_scattered_accesses_and_bank_conflicts_stand_out(counters):
    copy, sums, softmax = counters
    assert (copy.load_bytes_per_sector, copy.store_bytes_per_sector) == (32, 4)
    assert (sums.load_sectors_per_request, softmax.load_sectors_per_request) == (32, 4)
    assert copy.shared_bank_conflicts / copy.shared_wavefronts > 0.9
    assert softmax.shared_bank_conflicts / softmax.shared_wavefronts < 0.1


def test_stalls_are_shares_of_the_time_between_two_issues(counters):
    for item in counters:
        # Numerator and denominator come from different replays.
        assert 0.9 < sum(share for _, share in item.stalls) < 1.02
        assert "selected" not in dict(item.stalls)
    assert counters[1].stalls[0][0] == "long_scoreboard"
    assert counters[1].stalls[0][1] > 0.9
    assert "dispatch" in dict(counters[2].stalls)


def test_every_metric_of_the_short_list_is_asked_for_fills_a_field_and_was_there(counters):
    asked = selection()[-1].split(",")
    for metric in METRICS:
        assert metric.name in asked
        assert getattr(counters[0], metric.field) is not None, metric.name


def test_a_chip_without_a_metric_leaves_its_field_empty():
    text = '"ID","Kernel Name","Grid Size","dram__bytes_read.sum"\n"","","","byte"\n'
    text += '"0","k","(2, 3, 1)","n/a"\n'
    (found,) = read_counters(text, ())
    assert found == KernelCounters(kernel="k", launch=0, own=False, dominant=True, grid_blocks=6)


@pytest.mark.parametrize("text", ["", "==ERROR== nothing", "garbage, of, all sorts\n\x00\xff"])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(ValueError, match="no table"):
        read_counters(text, OWN)
    assert read_rules(text) == ()


def test_a_table_without_launches_is_empty():
    assert read_counters('"ID","Kernel Name"\n"",""\n', ()) == ()


@pytest.mark.parametrize(
    ("printed", "value"),
    [("1,405,301.33", 1405301.33), ("no data", None), ("", None), (None, None), ("nan", None)],
)
def test_numbers_are_read_as_they_are_printed(printed, value):
    assert number(printed) == value


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("softmax_rows", "softmax_rows"),
        ("void a::<unnamed>::Reg<float, b<(int)4>, long>(T3 *, const T1 *)", "Reg"),
        ("void (anonymous namespace)::warp_forward<float, 6>(float*, bool const*)", "warp_forward"),
        ("void at::vectorized_elementwise_kernel<4, at::CUDAFunctor_add<float>>(int)",
         "vectorized_elementwise_kernel"),
        ("sm90_xmma_gemm_f32f32_tf32_128x128x32", "sm90_xmma_gemm_f32f32_tf32_128x128x32"),
        ("void", "void"),
        ("", "kernel"),
    ],
)  # fmt: skip
def test_kernels_go_by_their_plain_names(printed, name):
    assert plain_name(printed) == name


def test_rules_keep_what_they_advise_and_its_worth(rules):
    told = {(rule.kernel, rule.rule): rule for rule in rules}
    small = told["row_sums", "LaunchConfiguration"]
    assert small.speedup_fraction == pytest.approx(0.7576)
    assert not small.local
    assert "less than the GPU's 132 multiprocessors" in small.words
    assert told["transposed_copy", "IssueSlotUtilization"].local
    assert all("https:" not in rule.words for rule in rules)
    assert not any("smsp__pcsamp" in rule.words for rule in rules)


def test_readings_are_evidence_with_the_metric_as_source(counters, rules):
    profile = Profile(candidate="c", counters=counters, rules=rules, launches=3)
    found = {item.name: item for item in measured_evidence(profile)}
    hits = found["transposed_copy.l2_hit_rate"]
    assert hits.rank is Rank.MEASURED
    assert hits.source == "Nsight Compute lts__t_sector_hit_rate.pct"
    assert hits.value == pytest.approx(counters[0].l2_hit_rate)
    assert found["row_sums.stall_long_scoreboard"].rank is Rank.DERIVED
    assert found["row_sums.rule_LaunchConfiguration"].value == pytest.approx(0.7576)
    assert found["dominant_share"].source.startswith("row_sums")
    moved = sum(item.dram_read_bytes + item.dram_written_bytes for item in counters)
    assert found["dram_traffic"].value == pytest.approx(moved)


def test_the_traffic_of_a_call_is_not_told_from_a_part_of_its_launches(counters):
    profile = Profile(candidate="c", counters=counters, launches=4)
    assert "dram_traffic" not in {item.name for item in measured_evidence(profile)}


def test_of_many_launches_of_one_kernel_the_longest_is_read(counters):
    short = counters[0].model_copy(update={"launch": 3, "counted_time_ms": 0.1, "waves_per_sm": 9})
    found = measured_evidence(Profile(candidate="c", counters=(short, counters[0])))
    waves = [item.value for item in found if item.name == "transposed_copy.waves_per_sm"]
    assert waves == [counters[0].waves_per_sm]


def test_names_of_readings_carry_no_unit():
    assert reading_name("counted_time_ms") == "counted_time"
    assert reading_name("dram_read_bytes") == "dram_read"
    assert reading_name("load_bytes_per_sector") == "load_bytes_per_sector"


@pytest.mark.parametrize(
    ("output", "why", "remedy"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
            "Performance Counters on the target device 0.",
            "may not read",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "driver", "install"),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "driver", "install"),
        ("==ERROR== An error occurred: out of memory during replay", "memory ran out", "smaller"),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no "
            "other tool (like DCGM) is concurrently collecting profiling data.",
            "another profiler",
            "dcgmi",
        ),
        ("1\n==WARNING== No kernels were profiled.", "launched no kernel", "none"),
        ("==ERROR== The application returned an error code (3).", "error code (3)", "by hand"),
        ("\x00\x01 what is this", "what is this", "by hand"),
        ("", "said nothing", "by hand"),
    ],
)
def test_why_there_are_no_counters_is_said_with_a_remedy(output, why, remedy):
    missing = failure(output)
    assert missing.step == "counters"
    assert why in missing.why
    assert remedy in missing.remedy
