"""Which cluster is meant at the command line, and how one is told of; nothing is started."""

from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.cluster.messages import Ground, Seen
from kernelwright.ui.cli.app import run
from kernelwright.ui.cli.cluster import chosen_cluster, told


def test_a_suite_is_asked_of_every_kind_of_device_that_is_named() -> None:
    found = chosen_cluster("ray", "L40S, H200", "head:6379", "auto")
    assert found == Ground(address="head:6379", kinds=("L40S", "H200"))
    assert chosen_cluster("ray", None, None, "cpu") == Ground(kinds=("cpu",))
    assert chosen_cluster("local", None, None, "auto") is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--cluster", "head:6379"], "--cluster needs --executor ray"),
        (["--executor", "batch"], "a suite is run by the executor local or ray, not 'batch'"),
        (["--executor", "ray", "--target", "cpu", "--gpu", "H200"], "--target is cpu"),
        (["--executor", "ray", "--target", "cpu", "--gpus", "all"], "--gpus names GPUs"),
    ],
)
def test_what_contradicts_itself_is_said(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "1.py").write_text("")
    assert run(["bench", str(tmp_path), *given]) == 2
    assert words in capsys.readouterr().err


def test_joining_without_a_token_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert run(["cluster", "status", "--cluster", "head:6379"]) == 3
    assert "head:6379 needs the cluster's token" in capsys.readouterr().err


def test_devices_are_listed_by_kind_once() -> None:
    seen = Seen(kinds={"H200": 8, "gpu": 8, "cpu": 1}, nodes=("a (10.0.0.1): 8 H200",))
    assert told(seen) == ["a (10.0.0.1): 8 H200", "devices: 8 H200, 1 cpu"]
    assert told(Seen(kinds={}, nodes=()))[-1] == "devices: none"
