import pytest

from ui import doctor
from ui.commands.models import Choice
from ui.doctor import Row, examine, exit_status


def rows(**outcomes):
    named = {"Python packages": "works", "GPU": "optional", "C++ compiler": "works"}
    named |= {"CUDA compiler": "works"} | {k.replace("_", " "): v for k, v in outcomes.items()}
    return tuple(Row(subject=k, outcome=v, words="") for k, v in named.items())


async def test_both_compilers_are_tried_by_compiling_a_kernel():
    found = {row.subject: row for row in await examine()}
    assert found["C++ compiler"].outcome == "works"
    assert found["CUDA compiler"].words.startswith("compiled a kernel for sm_")
    assert found["CPU"].outcome == "works"


async def test_a_missing_compiler_is_a_row_with_its_remedy(monkeypatch, tmp_path):
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
async def test_a_configured_model_is_asked(choice, outcome, words, monkeypatch):
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
        ({"GPU": "works", "CUDA compiler": "missing"}, 3),
        ({"Python packages": "missing"}, 3),
    ],
)
def test_the_status_says_whether_the_main_job_can_run_here(outcomes, status):
    assert exit_status(rows(**outcomes)) == status


def test_the_table_is_printed(capsys):
    doctor.doctor()
    printed = capsys.readouterr().out
    assert "C++ compiler" in printed
    assert "isolation" in printed
