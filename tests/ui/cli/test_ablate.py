from pathlib import Path

import pytest
from rich.console import Console

from kernelwright.graphs.suite.ablation import Outcome, Row
from kernelwright.profiles.load import search_profile
from kernelwright.ui.cli.ablate.trials import append_outcome, chosen_parts, read_outcomes, table_of
from kernelwright.ui.cli.app import run
from kernelwright.ui.complaints import Complaint


def outcome(task: str) -> Outcome:
    return Outcome(
        task=task, without=("ideas",), seed=0, minds="playbook", budget=search_profile("quick"),
        failure="it has no module",
    )  # fmt: skip


def test_outcomes_are_read_back_and_a_line_cut_off_by_a_kill_is_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.jsonl"
    append_outcome(path, outcome("a.py"))
    with path.open("a") as file:
        file.write('{"task": "b.p')
    assert read_outcomes(path) == (outcome("a.py"),)
    append_outcome(path, outcome("b.py"))
    assert read_outcomes(path) == (outcome("a.py"), outcome("b.py"))


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\nworld\n")
    with pytest.raises(Complaint, match=r"line 1 of .* is no outcome"):
        read_outcomes(path)
    assert path.read_text() == "hello\nworld\n"


def test_prompts_evolve_only_with_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "prompts" not in chosen_parts((), with_models=False)
    assert "left out" in capsys.readouterr().err
    assert "prompts" in chosen_parts((), with_models=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "there is no file"),
        (["FILE", "--without", "luck"], "there is no part 'luck'"),
        (["FILE", "--search", "endless"], "unknown search profile"),
        (["FILE", "FILE"], "the same name"),
        (["FILE", "--model", "some-model"], "where is the model"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KERNELWRIGHT_BASE_URL", raising=False)
    file = tmp_path / "task.py"
    file.write_text("x = 1\n")
    status = run(["ablate", *(str(file) if item == "FILE" else item for item in arguments)])
    assert status == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_the_table_shows_what_a_part_was_worth() -> None:
    row = Row(
        without=("contrast",), trials=3, found=2, speedup=1.5, against_whole=0.9, lowest=0.8,
        highest=1.1, candidates=12.4, seconds=30.2, tokens=0.0, usd=None,
    )  # fmt: skip
    console = Console(width=120, record=True)
    console.print(table_of((row,)))
    text = console.export_text()
    for words in ("without contrast", "2 of 3", "1.500", "0.900", "0.800", "1.100", "12", "30"):
        assert words in text


def test_a_folder_without_a_recording_is_a_complaint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ablate", "--recorded", str(tmp_path)]) == 2
    assert "holds no recorded surfaces" in capsys.readouterr().err
    assert run(["ablate"]) == 2
    assert "name files" in capsys.readouterr().err
