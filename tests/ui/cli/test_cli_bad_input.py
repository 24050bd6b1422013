"""Bad input at the command line: one sentence on stderr, the right status, no traceback."""

import errno
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.tools.runtime import kernelwright_version
from kernelwright.ui.cli import app as cli

EXAMPLE = "examples/softmax.py"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """Runs a command line in this process; its status and what it wrote on stderr."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)

    def run(*arguments):
        status = cli.run([str(argument) for argument in arguments])
        return status, capsys.readouterr().err

    return run


def is_one_sentence(text):
    # A slow machine shows signs of life before the sentence.
    text = re.sub(r"^still [^\n]*\n", "", text, flags=re.MULTILINE)
    return text.startswith("kernelwright: ") and text.count("\n") == 1 and "Traceback" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["optimise"], "no such command 'optimise'"),
        (["optimize"], "missing argument"),
        (["optimize", "--fast"], "no such option"),
        (["optimize", "nowhere.py"], "there is no file nowhere.py"),
        (["optimize", "examples"], "examples has several modules that could be meant: "),
        (["optimize", "examples", "--entry", "Gone"], "examples has no file that defines gone"),
        (["audit"], "missing argument 'file', or --build module:function"),
        (["audit", EXAMPLE, "--build", "a:b"], "give file or --build, not both"),
        (["audit", "--build", "a.py"], "not of the form module:function"),
        (["audit", "--build", "gone.away:make"], "no module gone.away"),
        (["audit", EXAMPLE, "--inputs", "gone.pt"], "there is no file gone.pt with saved inputs"),
        (["audit", "gone.away:Block"], "no module gone.away that python finds"),
        (["optimize", EXAMPLE, "--target", "tpu"], "'tpu' is not one of"),
        (["optimize", EXAMPLE, "--search", "slow"], "deep, quick, standard"),
        (["optimize", EXAMPLE, "--allow", "tf32,fp2"], "unknown precision 'fp2'"),
        (["optimize", EXAMPLE, "--rounds", "0"], "invalid value for '--rounds'"),
        (["optimize", EXAMPLE, "--rounds", "many"], "invalid value for '--rounds'"),
        (["optimize", EXAMPLE, "--seconds", "-1"], "invalid value for '--seconds'"),
        (["optimize", EXAMPLE, "--seconds", "inf"], "invalid value for '--seconds'"),
        (["optimize", EXAMPLE, "--seed", str(2**63)], "invalid value for '--seed'"),
        (["runs", "--run-dir", EXAMPLE], "softmax.py is no folder"),
        (["optimize", EXAMPLE, "--export", "examples"], "not empty and is no earlier export"),
        (["optimize", EXAMPLE, "--export", EXAMPLE], "it is a file"),
        (["optimize", EXAMPLE, "--export", f"{EXAMPLE}/out"], "not writable"),
        (["optimize", EXAMPLE, "--json", "examples"], "it is a folder"),
        (["optimize", EXAMPLE, "--json", f"{EXAMPLE}/x.json"], "not writable"),
        (["optimize", EXAMPLE, "--run-dir", EXAMPLE], "cannot keep runs in"),
        (["optimize", EXAMPLE, "--start-from", "no.cu"], "there is no candidate at no.cu"),
        (["optimize", EXAMPLE, "--start-from", EXAMPLE], "is a foreign ModelNew file"),
        (["resume", "nothing"], "there is no run 'nothing'"),
        (["show", "nothing"], "there is no run 'nothing'"),
        (["trace", "nothing"], "there is no run 'nothing'"),
        (["report", "nothing"], "there is no run 'nothing'"),
        (["export", "nothing", "-o", "out"], "there is no run 'nothing'"),
        (["export", "nothing"], "missing option '--output'"),
        (["export", "nothing", "-o", "out", "--format", "exe"], "'exe' is not one of"),
        (["audit", "nowhere.py"], "there is no file nowhere.py"),
        (["audit", EXAMPLE, "--json", "examples"], "it is a folder"),
        (["check", "nothing", "--task", EXAMPLE], "there is no candidate at nothing"),
        (["check", EXAMPLE, "--task", "gone.away:Block"], "no module gone.away"),
        (["check", EXAMPLE], "missing option '--task'"),
        (["check", EXAMPLE, "--task", "nowhere.py"], "there is no file nowhere.py"),
        (["check", EXAMPLE, "--task", EXAMPLE, "--record", "x.y"], "holds no records"),
    ],
)
def test_a_sentence_and_status_2(said, arguments, words):
    status, error = said(*arguments)
    assert status == 2
    assert is_one_sentence(error), error
    assert words in error.lower() or words in error


def test_an_unknown_run_names_what_is_close(said, recording, tmp_path):
    run = recording().archive(tmp_path / "home")
    status, error = said("show", run.replace("softmax", "sofmax"))
    assert status == 2
    assert run in error


def test_a_corrupt_run_is_a_sentence(said, recording, tmp_path):
    run = recording().archive(tmp_path / "home")
    (tmp_path / "home" / "runs" / run / "run.db").write_bytes(b"nonsense" * 1000)
    for command in (["show", run], ["report", run], ["resume", run]):
        status, error = said(*command)
        assert status == 2
        assert is_one_sentence(error), error
    assert cli.run(["runs"]) == 0


def test_a_report_cannot_be_written_into_a_folder(said, recording, tmp_path):
    run = recording().archive(tmp_path / "home")
    status, error = said("report", run, "-o", tmp_path)
    assert status == 2
    assert "it is a folder" in error


def test_an_unknown_candidate_of_a_run_is_a_sentence(said, recording, tmp_path):
    run = recording().archive(tmp_path / "home")
    status, error = said("export", run, "-o", tmp_path / "out", "--candidate", "ffff")
    assert status == 2
    assert "no candidate 'ffff'" in error
    assert not (tmp_path / "out").exists()


def test_a_wrong_candidate_is_not_exported_even_by_force(said, recording, tmp_path):
    kept = recording()
    run = kept.archive(tmp_path / "home")
    options = ("--candidate", kept.wrong.id, "--force")
    status, error = said("export", run, "-o", tmp_path / "out", *options)
    assert status == 2
    assert "its verdict is wrong_result" in error


def test_what_lacks_is_status_3(said, monkeypatch):
    from kernelwright.tools.types import EnvironmentLacksError
    from kernelwright.ui.cli import audit

    def lacking(*_, **__):
        raise EnvironmentLacksError("there is no NVIDIA GPU here; use --target cpu")

    monkeypatch.setattr(audit, "audit", lacking)
    status, error = said("audit", EXAMPLE, "--target", "cuda")
    assert status == 3
    assert "use --target cpu" in error


def test_our_own_faults_keep_their_traceback(monkeypatch):
    from kernelwright.ui.cli.data import runs as reading

    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(reading, "runs", broken)
    with pytest.raises(ZeroDivisionError):
        cli.run(["runs"])


def test_a_fault_in_a_line_that_speaks_of_interrupts_keeps_its_traceback(monkeypatch):
    from kernelwright.ui.cli.data import runs as reading

    def broken(*_):
        raise RuntimeError("broken")  # KeyboardInterrupt

    monkeypatch.setattr(reading, "runs", broken)
    with pytest.raises(RuntimeError, match="broken"):
        cli.run(["runs"])


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ValueError('"enum":\n KeyboardInterrupt: ')]
)
def test_an_interrupt_is_said_also_where_a_library_takes_it_for_an_error(
    monkeypatch, capsys, error
):
    from kernelwright.ui.cli.data import runs as reading

    def interrupted(*_):
        raise error

    monkeypatch.setattr(reading, "runs", interrupted)
    assert cli.run(["runs"]) == 130
    assert capsys.readouterr().err == "kernelwright: interrupted\n"


def full_database():
    """What SQLite raises on a full disk."""
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA max_page_count = 1")
    try:
        database.execute("CREATE TABLE a (b)")
    except sqlite3.OperationalError as error:
        return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "there is no space left on the disk; "),
        (OSError(errno.EROFS, "", "/h/run.db"), r"the file system is read-only \(/h/run.db\); "),
        (full_database(), "there is no space left on the disk; "),
    ],
)
def test_a_disk_that_takes_nothing_is_a_sentence_and_status_3(said, monkeypatch, error, words):
    from kernelwright.ui.cli.data import runs as reading

    def unable(*_):
        raise RuntimeError("in a graph") from error

    monkeypatch.setattr(reading, "runs", unable)
    status, text = said("runs")
    assert status == 3
    assert is_one_sentence(text)
    assert re.search(words, text)


def audited(file, home):
    """The whole program over a file, as a process of its own."""
    code = "from kernelwright.ui.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "audit", str(file), "--target", "cpu"],
        env={"KERNELWRIGHT_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "empty"),
        (b"\x00\xff\x00binary", "binary"),
        pytest.param(b"def f(:\n", "syntax error", marks=pytest.mark.exhaustive),
    ],
)
def test_a_useless_file_is_a_sentence(said, tmp_path, text, words):
    file = tmp_path / "task.py"
    file.write_bytes(text)
    status, error = said("audit", file, "--target", "cpu")
    assert status == 2, error
    assert is_one_sentence(error), error
    assert words in error


@pytest.mark.exhaustive
def test_a_file_that_leaves_with_status_0_is_refused_by_the_whole_program(tmp_path):
    file = tmp_path / "task.py"
    file.write_text("raise SystemExit(0)\n")
    done = audited(file, tmp_path / "home")
    assert done.returncode == 2, done.stderr
    assert is_one_sentence(done.stderr), done.stderr


def test_the_program_says_which_it_is(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"kernelwright {kernelwright_version()}\n"


def test_help_needs_none_of_the_heavy_libraries():
    code = (
        "import sys\nfrom kernelwright.ui.cli import app as cli\nassert cli.run(['--help']) == 0\n"
        "heavy = {'torch', 'langgraph', 'chainlit', 'pydantic', 'sqlalchemy', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in ("optimize", "resume", "check", "audit", "trace", "report", "export", "doctor"):
        assert name in done.stdout


def test_a_home_that_is_a_file_is_said(said, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "file"))
    status, err = said("audit", EXAMPLE, "--target", "cpu")
    assert status == 3
    assert is_one_sentence(err)
    assert "a file is where a folder should be" in err


def test_an_unknown_wall_is_said(said, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_ISOLATION", "maybe")
    status, err = said("audit", EXAMPLE, "--target", "cpu")
    assert status == 3
    assert is_one_sentence(err)
    assert "must be auto, require or off" in err


def test_words_that_a_terminal_cannot_write_are_written_otherwise(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kernelwright", "audit", "caf\u00e9.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("kernelwright: ")
    assert "caf\\xe9.py" in done.stderr
