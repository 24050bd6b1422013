import pytest

from kernelwright.tools.archive.elites import behaviour
from kernelwright.tools.profile import evidence_for, occupancy, symptoms
from kernelwright.tools.profile.evidence import block_threads
from kernelwright.tools.types import CompileReport, LaunchShape, Rank


def named(values, name):
    return next(value for value in values if value.name == name)


def test_bandwidth_is_the_tasks_bytes_over_the_median(evaluation, candidate, task, h200):
    readings = evidence_for(evaluation(1.0), candidate, task, h200)
    assert named(readings, "achieved_bandwidth").value == pytest.approx(2147.48, abs=0.01)
    assert named(readings, "bandwidth_fraction").rank is Rank.DERIVED


def test_a_kernel_near_the_ceiling_is_at_the_roof(evaluation, candidate, task, h200):
    readings = evidence_for(evaluation(0.47), candidate, task, h200)
    found = [symptom.name for symptom in symptoms(readings, h200)]
    assert "at the roof" in found
    assert "far from both roofs" not in found


def test_a_slow_kernel_is_far_from_both_roofs(evaluation, candidate, task, h200):
    readings = evidence_for(evaluation(5.0), candidate, task, h200)
    slow = named(symptoms(readings, h200), "far from both roofs")
    assert "memory" in slow.points_to
    assert slow.evidence


def test_spills_and_low_occupancy_come_from_the_compilers_report(evaluation, candidate, task, h200):
    readings = evidence_for(evaluation(2.0, registers=255, spill_bytes=96), candidate, task, h200)
    found = {symptom.name: symptom for symptom in symptoms(readings, h200)}
    assert "96 bytes" in found["spills"].words
    assert "limited by registers at 512 threads" in named(readings, "k.occupancy").source


def test_missing_counters_are_a_reading_with_a_remedy(evaluation, candidate, task, h200):
    missing = named(evidence_for(evaluation(1.0), candidate, task, h200), "counters")
    assert missing.rank is Rank.UNAVAILABLE
    assert "ncu" in missing.source


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "fraction", "limit"),
    [
        (32, 0, 256, 1.0, "threads"),
        (128, 0, 256, 0.25, "registers"),
        (32, 100 * 1024, 256, 0.25, "shared memory"),
        (16, 0, 32, 0.5, "blocks"),
    ],
)
def test_occupancy_names_the_resource_that_runs_out(
    h200, registers, shared, threads, fraction, limit
):
    report = CompileReport(kernel="k", registers=registers, shared_bytes=shared)
    held = occupancy(report, threads, h200)
    assert (held.fraction, held.limit) == (fraction, limit)


def test_the_block_is_read_from_the_plan_and_its_settings(candidate):
    assert block_threads(candidate, "k") == 512
    assert block_threads(candidate, "other") is None
    unknown = candidate.model_copy(update={"settings": ()})
    assert block_threads(unknown, "k") is None


def test_a_candidate_that_was_not_timed_has_no_evidence(evaluation, candidate, task, h200):
    untimed = evaluation(1.0).model_copy(update={"screen": None})
    assert evidence_for(untimed, candidate, task, h200) == ()


def test_dynamic_shared_memory_of_the_launch_counts(evaluation, candidate, task, h200):
    shape = LaunchShape(
        kernel="k", grid=(132 * 3, 1, 1), block=(128, 2, 1), shared_bytes=100 * 1024
    )
    launched = evaluation(1.0, registers=32, shared_bytes=1024).model_copy(
        update={"launches": (shape,)}
    )
    readings = evidence_for(launched, candidate, task, h200)
    assert named(readings, "k.shared_memory").value == 101 * 1024
    assert "dynamic" in named(readings, "k.shared_memory").source
    held = named(readings, "k.occupancy")
    assert held.value == pytest.approx(0.25)
    # The plan's text says 512 threads; what it really launched counts.
    assert held.source == "limited by shared memory at 256 threads a block"
    assert named(readings, "k.waves").value == pytest.approx(1.5)
    assert named(readings, "launches_per_call").value == 1
    assert behaviour(candidate, launched).memory.endswith("shared > 49152 bytes")


def test_a_block_that_does_not_fit_has_no_occupancy_and_no_waves(evaluation, candidate, task, h200):
    shape = LaunchShape(kernel="k", block=(1024, 1, 1), shared_bytes=300 * 1024)
    launched = evaluation(1.0, shared_bytes=0).model_copy(update={"launches": (shape,)})
    readings = evidence_for(launched, candidate, task, h200)
    assert named(readings, "k.occupancy").value == 0
    assert not [item for item in readings if item.name == "k.waves"]


def test_launching_is_estimated_until_it_was_measured(evaluation, candidate, task, h200):
    shape = LaunchShape(kernel="k", grid=(8, 1, 1), block=(64, 1, 1), launches=2)
    timed = evaluation(0.012).model_copy(update={"launches": (shape,)})
    guess = named(evidence_for(timed, candidate, task, h200), "launch_share")
    assert guess.rank is Rank.ESTIMATED
    measured = timed.model_copy(update={"launch_ms": 0.004})
    readings = evidence_for(measured, candidate, task, h200)
    assert named(readings, "launch_cost").value == pytest.approx(0.004)
    share = named(readings, "launch_share")
    assert (share.rank, share.value) == (Rank.DERIVED, pytest.approx(0.25))
