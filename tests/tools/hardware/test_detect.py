import os
from pathlib import Path

import pytest

from kernelwright.profiles.load import all_hardware, hardware_profile, search_profile
from kernelwright.tools.hardware import cached_ceilings, detect, keep_ceilings, measure_ceilings
from kernelwright.tools.hardware.ceilings import Ceilings
from kernelwright.tools.hardware.detect import architecture_of, detect_gpu, simd_width_bits
from kernelwright.tools.types import EnvironmentLacksError


def test_the_cpu_is_described_from_what_the_system_says():
    cpu = detect("cpu")
    assert cpu.kind == "cpu"
    assert cpu.cores >= 1
    assert cpu.memory_gib > 0.5
    assert cpu.architecture is None
    assert not cpu.measured


def test_an_unknown_target_is_named_in_the_error():
    with pytest.raises(ValueError, match="unknown target 'tpu'; known are auto, cuda, cpu"):
        detect("tpu")


def test_without_a_gpu_cuda_is_lacking_and_auto_falls_back_to_the_cpu():
    gpu, why_not = detect_gpu()
    if gpu is not None:
        assert detect("auto") == gpu
        return
    assert why_not
    assert detect("auto").kind == "cpu"
    with pytest.raises(EnvironmentLacksError, match="--target cpu"):
        detect("cuda")


def test_measured_ceilings_replace_assumed_ones_and_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    cpu = detect("cpu")
    assert cached_ceilings(cpu) is None
    measured = measure_ceilings(cpu)
    assert measured.measured
    assert 0.5 < measured.bandwidth_gb_s < 5000
    assert cached_ceilings(cpu) == measured
    assert measure_ceilings(cpu) == measured


@pytest.mark.exhaustive
def test_a_damaged_ceilings_file_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    cpu = detect("cpu")
    measure_ceilings(cpu)
    (file,) = (tmp_path / "ceilings").iterdir()
    file.write_text("{")
    assert cached_ceilings(cpu) is None
    assert measure_ceilings(cpu).measured


def test_two_programs_that_measure_at_the_same_time_both_keep_it(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    cpu = detect("cpu")
    ceilings = Ceilings(copy_gb_s=20.0, read_gb_s=15.0, fp32_tflops=0.1, torch_version="2")
    move, moved = Path.replace, []

    def last(written, there):
        """The other program comes in the moment before ours is moved there."""
        if not moved:
            moved.append(written)
            with monkeypatch.context() as other:
                other.setattr(os, "getpid", lambda: 1)
                keep_ceilings(cpu, ceilings)
        return move(written, there)

    monkeypatch.setattr(Path, "replace", last)
    assert keep_ceilings(cpu, ceilings) == cached_ceilings(cpu)
    assert [file.suffix for file in (tmp_path / "ceilings").iterdir()] == [".json"]


@pytest.mark.parametrize(
    ("flags", "bits"), [({"avx512f", "avx2"}, 512), ({"avx2"}, 256), ({"sse2"}, 128)]
)
def test_the_widest_vector_unit_counts(flags, bits):
    assert simd_width_bits(flags) == bits


def test_hopper_is_asked_for_by_its_specific_name():
    assert architecture_of(9, 0) == "sm_90a"
    assert architecture_of(8, 9) == "sm_89"


@pytest.mark.parametrize("name", ["L40S", "rtx 4090", "RTX-5090", "h200", "NVIDIA H100 80GB HBM3"])
def test_hardware_is_found_however_it_is_spelled(name):
    assert hardware_profile(name).kind == "cuda"


def test_every_hardware_profile_names_its_source():
    assert len(all_hardware()) >= 9
    for hardware in all_hardware().values():
        assert len(hardware.source) > 10


def test_an_unknown_profile_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown search profile"):
        search_profile("../x")


@pytest.mark.gpu
def test_the_gpu_is_described_and_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    gpu = detect("cuda")
    assert gpu.sm_count > 10
    measured = measure_ceilings(gpu)
    assert 0.5 * gpu.bandwidth_gb_s < measured.bandwidth_gb_s < 1.1 * gpu.bandwidth_gb_s
