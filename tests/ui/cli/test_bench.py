"""The command on real files: baselines and searches on the CPU, and what people get wrong."""

import json
from pathlib import Path

import pytest

from kernelwright.graphs.suite import Outcome
from kernelwright.ui.cli.app import run
from kernelwright.ui.terminal.suite_tables import row_cells

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "h200"

GOOD = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1) - x


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""
FORWARD = "        return torch.relu"
CRASHING = GOOD.replace(FORWARD, f"        import ctypes\n        ctypes.string_at(0)\n{FORWARD}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "1_good.py").write_text(GOOD)
    (suite / "2_crashing.py").write_text(CRASHING)
    return suite


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
def test_a_suite_is_searched_summed_up_and_resumed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, home = tmp_path / "r.jsonl", tmp_path / "home"
    command = ["bench", str(folder), "--target", "cpu", "--out", str(out), "--run-dir", str(home)]
    command += ["--seconds-per-task", "1", "--evidence", "timing"]
    assert run(command) == 0
    first = lines(out)
    assert [item["ended"] for item in first] == ["searched", "refused"]
    assert first[0]["against"]
    assert first[0]["terms"]["evidence"] == "timing"
    parts = {phase["name"].split(":")[0] for phase in first[0]["phases"]}
    assert {"read", "audit", "baselines", "screen", "certify"} <= parts
    assert not any("mode" in phase["name"] for phase in first[0]["phases"])
    assert (home / "runs" / str(first[0]["run"])).is_dir()
    shown = capsys.readouterr()
    assert "1_good" in shown.out
    assert "fast_1.5" in shown.out

    (folder / "3_late.py").write_text("x = 1\n")
    assert run([*command, "--resume"]) == 0
    assert [item["file"] for item in lines(out)] == ["1_good.py", "2_crashing.py", "3_late.py"]
    assert lines(out)[:2] == first

    capsys.readouterr()
    assert run(["bench", "summary", str(out)]) == 0
    assert "3 tasks, 1 searched" in capsys.readouterr().out
    assert run(["bench", "compare", str(out), str(out)]) == 0
    assert "within the noise" in capsys.readouterr().out


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
def test_results_under_other_terms_are_not_mixed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.jsonl"
    command = ["bench", str(folder), "--match", "2", "--target", "cpu", "--out", str(out)]
    command += ["--run-dir", str(tmp_path / "home"), "--only-baselines"]
    assert run(command) == 0
    assert run(command) == 2
    assert "go on with --resume" in capsys.readouterr().err
    assert run([*command, "--resume", "--seed", "7"]) == 2
    assert "other terms" in capsys.readouterr().err
    assert len(lines(out)) == 1

    # Measured when the judge went by other figures: shorter pairs, another bound.
    kept = lines(out)[0]
    out.write_text(json.dumps({**kept, "terms": {**kept["terms"], "figures": "0123"}}) + "\n")
    assert run([*command, "--resume"]) == 2
    assert "figures 0123" in capsys.readouterr().err
    assert len(lines(out)) == 1


SECONDS = "75"  # so that a class of regions has its turn on two busy processors
LARGE = """import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 64)

    def forward(self, x):
        y = self.up(x)
        return torch.nn.functional.silu(y) * torch.tanh(y) + torch.sigmoid(x) * 0.5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[Layer() for _ in range(6)])

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.rand(512, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
def test_a_large_model_of_a_suite_is_searched_by_regions_and_its_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite, out = tmp_path / "suite", tmp_path / "r.jsonl"
    suite.mkdir()
    (suite / "1_layers.py").write_text(LARGE)
    command = ["bench", str(suite), "--target", "cpu", "--out", str(out), "--regions", "on"]
    command += ["--run-dir", str(tmp_path / "home"), "--seconds-per-task", SECONDS]
    command += ["--evidence", "timing"]
    assert run(command) == 0
    (found,) = map(Outcome.model_validate_json, out.read_text().splitlines())
    assert found.ended == "searched"
    assert found.terms.regions == "on"
    assert found.summary is not None
    first = found.summary.regions[0]
    assert first.places == 5  # the one at an end is of its own kind
    assert (tmp_path / "home" / "runs" / first.run).is_dir()
    assert found.regions[0] >= 1
    assert "searched region by region: 1" in capsys.readouterr().out
    assert run([*command[:-4], "--seconds-per-task", SECONDS, "--evidence", "timing",
                "--regions", "off", "--resume"]) == 2  # fmt: skip
    assert "regions on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent"], "absent is no folder"),
        (["."], "holds no Python file"),
        (["summary"], "bench summary RESULTS"),
        (["compare", "one"], "bench compare RESULTS RESULTS"),
        (["summary", "absent.jsonl"], "cannot read"),
        (["a", "b"], "one folder at a time"),
        (["SUITE", "--match", "nothing"], "that fits nothing"),
        (["SUITE", "--resume"], "--out names"),
        (["SUITE", "--search", "endless"], "unknown search profile"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    arguments: list[str],
    words: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(folder) if word == "SUITE" else word for word in arguments]
    assert run(["bench", *given]) == 2
    assert words in capsys.readouterr().err


def test_where_nothing_was_correct_the_table_says_what_the_judge_said() -> None:
    lines = (RESULTS / "kernelbench_level1.jsonl").read_text().splitlines()
    (found,) = (o for o in map(Outcome.model_validate_json, lines) if o.file.startswith("90_"))
    assert found.summary is not None
    counts = found.summary.candidates.model_copy(update={"correct": 0, "timed": 0})
    changed = {"best": None, "candidates": counts, "status": "nothing_correct"}
    nothing = found.summary.model_copy(update=changed)
    item = found.model_copy(update={"summary": nothing, "against": ()})
    assert row_cells(item)[-1].plain == "no candidate was correct"
    told = item.model_copy(update={"rejected": ("wrong_result: far off", "crashed: gone")})
    assert row_cells(told)[-1].plain == "no candidate was correct: wrong_result: far off"
