"""The benchmark that proves learning: parts, stages that wait or are done, figures, the archive."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.ui.cli.learn import commands

FOLDER = Path(__file__).parents[3] / "benchmarks" / "learning"


@pytest.fixture
def proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with a folder of its own."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("proof", FOLDER / "proof.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "proof", module)
    spec.loader.exec_module(module)
    home = tmp_path / "learn"
    places = {"HOME": home, "PARTS": home / "parts", "LOG": home / "log.txt",
              "MODEL": home / "model", "DATA": home / "data"}  # fmt: skip
    for name, place in places.items():
        monkeypatch.setattr(module, name, place)
    monkeypatch.setattr(module, "PART_BYTES", 10)
    return module


def options(**given: object) -> argparse.Namespace:
    usual = {"stage": None, "minutes": 9.0, "write": 5, "writing_s": 200.0, "answers": 3,
             "held_out": 2, "samples": 2, "batch": 8, "tokens": 16, "epochs": 1.0, "steps": 1,
             "group": 2, "target": "cpu", "small": True}  # fmt: skip
    return argparse.Namespace(**{**usual, **given})


def test_parts_are_joined_again_and_what_lacks_is_named(
    proof: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(range(25)))
    proof.split(file, proof.PARTS)
    assert proof.missing() == []
    assert proof.joined().read_bytes() == file.read_bytes()
    (proof.PARTS / "part-01" / "bytes").write_bytes(b"damaged")
    assert proof.missing() == ["part-01"]
    proof.advance(options(stage="unpack"))
    assert "unpack waits for: part-01" in capsys.readouterr().out


def test_data_is_written_while_parts_are_missing_and_the_rest_waits(
    proof: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def learn(words: list[str], left_s: float) -> bool:
        asked.append(words[0])
        return True

    monkeypatch.setattr(proof, "learn", learn)
    proof.advance(options())
    told = capsys.readouterr().out
    assert asked == ["dataset"]
    assert "unpack waits for: sums.txt" in told
    proof.advance(options(stage="rl"))
    assert asked == ["dataset"]
    assert "rl waits for: sums.txt" in capsys.readouterr().out
    assert "unpack waits for" in proof.LOG.read_text()
    with pytest.raises(SystemExit, match="no stage of"):
        proof.advance(options(stage="of"))


def test_every_stage_is_a_command_with_options_that_exist(proof: ModuleType) -> None:
    import typer

    group = typer.main.get_command(commands.app)
    for stage in proof.stages(options()):
        if stage.name == "unpack":
            continue
        name, *words = stage.words(300.0)
        command = group.commands[name]  # type: ignore[attr-defined]
        command.make_context(name, words)


def test_figures_and_what_is_brought(
    proof: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = {"value": 0.25, "low": 0.2, "high": 0.3}
    write(proof.HOME / "after-sft" / "report.json", {"scores": {"tasks": 2, "correct_at_1": share}})
    write(proof.HOME / "after-sft" / "gain.json", {"tasks": 2, "correct_at_1": share})
    write(proof.HOME / "after-sft" / "results.jsonl", {"verdicts": ["correct", "crashed"]})
    words = proof.figures(proof.HOME, "after-sft")
    assert "correct_at_1 25.0 % (20.0 to 30.0)" in words
    assert "gain of correct_at_1 25.0 %" in words
    assert "1 correct; 1 crashed" in words
    assert proof.figures(proof.HOME, "rl") == "no figures yet"
    step = {"of": 2, "seconds": 1.5, "loss": 2.0}
    write(proof.HOME / "sft" / "steps.jsonl", step)
    assert proof.figures(proof.HOME, "sft") == "1 of 2 steps in 2 s, loss 2.000 to 2.000"
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    proof.bring()
    with tarfile.open(tmp_path / "out" / "proof-0") as archive:
        assert "after-sft/gain.json" in archive.getnames()


def test_a_model_is_there_once_all_of_it_is_written(
    proof: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = iter([False, True])

    def learn(words: list[str], left_s: float) -> bool:
        folder = Path(words[words.index("--out") + 1])
        assert not folder.exists()
        write(folder / "config.json", {})  # as save_pretrained does, before the weights
        if whole := next(ends):
            write(folder / "model.safetensors", {})
        return whole

    file = proof.HOME / "model.file"
    write(file, {})
    proof.split(file, proof.PARTS)
    monkeypatch.setattr(proof, "learn", learn)
    proof.advance(options(stage="unpack"))
    assert not proof.MODEL.exists()
    proof.advance(options(stage="unpack"))
    assert "unpack is done" in capsys.readouterr().out
    assert sorted(path.name for path in proof.MODEL.iterdir()) == [
        "config.json", "model.safetensors",
    ]  # fmt: skip
    assert not (proof.HOME / "model.part").exists()


def test_a_half_adapter_without_weights_is_written_again(proof: ModuleType) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    adapter, half = proof.HOME / "sft" / "adapter", proof.HOME / "sft-half"
    write(adapter / "adapter_config.json", {})
    save_file({"a": torch.ones(3)}, adapter / "adapter_model.safetensors")
    half.mkdir()
    proof.halved(adapter, half)
    assert load_file(half / "adapter_model.safetensors")["a"].dtype is torch.bfloat16
    assert (half / "adapter_config.json").exists()
    assert [path.name for path in proof.HOME.iterdir() if "half" in path.name] == ["sft-half"]


@pytest.mark.parametrize(
    "step", [{"of": 2}, {"of": 2, "seconds": None, "loss": None}, 3, None, "of", []]
)
def test_half_written_or_older_lines_are_no_figures_and_stop_nothing(
    proof: ModuleType, step: object
) -> None:
    for stage, name in (("sft", "steps.jsonl"), ("rl", "steps.jsonl"), ("data", "summary.json"),
                        ("before", "report.json")):  # fmt: skip
        write(proof.HOME / stage / name, step)
        assert proof.figures(proof.HOME, stage) == "no figures yet"


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value) + "\n")
