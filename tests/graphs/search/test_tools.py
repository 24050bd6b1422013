"""Roles that call tools in a whole search: what is run, told, kept, and the same in a replay."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright.graphs.search.agent_set
from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.llm.wrappers import ReplayingClient
from kernelwright.graphs.replay import replay
from kernelwright.graphs.run_view.events import Event, ToolCalled
from kernelwright.graphs.search.agent_set import agents_by
from kernelwright.graphs.search.run import start_search
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Candidate, Prompt, Reply, ToolCall, TracePolicy
from kernelwright.tools.types.run import Summary

KERNEL = """extern "C" void run(const float* x, float* y) { y[0] = x[0] + 3.0f; }
"""
PLAN = "def forward(x):\n    y = empty_like(x)\n    launch('run', args=(x, y))\n    return y\n"
IDEAS = {
    "reasoning": "one pass",
    "ideas": [
        {
            "title": "One pass", "mechanism": "adds in one pass", "reason": "fewer bytes",
            "category": "fusion", "metric": "bytes: 2x -> 1x", "predicted_ms": 1.0,
        }
    ],
}  # fmt: skip


def called(name: str, **arguments: str) -> Reply:
    return Reply(text="", calls=(ToolCall(name=name, arguments=json.dumps(arguments)),))


@dataclass
class Coding:
    """Plans one idea; codes it after it tried a broken draft and a good one."""

    asked: list[Prompt] = field(default_factory=list)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if prompt.role == "planner":
            return Reply(text=json.dumps(IDEAS), model="scripted")
        if prompt.role != "coder":
            raise LLMError("nobody is there")
        step = prompt.key.rpartition(":tools:")[2] if ":tools:" in prompt.key else "0"
        broken = KERNEL.replace("3.0f", "three")
        calls = {
            "0": called("compile", kernel=broken, plan=PLAN),
            "1": called("check", kernel=KERNEL),
            "2": called("time"),
        }
        whole = f"```cpp\n// memory=streamed\n{KERNEL}```\n```python\n{PLAN}```"
        return calls.get(step, Reply(text=whole, model="scripted"))


@pytest.fixture(autouse=True)
def _toy_repertoire(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    repertoire = toy.ToyRepertoire(toy.LOOPS)
    module = kernelwright.graphs.search.agent_set
    monkeypatch.setattr(module, "_repertoire", lambda around: repertoire)


async def test_a_coder_tries_drafts_with_tools_and_a_replay_runs_nothing(
    toy: ModuleType, tmp_path: Path
) -> None:
    class Executor(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        def cost(self, candidate: Candidate) -> float:
            return 1.25

    profile = toy.PROFILE.model_copy(
        update={"rounds": 1, "repairs": 0, "candidates_per_idea": 1, "ideas_per_round": 1}
    )
    events: list[Event] = []
    client, executor = Coding(), Executor()
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=executor,
        make_agents=agents_by(client), listener=events.append,
    )  # fmt: skip
    assert isinstance(summary, Summary)
    runs = [item.run for item in events if isinstance(item, ToolCalled)]
    assert [(run.key, run.tool, run.failed) for run in runs] == [
        ("coder:r1i1:0#1", "compile", False),
        ("coder:r1i1:0#2", "check", False),
        ("coder:r1i1:0#3", "time", False),
    ]
    assert "does not compile" in runs[0].result
    assert "three" in runs[0].result
    assert "`draft-2` is right" in runs[1].result
    assert "1.25 ms" in runs[2].result

    before = len(executor.asked)
    archive = Archive.open(summary.run, tmp_path)
    answers = ReplayingClient(archive.calls())
    archive.close()
    again = await replay(summary.run, home=tmp_path, make_agents=agents_by(answers))
    assert again.difference is None
    assert again.same > 3
    assert not answers.reworded
    assert len(executor.asked) == before


async def test_a_search_may_do_without_tools(toy: ModuleType, tmp_path: Path) -> None:
    profile = toy.PROFILE.model_copy(update={"rounds": 1, "without": ("tools",)})
    client = Coding()
    await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path,
        executor=toy.ToyExecutor(), make_agents=agents_by(client),
    )  # fmt: skip
    assert client.asked
    assert not any(prompt.tools for prompt in client.asked)
