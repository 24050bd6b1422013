"""Batch evaluation at the command line: contradictions said, a killed search asks for the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.ui.cli import app as cli

ROOT = Path(__file__).parents[3]
EXAMPLE = "examples/softmax.py"
BATCH = ["optimize", EXAMPLE, "--executor", "batch"]


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """Runs a command line in this process; its status and what it wrote on stderr."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)

    def run(*arguments):
        status = cli.run([str(argument) for argument in arguments])
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["optimize", EXAMPLE, "--gpu", "H200"], "--bundles and --gpu need --executor batch"),
        (BATCH, "needs --gpu NAME"),
        ([*BATCH, "--gpu", "Voodoo2"], "unknown hardware 'Voodoo2'"),
        ([*BATCH, "--gpu", "H200", "--target", "cpu"], "--target is cpu"),
        ([*BATCH, "--gpu", "cpu"], "is no GPU"),
        ([*BATCH, "--executor", "cluster"], "is not one of"),
        (["work"], "missing argument"),
        (["work", "examples"], "is not a bundle"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(said, arguments, words):
    status, text = said(*arguments)
    assert status == 2
    assert words in text
    assert text.count("\n") == 1
    assert "Traceback" not in text


@pytest.mark.exhaustive
def test_a_gpu_that_is_not_here_is_searched_for_and_a_killed_search_asks_the_same(tmp_path):
    home = {**os.environ, "KERNELWRIGHT_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "kernelwright"]
    begun = [*command, *BATCH, "--gpu", "H200", "--wait"]
    process = subprocess.Popen(begun, cwd=ROOT, env=home, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (there := list(tmp_path.glob("runs/*/bundles/*/bundle.json"))):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    run = there[0].parents[2].name
    resumed = subprocess.run(
        [*command, "resume", run, "--no-wait"], cwd=ROOT, env=home, capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    assert f"kernelwright work {there[0].parent}" in resumed.stderr
    assert "NVIDIA H200" in resumed.stderr
    assert list(tmp_path.glob("runs/*/bundles/*/bundle.json")) == there
