"""What a person who is the model has to answer."""

import pytest

from kernelwright.tools.archive import Archive
from kernelwright.ui.cli import app as cli


@pytest.fixture
def asked(run, home, monkeypatch):
    """A run with one open question and one that was answered."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(home))
    folder = home / "runs" / run / "questions"
    folder.mkdir()
    for name in (
        "001-planner-1.prompt.md",
        "001-planner-1.answer.md",
        "002-coder-1.prompt.md",
    ):
        (folder / name).write_text("words\n")
    return run


def test_open_questions_of_a_waiting_run_are_listed(asked, home, capsys):
    archive = Archive.open(asked, home)
    summary = archive.record().summary.model_copy(update={"status": "waiting"})
    archive.record_summary(summary, "stopped")
    archive.close()
    assert cli.run(["questions"]) == 0
    out = capsys.readouterr().out
    assert "002-coder-1.prompt.md" in out
    assert "answer in 002-coder-1.answer.md" in out
    assert "001-planner" not in out


def test_a_finished_run_asks_nothing(asked, capsys):
    assert cli.run(["questions"]) == 0
    assert capsys.readouterr().out == "no open questions\n"
