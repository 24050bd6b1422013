"""The commands of the recipe one after the other, on a tiny model and an executor that reads."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.contract.prompts import question
from kernelwright.tools.learning.data.dataset import write
from kernelwright.tools.learning.data.records import Attempt, Problem, Provenance
from kernelwright.tools.learning.judging import Judge
from kernelwright.tools.learning.training.rl import RlSettings
from kernelwright.tools.learning.writing.families import LEARNT
from kernelwright.tools.types import Verdict
from kernelwright.ui.cli.app import run
from kernelwright.ui.cli.learn.train import own_tasks

WITHOUT = [name for name in ("peft", "transformers") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(bool(WITHOUT), reason="the extra [learn] is not installed"),
]
ANSWER = """```cuda
// launch: run grid=1 block=32 args=x,scale,out
extern "C" __global__ void run(const float* x, const float* s, float* out) { // ms=2
}
```"""


@pytest.fixture
def judged(reading: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands judge by the toy executor."""

    @asynccontextmanager
    async def judging(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        judge = Judge(reading, "cuda")
        yield SimpleNamespace(judge=judge, executor=reading, device="toy")

    for name in ("train", "evaluate"):
        monkeypatch.setattr(f"kernelwright.ui.cli.learn.{name}.judging", judging)


def test_from_a_data_set_to_a_served_model(
    problem: Problem,
    toy: SimpleNamespace,
    judged: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = question(problem.task, interface(problem.task), "cuda")
    toy.save_tiny(tmp_path / "model", [ANSWER, *(turn.content for turn in asked)])
    known = Attempt(
        id="a", task=problem.key, family="relu", contract="short", language="cuda",
        question=asked, answer=ANSWER, verdict=Verdict.CORRECT, speedup=2.0,
        provenance=Provenance(source="playbook"),
    )  # fmt: skip
    held = problem.model_copy(update={"key": "held", "family": "gated"})
    data, model = str(tmp_path / "data"), ["--model", str(tmp_path / "model")]
    write(tmp_path / "data", [known], [problem, held], share=0.0, always=("gated",), seed=0)

    def learn(*words: str) -> str:
        assert run(["learn", *words]) == 0
        return capsys.readouterr().out

    def out(name: str) -> list[str]:
        return ["--out", str(tmp_path / name)]

    learn("sft", "--data", data, *model, *out("sft"), "--steps", "2", "--batch", "1")
    adapter = ["--adapter", str(tmp_path / "sft" / "adapter")]
    few = ["--tokens", "8", "--samples", "2"]
    told = learn("sample", "--data", data, *model, *adapter, *out("more"), *few)
    assert "0 of 2 answers are right" in told
    assert (tmp_path / "more" / "held_out.jsonl").read_text()
    steps = ["--steps", "1", "--group", "2", "--tasks", "1", "--tokens", "8"]
    told = learn("rl", "--data", data, *model, *adapter, *out("rl"), *steps)
    assert (tmp_path / "rl" / "curves.svg").read_text().count("<polyline") == 7
    assert "rl/adapter" in told
    assert "own/adapter" in learn(
        "rl", "--data", data, *model, *adapter, *out("own"), *steps, "--write", "3"
    )
    learn("evaluate", "--data", data, *model, *out("before"), *few)
    trained = ["--adapter", str(tmp_path / "rl" / "adapter")]
    told = learn(
        "evaluate", "--data", data, *model, *trained, *out("after"), *few,
        "--against", str(tmp_path / "before"),
    )  # fmt: skip
    assert "gain of correct@1 over 1 task: 0.0%" in told
    assert (tmp_path / "after" / "gain.json").is_file()
    told = learn("serve", *model, *trained, *out("merged"))
    assert f"vllm serve {tmp_path}/merged" in told
    assert run(["learn", "rl", "--data", data, *model, *out("rl"), "--group", "4"]) == 2
    assert "holds a training with" in capsys.readouterr().err
    assert run(["learn", "sft", "--data", data, "--model", data, *out("x")]) == 2
    assert "there is no model in" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_reinforcement_draws_tasks_that_the_data_set_does_not_have() -> None:
    settings = RlSettings(data="data", model="model", written=5)
    drawn = asyncio.run(own_tasks(settings, ()))
    assert len(drawn) == 5
    assert {problem.family for problem in drawn} <= set(LEARNT)
    first, second, *others = drawn
    assert asyncio.run(own_tasks(settings, (first.key, second.key))) == others
