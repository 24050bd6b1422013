"""`kernelwright learn` writes and says what can be had, and one sentence where nothing can."""

from pathlib import Path

import pytest

from kernelwright.tools.learning.data.dataset import Summary
from kernelwright.ui.cli.app import run
from kernelwright.ui.cli.learn import judges


def test_a_data_set_without_runs_holds_tasks_to_evaluate_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data"
    words = ["--run-dir", str(tmp_path / "home"), "--held-out", "2", "--small"]
    assert run(["learn", "dataset", "--out", str(out), *words]) == 0
    assert "2 tasks held out, of 2 families" in capsys.readouterr().out
    summary = Summary.model_validate_json((out / "summary.json").read_text())
    assert (summary.held_out, summary.instructions) == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["dataset", "--out", "FILE"], 2, "it is no folder"),
        (["dataset", "--out", "OUT", "--held-out-share", "1.5"], 2, "is not from 0 to below 1"),
        (["evaluate", "--data", "OUT", "--out", "OUT", "--model", "playbook"], 2, "no held_out"),
        (["evaluate", "--data", "BAD", "--out", "OUT", "--model", "m"], 2, "line 1: no problem"),
    ],
)
def test_what_cannot_be_learnt_from_is_one_sentence(
    arguments: list[str],
    status: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, bad = tmp_path / "file", tmp_path / "bad"
    file.write_text("")
    bad.mkdir()
    (bad / "held_out.jsonl").write_text("{}\n")
    places = {"FILE": file, "OUT": tmp_path / "out", "BAD": bad}
    given = [str(places.get(word, word)) for word in arguments]
    assert run(["learn", *given]) == status
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("cores", "spares"), [(1, 1), (2, 1), (8, 2), (64, 4)])
def test_one_worker_at_least_stands_ready(cores: int, spares: int) -> None:
    assert judges._spares(cores) == spares
