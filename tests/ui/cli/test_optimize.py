"""What `optimize` and `resume` make of a search, with a recorded one in its place."""

import asyncio
import json
import math
import os
import signal
from pathlib import Path

import pytest

from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Refusal
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.value import AwaitingError
from kernelwright.ui.cli import app as cli
from kernelwright.ui.cli import optimize as search


@pytest.fixture
def at_home(monkeypatch, tmp_path, home):
    """A file to optimise, and runs kept where the test can see them."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(home))
    file = tmp_path / "softmax.py"
    file.write_text("class Model: ...\n")
    return file


@pytest.fixture
def recorded(monkeypatch, recording, home):
    """Puts a recorded run in the place of a search; says what it was asked for."""
    asked = {}

    async def start(file, policy, target, profile, *, seed, home, listener, **others):
        asked.update(file=file, policy=policy, target=target, profile=profile, seed=seed, home=home)
        asked.update(others)
        kept = recording(unsure=0.05)  # a wider interval would not be exported
        run = kept.archive(home or search.default_home())
        kept.at = kept.at.replace(minute=0)
        for event in kept.events(run):
            listener(event)
        archive = Archive.open(run, home)
        summary = archive.record().summary
        archive.close()
        return summary

    monkeypatch.setattr(search, "start_search", start)
    return asked


def test_the_result_goes_to_stdout_and_progress_to_stderr(at_home, recorded, capsys):
    assert cli.run(["optimize", str(at_home), "--search", "quick"]) == 0
    out, err = capsys.readouterr()
    assert "1.44x as fast as the best baseline" in out
    assert "leaderboard" in out
    assert "baselines: eager" in err
    assert "kernelwright report" in err


def test_options_reach_the_search(at_home, recorded, capsys, tmp_path):
    options = ["--entry", "Other", "--inputs", "4x4:float32", "--inputs", "4:int64"]
    options += ["--rounds", "3", "--seconds", "9", "--seed", "7", "--target", "cpu"]
    options += ["--run-dir", str(tmp_path / "elsewhere")]
    assert cli.run(["optimize", str(at_home), *options]) == 0
    assert recorded["policy"].entry == "Other"
    assert recorded["policy"].inputs == ("4x4:float32", "4:int64")
    assert (recorded["profile"].rounds, recorded["profile"].seconds) == (3, 9)
    assert (recorded["seed"], recorded["target"]) == (7, "cpu")
    assert recorded["home"] == tmp_path / "elsewhere"
    assert recorded["models"] is None
    assert recorded["choice"].name == "local"
    assert recorded["start"] is None
    assert recorded["evidence"] == "full"
    assert cli.run(["optimize", str(at_home), "--evidence", "timing"]) == 0
    assert recorded["evidence"] == "timing"


def test_json_is_one_object_of_the_promised_shape(at_home, recorded, capsys):
    assert cli.run(["optimize", str(at_home), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert {*told} >= {
        "run", "task", "hardware", "status", "baselines", "best", "candidates", "rounds",
        "seconds", "tokens", "export",
    }  # fmt: skip
    assert {*told["task"]} == {"name", "inputs", "bytes", "flops", "floor_ms"}
    assert {*told["best"]} == {
        "candidate", "median_ms", "speedup_vs_eager", "speedup_vs_best_baseline", "ci95",
        "floor_fraction", "error_ratio", "coverage", "method", "precision", "verdict", "outcome",
        "timed", "baseline", "claim", "latency", "clock", "host_share", "mode",
        "roof", "roof_fraction",
    }  # fmt: skip
    assert told["status"] == "improved"
    assert told["export"] is None
    assert "leaderboard" in err
    assert Summary.model_validate(told).best is not None


def test_json_goes_to_a_file_too(at_home, recorded, capsys, tmp_path):
    assert cli.run(["optimize", str(at_home), "--json", str(tmp_path / "a" / "b.json")]) == 0
    assert json.loads((tmp_path / "a" / "b.json").read_text())["status"] == "improved"


def test_an_export_is_written_and_named_in_the_json(at_home, recorded, capsys, tmp_path):
    target = tmp_path / "out"
    assert cli.run(["optimize", str(at_home), "--json", "-", "--export", str(target)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["export"] == str(target)
    assert (target / "module.py").exists()
    assert cli.run(["show", told["run"]]) == 0
    assert "out" in capsys.readouterr().out


def test_a_zip_and_a_kernelbench_file_can_be_taken_home(recording, home, tmp_path, monkeypatch):
    run = recording(unsure=0.05).archive(home)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(home))
    assert cli.run(["export", run, "-o", str(tmp_path / "x.zip")]) == 0
    assert (tmp_path / "x.zip").read_bytes()[:2] == b"PK"
    target = tmp_path / "new.py"
    assert cli.run(["export", run, "-o", str(target), "--format", "kernelbench"]) == 0
    assert "class ModelNew" in target.read_text()


def test_a_refusal_is_one_sentence_with_its_status(at_home, monkeypatch, capsys):
    async def refuse(*_, **__):
        return Refusal(sentence="softmax.py has no module.", exit_status=2)

    monkeypatch.setattr(search, "start_search", refuse)
    assert cli.run(["optimize", str(at_home)]) == 2
    assert capsys.readouterr().err == "kernelwright: softmax.py has no module.\n"


def test_ctrl_c_stops_cleanly_prints_the_best_and_says_how_to_go_on(
    at_home, monkeypatch, recording, home, capsys
):
    async def slow(*_, listener, control, **__):
        kept = recording()
        run = kept.archive(home)
        for event in kept.events(run)[:8]:
            listener(event)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.05)  # the signal's turn
        assert control.stopped_because
        archive = Archive.open(run, home)
        summary = archive.record().summary.model_copy(update={"status": "stopped"})
        archive.record_summary(summary, "stopped")
        archive.close()
        return summary

    monkeypatch.setattr(search, "start_search", slow)
    assert cli.run(["optimize", str(at_home)]) == 0
    out, err = capsys.readouterr()
    assert "6.200 ms" in out
    assert "go on with: kernelwright resume softmax-" in err


def test_ctrl_c_before_there_is_a_run_ends_at_once(at_home, monkeypatch, capsys):
    async def tracing(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    monkeypatch.setattr(search, "start_search", tracing)
    assert cli.run(["optimize", str(at_home)]) == 130
    assert "nothing was kept" in capsys.readouterr().err


def test_a_second_ctrl_c_does_not_wait(at_home, monkeypatch, recording, capsys):
    async def deaf(*_, listener, **__):
        for event in recording().events("softmax-0304-abcd")[:8]:
            listener(event)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    monkeypatch.setattr(search, "start_search", deaf)
    assert cli.run(["optimize", str(at_home)]) == 130
    assert "kernelwright resume softmax-0304-abcd" in capsys.readouterr().err


def test_runs_are_listed_the_newest_first(run, home, monkeypatch, capsys):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(home))
    assert cli.run(["runs"]) == 0
    out = capsys.readouterr().out
    assert run in out
    assert "1.44x" in out


def test_no_runs_yet_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    assert cli.run(["runs"]) == 0
    assert "no runs yet" in capsys.readouterr().out


def test_report_says_where_it_wrote(run, home, monkeypatch, capsys):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(home))
    assert cli.run(["report", run]) == 0
    path = capsys.readouterr().out.strip()
    assert path.endswith("report.html")
    assert Path(path).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_run_that_waits_says_for_what_and_how_to_go_on(
    at_home, monkeypatch, recording, home, capsys, tmp_path
):
    asked = {}

    async def wait(*_, listener, patience_s, **__):
        asked["patience_s"] = patience_s
        kept = recording()
        run = kept.archive(home)
        for event in kept.events(run)[:8]:
            listener(event)
        archive = Archive.open(run, home)
        words = {"status": "waiting", "stopped_because": "waiting for 003-coder.answer.md"}
        summary = archive.record().summary.model_copy(update=words)
        archive.record_summary(summary, "stopped")
        archive.close()
        return summary

    monkeypatch.setattr(search, "start_search", wait)
    target = tmp_path / "out"
    assert cli.run(["optimize", str(at_home), "--json", "-", "--export", str(target)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "waiting"
    assert "waiting for 003-coder.answer.md" in err
    assert "then go on with: kernelwright resume softmax-" in err
    assert not target.exists()
    assert asked["patience_s"] == 0  # nobody watches
    assert cli.run(["optimize", str(at_home), "--wait"]) == 0
    assert asked["patience_s"] == math.inf


def test_a_task_that_is_read_elsewhere_is_waited_for_too(at_home, monkeypatch, capsys):
    async def elsewhere(*_, **__):
        raise AwaitingError("run the bundle b1 on the other host")

    monkeypatch.setattr(search, "start_search", elsewhere)
    assert cli.run(["optimize", str(at_home)]) == 0
    err = capsys.readouterr().err
    assert err == "run the bundle b1 on the other host; then give the same command again\n"
