import sys
from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.sandbox import bytecode, filling
from kernelwright.tools.evaluate.timing import cublaslt
from kernelwright.tools.types import HostCounters, Missing, Profile
from kernelwright.ui import doctor
from kernelwright.ui.doctor import (
    Row,
    architectures_row,
    bytecode_row,
    counters_row,
    cpu_rows,
    examine,
    exit_status,
    gpu_rows,
    library_row,
)
from kernelwright.ui.model_choice import Choice


def rows(**outcomes):
    named = {"Python packages": "works", "GPU": "optional", "C++ compiler": "works"}
    named |= {"CUDA compiler": "works", "C++ kernel": "works", "CUDA kernel": "works"}
    named |= {k.replace("_", " "): v for k, v in outcomes.items()}
    return tuple(Row(subject=k, outcome=v, words="") for k, v in named.items())


@pytest.fixture
def unprobed(monkeypatch):
    """The table without a kernel being run, which takes seconds and is tried once below."""

    async def ran():
        yield Row(subject="C++ kernel", outcome="works", words="")
        yield Row(subject="CUDA kernel", outcome="works", words="")

    monkeypatch.setattr(doctor, "cpu_rows", ran)
    monkeypatch.setattr(doctor, "gpu_rows", ran)


@pytest.mark.exhaustive
async def test_a_kernel_is_run_and_watched_on_whatever_there_is():
    found = {row.subject: row async for row in cpu_rows()}
    assert found["C++ kernel"].outcome == "works"
    assert "agreed with PyTorch" in found["C++ kernel"].words
    assert found["kernel times (CPU)"].words.startswith("recorded probe")
    counted = found["CPU counters"]
    assert counted.words.startswith("counted probe") or counted.remedy


@pytest.mark.gpu
async def test_a_kernel_on_the_device_is_run_and_watched():
    found = {row.subject: row async for row in gpu_rows()}
    assert found["CUDA kernel"].outcome == "works"
    assert found["CUPTI"].words.startswith("recorded probe")
    counted = found["Nsight Compute"]
    assert counted.words.startswith("counted probe") or counted.remedy


def test_a_binding_that_is_missing_is_optional(monkeypatch):
    monkeypatch.setattr(cublaslt, "import_module", lambda name: 1 / 0)
    row = library_row()
    assert (row.subject, row.outcome) == ("cuBLASLt", "optional")
    assert 'install the extra "gemm"' in row.words
    monkeypatch.setattr(cublaslt, "bindings", lambda: SimpleNamespace(get_version=lambda: 130100))
    assert library_row() == Row(
        subject="cuBLASLt", outcome="works", words="answers through nvmath-python: version 130100"
    )


async def test_a_device_that_breaks_is_a_row(unprobed, monkeypatch):
    async def broken():
        yield Row(subject="C++ kernel", outcome="works", words="")
        raise OSError("the disk is full")

    monkeypatch.setattr(doctor, "cpu_rows", broken)
    missing = [row for row in await examine() if row.outcome == "missing"]
    assert [row.subject for row in missing] == ["C++ kernel"]
    assert "the disk is full" in missing[0].words


def test_counters_work_only_where_the_hardware_counted():
    host = HostCounters(calls=3, time_ms=0.1, cpu_ns=1e5, cycles=2e5, instructions=5e5)
    works = counters_row(Profile(candidate="c1", host=host))
    assert (works.outcome, works.words) == (
        "works",
        "counted probe: 500000 instructions, 2.50 a cycle",
    )
    missing = Missing(step="counters", why="no PMU", remedy="another machine")
    silent = host.model_copy(update={"cycles": None, "instructions": None})
    row = counters_row(Profile(candidate="c1", host=silent, missing=(missing,)))
    assert (row.outcome, row.words, row.remedy) == ("optional", "no PMU", "another machine")


@pytest.mark.parametrize(
    ("lacking", "filled", "outcome", "words", "mended"),
    [
        (False, False, "works", "beside the packages", False),
        (True, True, "works", "Kernelwright's own in ", True),
        (True, False, "optional", "seconds later", True),
    ],
)
async def test_whether_workers_find_bytecode_is_a_row(
    lacking, filled, outcome, words, mended, monkeypatch
):
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(bytecode, "lacking", lambda: lacking)
    monkeypatch.setattr(bytecode, "filled", lambda: filled)
    monkeypatch.setattr(filling, "_TRIED", {bytecode.own_folder()})
    row = await bytecode_row()
    assert (row.outcome, words in row.words, "compileall" in row.remedy) == (outcome, True, mended)


async def test_every_usual_architecture_is_compiled_for():
    row = await architectures_row()
    assert row.outcome == "works"
    assert "sm_90a" in row.words


async def test_both_compilers_are_tried_by_compiling_a_kernel(unprobed):
    found = {row.subject: row for row in await examine()}
    assert found["C++ compiler"].outcome == "works"
    assert found["CUDA compiler"].words.startswith("compiled a kernel for sm_")
    assert found["CPU"].outcome == "works"


async def test_a_missing_compiler_is_a_row_with_its_remedy(unprobed, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    found = {row.subject: row for row in await examine()}
    assert found["C++ compiler"].outcome == "missing"
    assert "apt" in found["C++ compiler"].words


@pytest.mark.parametrize(
    ("choice", "outcome", "words"),
    [
        (Choice(), "optional", "none configured"),
        (Choice("manual"), "works", "you answer"),
        (Choice("tiny", "http://127.0.0.1:9/v1"), "missing", "cannot be reached"),
        (Choice("tiny"), "missing", "where is the model 'tiny'"),
    ],
)
async def test_a_configured_model_is_asked(choice, outcome, words, unprobed, monkeypatch):
    for name in ("MODEL", "BASE_URL"):
        monkeypatch.delenv(f"KERNELWRIGHT_{name}", raising=False)
    monkeypatch.setattr(doctor, "_compile", lambda subject, language: doctor._cpu())
    row = (await examine(choice))[-1]
    assert (row.subject, row.outcome) == ("model", outcome)
    assert words in row.words


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ({}, 0),
        ({"CUDA compiler": "missing"}, 0),
        ({"C++ compiler": "missing"}, 3),
        ({"GPU": "works", "C++ compiler": "missing"}, 0),
        ({"GPU": "works", "CUDA kernel": "missing"}, 3),
        ({"C++ kernel": "missing"}, 3),
        ({"GPU": "works", "CUDA compiler": "missing"}, 3),
        ({"Python packages": "missing"}, 3),
    ],
)
def test_the_status_says_whether_the_main_job_can_run_here(outcomes, status):
    assert exit_status(rows(**outcomes)) == status


def test_the_table_is_printed(unprobed, capsys):
    doctor.doctor()
    printed = capsys.readouterr().out
    assert "C++ compiler" in printed
    assert "isolation" in printed
