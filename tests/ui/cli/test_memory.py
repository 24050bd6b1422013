"""`kernelwright memory` on a library of one kernel."""

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernelwright.tools.memory import Kept, KernelLibrary, Proof, TaskKey
from kernelwright.ui.cli.app import run

KEPT = Kept(
    key=TaskKey(
        exact="e", structure="s", weights=(), words="exp, sum", shape=(64, 512), dtype="float32"
    ),
    inputs=(), device="Toy", kind="cpu", language="cpp", kernel="k", plan="p", candidate="c",
    proof=Proof(
        median_ms=1.0, baseline="compile", ratio=2.0, ci95=(1.9, 2.1), floor_fraction=0.5,
        method="", certified=True,
    ),
    at=datetime.now(UTC), task="private", run="private-1",
)  # fmt: skip


def test_it_is_shown_given_away_merged_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, other, file = tmp_path / "home", tmp_path / "other", tmp_path / "kernels.jsonl"
    KernelLibrary(home).keep([KEPT])
    assert run(["memory", "show", "--run-dir", str(home)]) == 0
    shown = capsys.readouterr().out
    assert "1 kernel of 1 task" in shown
    assert "2.00x" in shown
    assert run(["memory", "export", str(file), "--run-dir", str(home)]) == 0
    assert "private" not in file.read_text()
    assert run(["memory", "merge", str(file), "--run-dir", str(other)]) == 0
    (merged,) = KernelLibrary(other).every()
    assert merged.words == "exp, sum of 64 x 512 float32, merged from a file"
    assert run(["memory", "clear", "--run-dir", str(home)]) == 0
    assert KernelLibrary(home).every() == ()


def test_at_a_terminal_the_library_is_deleted_only_once_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    KernelLibrary(tmp_path).keep([KEPT])
    clear = ["memory", "clear", "--run-dir", str(tmp_path)]
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert run(clear) == 0
    out = capsys.readouterr().out
    assert "Delete 1 kernel in" in out
    assert "stays as it was" in out
    assert len(KernelLibrary(tmp_path).every()) == 1
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run(clear) == 0
    assert KernelLibrary(tmp_path).every() == ()
    KernelLibrary(tmp_path).keep([KEPT])
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert run([*clear, "--yes"]) == 0
    assert run(clear) == 0  # nothing is there, so nothing is asked
    assert "empty now" in capsys.readouterr().out


def test_a_file_of_something_else_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello\n")
    assert run(["memory", "merge", str(file), "--run-dir", str(tmp_path)]) == 2
    assert "line 1 is no kernel of a library" in capsys.readouterr().err
    assert run(["memory", "merge", str(tmp_path / "none"), "--run-dir", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "looked"),
    [
        ({"outcome": "faster"}, "certified"),
        ({"outcome": "not settled"}, "certified, not settled"),
        ({"outcome": "slower alone", "certified": False}, "precise, slower alone"),
        ({"ci95": (1.6, 2.4)}, "certified, not settled"),  # of a library that kept no more
        ({"ratio": 1.0, "ci95": (0.99, 1.01)}, "certified, not distinguishable"),
    ],
)
def test_a_kernel_that_is_not_shown_to_be_faster_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: dict[str, object], looked: str
) -> None:
    proof = KEPT.proof.model_copy(update=told)
    KernelLibrary(tmp_path).keep([KEPT.model_copy(update={"proof": proof})])
    assert run(["memory", "show", "--run-dir", str(tmp_path)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "compile" in line)
    assert [cell.strip() for cell in line.split("  ") if cell.strip()][-2] == looked
