"""Every pattern shows where its readings say so, and is silent where they do not or are missing."""

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.profile import casts_doubt, evidence_for, symptoms, tensor_roof
from kernelwright.tools.types import Conditions, Evidence, Rank
from kernelwright.tools.types.measurement import Comparison

SLOW = {"bandwidth_fraction": 0.6, "rate_fraction": 0.01}


def evidence(**readings):
    return tuple(
        Evidence(name=name.replace("__", "."), rank=Rank.MEASURED, value=value, unit="", source="s")
        for name, value in readings.items()
    )


def found(kind="h200", **readings):
    return {item.name: item for item in symptoms(evidence(**readings), hardware_profile(kind))}


@pytest.mark.parametrize(
    ("name", "shown", "silent"),
    [
        ("spills", {"k__spills": 8}, {"k__spills": 0}),
        ("at the roof", {"bandwidth_fraction": 0.93}, {"bandwidth_fraction": 0.85}),
        (
            "extra traffic",
            {"dram_traffic": 2e9, "floor_bytes": 1e9},
            {"dram_traffic": 1.05e9, "floor_bytes": 1e9},
        ),
        ("uncoalesced", {"k__load_bytes_per_sector": 4}, {"k__load_bytes_per_sector": 32}),
        ("uncoalesced", {"k__store_bytes_per_sector": 8}, {"k__store_bytes_per_sector": 30}),
        ("bank conflicts", {"k__shared_conflict_share": 0.5}, {"k__shared_conflict_share": 0.02}),
        ("latency-bound", {"k__stall_long_scoreboard": 0.6}, {"k__stall_long_scoreboard": 0.2}),
        ("barrier stalls", {"k__stall_barrier": 0.5}, {"k__stall_barrier": 0.1}),
        (
            "launch bound",
            {"launch_share": 0.5, "launches_per_call": 9},
            {"launch_share": 0.05, "launches_per_call": 1},
        ),
        (
            "memory-bound",
            {"missed_bandwidth": 2500, "instructions_per_cycle": 0.4},
            {"missed_bandwidth": 2500, "instructions_per_cycle": 2.4},
        ),
        (
            "memory-bound",
            {"missed_bandwidth": 2500, "instructions_per_cycle": 0.4},
            {"missed_bandwidth": 90, "instructions_per_cycle": 0.4},
        ),
        ("TLB-bound", {"tlb_share": 0.2}, {"tlb_share": 0.02}),
        ("branch-bound", {"misprediction_share": 0.3}, {"misprediction_share": 0.01}),
        ("front-end bound", {"frontend_share": 0.4}, {"frontend_share": 0.1}),
        (
            "page faults",
            {"fault_share": 0.4, "page_faults": 9000},
            {"fault_share": 0.01, "page_faults": 90},
        ),
        ("preempted", {"preemptions": 3}, {"preemptions": 0}),
        ("cache resident", {"working_set_per_cache": 0.3}, {"working_set_per_cache": 3.0}),
        (
            "L2-resident",
            {"k__l2_hit_rate": 0.9, "k__dram_fraction": 0.1},
            {"k__l2_hit_rate": 0.9, "k__dram_fraction": 0.9},
        ),
        ("low occupancy", {"k__occupancy": 0.12}, {"k__occupancy": 0.5}),
        ("tail effect", {"k__waves": 1.1}, {"k__waves": 8.1}),
        ("tail effect", {"k__waves_per_sm": 2.05}, {"k__waves_per_sm": 2.9}),
        ("few blocks", {"k__waves": 0.2}, {"k__waves": 0.95}),
        (
            "imbalance",
            {"k__achieved_occupancy": 0.3, "k__theoretical_occupancy": 0.9},
            {"k__achieved_occupancy": 0.8, "k__theoretical_occupancy": 0.9},
        ),
        ("divergence", {"k__threads_per_instruction": 12}, {"k__threads_per_instruction": 31}),
        (
            "no tensor cores",
            {"rate_fraction": 0.8, "k__code_instructions": 90},
            {"rate_fraction": 0.8, "k__code_instructions": 90, "k__tensor_instructions": 4},
        ),
        (
            "no tensor cores",
            {"rate_fraction": 0.8, "k__code_instructions": 9},
            {"rate_fraction": 0.8},
        ),
        ("busy pipe", {"k__xu_fraction": 0.9}, {"k__xu_fraction": 0.3}),
        (
            "local arrays",
            {"k__local_accesses": 12, "k__spills": 0},
            {"k__local_accesses": 12, "k__spills": 96},
        ),
        ("narrow accesses", {"k__load_width": 4, **SLOW}, {"k__load_width": 16, **SLOW}),
        (
            "narrow accesses",
            {"k__store_width": 4, **SLOW},
            {"k__store_width": 4, "bandwidth_fraction": 0.95},
        ),
        (
            "far from both roofs",
            {"bandwidth_fraction": 0.1, "rate_fraction": 0.1},
            {"bandwidth_fraction": 0.6, "rate_fraction": 0.1},
        ),
        ("below the roof", SLOW, {"bandwidth_fraction": 0.95}),
        ("noisy", {"spread": 0.4}, {"spread": 0.02}),
    ],
)  # fmt: skip
def test_a_pattern_shows_only_where_its_readings_say_so(name, shown, silent):
    there = found(**shown)
    assert name in there
    assert there[name].evidence
    assert name not in found(**silent)
    assert name not in found()


def test_a_loop_that_was_not_vectorised_shows_on_a_cpu():
    assert "not vectorised" in found("cpu", packed_share=0.1, missed_loops=2)
    assert "not vectorised" not in found("cpu", packed_share=0.9, missed_loops=2)
    assert "not vectorised" not in found("cpu", packed_share=0.1, missed_loops=0)


def test_far_above_the_fp32_roof_is_not_at_that_roof():
    assert "at the roof" not in found(rate_fraction=2.91, bandwidth_fraction=0.1)


def test_a_kernel_on_tensor_cores_is_held_against_their_roof():
    h200 = hardware_profile("h200")
    known = evidence(achieved_rate=900.0, rate_fraction=13.0, k__tensor_instructions=8)
    readings = (*known, *tensor_roof(known, h200))
    roof = {item.name: item for item in symptoms(readings, h200)}["at the roof"]
    assert "tensor cores" in roof.words
    assert "91%" in roof.words
    assert tensor_roof(evidence(achieved_rate=900.0), h200) == ()


def test_only_the_reason_for_most_of_the_waiting_is_told():
    told = found(k__stall_barrier=0.4, k__stall_long_scoreboard=0.5)
    assert "latency-bound" in told
    assert "barrier stalls" not in told


def test_troubles_of_a_kernel_that_takes_no_time_are_not_told():
    trouble = {"small__load_bytes_per_sector": 4, "small__time_share": 0.02}
    assert "uncoalesced" not in found(**trouble)
    assert "uncoalesced" in found(**{**trouble, "small__time_share": 0.6})


def conditions(**seen):
    return Conditions(device="GPU", l2_flushed=True, input_sets=1, **seen)


def clocked(evaluation, candidate, task, *, most=1980, reasons=(), clocks=(1980,), power_w=500.0):
    """The symptoms of a candidate whose timings NVML saw at these clocks."""
    timings = [
        conditions(
            sm_clock_mhz=clock, sm_clock_most_mhz=most, throttle_reasons=reasons, power_w=power_w
        )
        for clock in clocks
    ]
    screen = evaluation(1.0).screen.model_copy(update={"conditions": timings[0]})
    compared = tuple(
        Comparison(
            baseline="eager", candidate_ms=1.0, baseline_ms=2.0, ratio=2.0, ci95_low=1.9,
            ci95_high=2.1, pairs=9, candidate_samples_ms=(1.0,), baseline_samples_ms=(2.0,),
            conditions=one,
        )
        for one in timings[1:]
    )  # fmt: skip
    judged = evaluation(1.0).model_copy(update={"screen": screen, "comparisons": compared})
    h200 = hardware_profile("h200")
    return {item.name: item for item in symptoms(evidence_for(judged, candidate, task, h200), h200)}


def test_a_power_limit_is_a_bound_and_says_at_which_clock(evaluation, candidate, task):
    found = clocked(
        evaluation, candidate, task, reasons=("sw_power_cap",), clocks=(1305,), power_w=699.0
    )
    assert "699 W and 1305 MHz" in found["out of power"].words
    assert "arithmetic" in found["out of power"].points_to
    assert not casts_doubt(found["out of power"])
    assert "low clock" not in found


def test_heat_and_moving_clocks_cast_doubt_on_times(evaluation, candidate, task):
    hot = clocked(evaluation, candidate, task, reasons=("sw_thermal_slowdown",))
    assert casts_doubt(hot["too hot"])
    moved = clocked(evaluation, candidate, task, clocks=(1980, 1500))
    assert casts_doubt(moved["clocks moved"])
    assert "24%" in moved["clocks moved"].words


def test_a_low_clock_that_nothing_explains_is_told(evaluation, candidate, task):
    assert "low clock" in clocked(evaluation, candidate, task, clocks=(345,))
    steady = clocked(evaluation, candidate, task, clocks=(1980, 1965))
    assert not {"low clock", "clocks moved", "too hot", "out of power"} & set(steady)
