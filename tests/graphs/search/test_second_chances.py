"""A right kernel that something holds back goes back to its writer once, with the reason."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright.graphs.search.agent_set
from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.llm.wrappers import ReplayingClient
from kernelwright.agents.toolbox.flaws import flaws, is_promising
from kernelwright.graphs.replay import replay
from kernelwright.graphs.search.agent_set import agents_by
from kernelwright.graphs.search.run import start_search
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Conditions,
    Evaluation,
    Measurement,
    Prompt,
    Reply,
    Task,
    TracePolicy,
    Verdict,
    Verification,
)
from kernelwright.tools.types.run import Summary

KERNEL = 'extern "C" void run(const float* x, float* y) {{ y[0] = x[0] + {number}.0f; }}\n'
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


def evaluation(ms: float, spill: int = 0, log: str = "", apart: str = "") -> Evaluation:
    conditions = Conditions(device="toy", l2_flushed=False, input_sets=1)
    return Evaluation(
        candidate="c",
        verification=Verification(verdict=Verdict.CORRECT, reason="", apart=apart),
        reports=(CompileReport(kernel="run", registers=255, spill_bytes=spill),),
        compiler_log=log,
        screen=Measurement(
            median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=conditions
        ),
    )


def test_a_flaw_is_named_with_its_figures() -> None:
    log = "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    log += "serialized due to insufficient register resources for the wgmma pipeline"
    spilled, waiting, late = flaws(evaluation(2.0, spill=96, log=log), 1.0)
    assert spilled == "`run` spills: 96 bytes go to memory and back with 255 registers a thread"
    assert "insufficient register resources" in waiting
    assert late == "it takes 2 ms, 2 times what was predicted (1 ms)"
    assert flaws(evaluation(1.2), 1.0) == ()
    wrong = Verification(verdict=Verdict.WRONG_RESULT, reason="off")
    assert flaws(Evaluation(candidate="c", verification=wrong), 1.0) == ()


def test_only_what_may_lead_is_promising() -> None:
    assert is_promising(evaluation(1.4), 1.0, None)
    assert not is_promising(evaluation(1.6), 1.0, None)
    assert is_promising(evaluation(9.0), 1.0, 0.5)
    assert not is_promising(evaluation(1.0, apart="half precision"), 1.0, None)


@dataclass
class Improving:
    """Plans one idea, writes it, and changes it when it is told what holds it back."""

    asked: list[Prompt] = field(default_factory=list)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if prompt.role == "planner":
            return Reply(text=json.dumps(IDEAS), model="scripted")
        if prompt.role != "coder":
            raise LLMError("nobody is there")
        kernel = KERNEL.format(number=len(self.asked))
        return Reply(text=f"```cpp\n// memory=streamed\n{kernel}```\n```python\n{PLAN}```")


@pytest.fixture(autouse=True)
def _toy_repertoire(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    repertoire = toy.ToyRepertoire(toy.LOOPS)
    module = kernelwright.graphs.search.agent_set
    monkeypatch.setattr(module, "_repertoire", lambda around: repertoire)


async def test_a_kernel_that_spills_is_worked_on_once_more_with_the_reason(
    toy: ModuleType, tmp_path: Path
) -> None:
    class Executor(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        def cost(self, candidate: Candidate) -> float:
            return 1.2

        async def evaluate(self, task: Task, candidate: Candidate, effort: str) -> Evaluation:
            found: Evaluation = await super().evaluate(task, candidate, effort)
            report = CompileReport(kernel="run", registers=255, spill_bytes=64)
            return found.model_copy(update={"reports": (report,)})

    profile = toy.PROFILE.model_copy(
        update={"rounds": 1, "repairs": 2, "candidates_per_idea": 1, "ideas_per_round": 1}
    )
    client = Improving()
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=Executor(),
        make_agents=agents_by(client),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    coder = [prompt for prompt in client.asked if prompt.role == "coder"]
    assert [prompt.key for prompt in coder] == ["coder:r1i1:0", "coder:r1i1:1"]
    told = coder[1].messages[-1].text
    assert "`run` spills: 64 bytes go to memory and back with 255 registers a thread" in told
    archive = Archive.open(summary.run, tmp_path)
    first, second = (item.candidate for item in archive.candidates())
    answers = ReplayingClient(archive.calls())
    archive.close()
    assert second.parents == (first.id,)
    again = await replay(summary.run, home=tmp_path, make_agents=agents_by(answers))
    assert again.difference is None
    assert not answers.reworded
