"""A scripted model calls every tool of every role, badly and well, in 200 turns: nothing breaks."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernelwright.agents.coder.coder import CoderRequest
from kernelwright.agents.coder.tools import DraftDesk
from kernelwright.agents.llm.client import tokens_in
from kernelwright.agents.llm.tool_loop import LooseBook, ToolClient, ToolLimits
from kernelwright.agents.llm.tools import Tool
from kernelwright.agents.toolbox.history import HistoryDesk
from kernelwright.agents.toolbox.readings import ReadingDesk
from kernelwright.agents.toolbox.workbench import Workbench
from kernelwright.profiles.load import Hardware, all_hardware, search_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.recorded import RecordedExecutor
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Candidate,
    DType,
    Effort,
    Evaluation,
    Graph,
    Idea,
    InputSpec,
    Message,
    Node,
    Profile,
    Prompt,
    Ref,
    Reply,
    Task,
    TensorSpec,
    ToolCall,
    TracePolicy,
    Verdict,
    Verification,
)
from kernelwright.tools.types.run import TokenCounts

KERNEL = """extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("twice", grid=ceil_div(x.numel(), 256), block=256, args=(x, y, x.numel()))
    return y
"""
IDEA = Idea(
    id="r1i1", title="t", mechanism="m", reason="r", category="memory", metric="bytes", round=1,
    origin="model",
)  # fmt: skip
NAMES = ("compile", "machine_code", "check", "time", "kernel_times", "counters", "hot_lines",
         "compare", "what_worked", "floor")  # fmt: skip
BROKEN = (
    "", "{", "null", "[]", "[[[[", "not json", '"text"', "{'kernel': 1}", '{"kernel": null}',
    '{"candidate": {"id": 1}}', '{"candidate": "v999999999999"}', '{"faster": "v1"}',
    '{"kernel": "' + "x" * 20_000 + '"}', '{"names": ["a"]}', '{"\\ud800": 1}', "\x00\x07",
    '{"plan": "import os"}', '{"words": "' + "a " * 3000 + '"}', "{" * 3000, "-1e999", "NaN",
)  # fmt: skip
UNKNOWN = ("", "rm -rf /", "compile ", "COMPILE", "functions.compile", "🔥", "a" * 5000, "run\nit")


@dataclass
class Adversary:
    """Calls tools as it likes: known and unknown, well and badly, natively and in words."""

    dice: random.Random
    known: tuple[str, ...]
    asked: list[Prompt] = field(default_factory=list)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        tokens = TokenCounts(input=50, output=50)
        calls = tuple(self._call() for _ in range(self.dice.choice((0, 1, 1, 1, 2, 40))))
        text = self.dice.choice(("", "Let me see.", "x" * 20_000, "```cpp\n"))
        if calls and self.dice.random() < 0.3:
            call = calls[0]
            return Reply(text=_written(call, self.dice), tokens=tokens)
        return Reply(text=text or "done" if not calls else text, calls=calls, tokens=tokens)

    def _call(self) -> ToolCall:
        if self.dice.random() < 0.2:
            return ToolCall(name=self.dice.choice(UNKNOWN), arguments=self.dice.choice(BROKEN))
        name = self.dice.choice(NAMES)
        if self.dice.random() < 0.5:
            return ToolCall(name=name, arguments=self.dice.choice(BROKEN))
        good: dict[str, dict[str, str]] = {
            "compile": {"kernel": KERNEL, "plan": PLAN},
            "machine_code": {"kernel": KERNEL, "plan": PLAN},
            "compare": {"faster": self.known[0], "slower": self.known[1]},
            "what_worked": {"words": ""},
            "floor": {},
        }
        given = good.get(name, {"candidate": self.dice.choice(self.known)})
        return ToolCall(name=name, arguments=json.dumps(given))


def _written(call: ToolCall, dice: random.Random) -> str:
    body = f'{{"name": "{call.name[:40]}", "arguments": {call.arguments}}}'
    return dice.choice((f"<tool_call>{body}</tool_call>", f"<tool_call>{body}", body))


class Breaking(RecordedExecutor):
    """Judges every other candidate, and breaks on the others."""

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        if "3.0f" in candidate.kernel:
            raise RuntimeError("a judge of ours has a bug")
        found = Verification(verdict=Verdict.WRONG_RESULT, reason="it is off at 7")
        return Evaluation(candidate=candidate.id, verification=found)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    device = next(item for item in all_hardware().values() if item.architecture == "sm_90a")
    return make_bench(tmp_path, device)


def make_bench(home: Path, device: Hardware) -> Workbench:
    spec = TensorSpec(shape=(64, 33), dtype=DType.FLOAT32)
    nodes = (
        Node(name="x", op="input", out=(spec,)),
        Node(name="y", op="aten.mul.Tensor", args=(Ref(node="x"), Ref(node="x")), out=(spec,)),
    )
    task = Task(
        name="twice", path="t.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=spec),), outputs=(spec,),
        graph=Graph(nodes=nodes, inputs=("x",), outputs=("y",)), bytes_moved=1, flops=1,
    )  # fmt: skip
    archive = Archive.create(
        home, task, policy=TracePolicy(), profile=search_profile("quick"), hardware=device
    )
    one = new_candidate("cuda", KERNEL, PLAN)
    other = new_candidate("cuda", KERNEL.replace("2.0f", "3.0f"), PLAN)
    archive.record_candidates((one, other), 1)

    async def fails(candidate: Candidate) -> Profile:
        raise RuntimeError("a profiler of ours has a bug")

    return Workbench(task, device, 0.1, archive, Breaking(archive, archive), fails, home)


def every_tool(bench: Workbench) -> tuple[Tool, ...]:
    desk = DraftDesk(bench, CoderRequest(idea=IDEA, count=1, round=1), "cuda")
    return (*desk.tools(), *ReadingDesk(bench).tools(), *HistoryDesk(bench).tools())


@pytest.mark.parametrize("turns", [40, pytest.param(200, marks=pytest.mark.exhaustive)])
async def test_turns_in_which_every_tool_is_called_badly_and_well_break_nothing(
    bench: Workbench, turns: int
) -> None:
    tools = every_tool(bench)
    assert sorted(item.name for item in tools) == sorted(NAMES)
    known = tuple(item.candidate.id for item in bench.archive.candidates())
    adversary, book = Adversary(random.Random(7), known), LooseBook()
    limits, question = ToolLimits(calls=12), 0
    while len(adversary.asked) < turns:
        words = (Message(author="system", text="S"), Message(author="person", text="Q?"))
        prompt = Prompt(key=f"coder:r1i{question}:0", role="coder", messages=words, round=1)
        reply = await ToolClient(adversary, tools, book, limits=limits).say(prompt)
        assert isinstance(reply, Reply)
        question += 1
    called = Counter(run.tool for run in book.runs.values())
    assert set(NAMES) <= set(called)
    assert any(run.failed for run in book.runs.values())
    assert any(not run.failed for run in book.runs.values())
    for prompt in adversary.asked:
        Prompt.model_validate_json(prompt.model_dump_json())
        # What one answer may add goes beyond the limit, and nothing more.
        assert tokens_in(prompt) < limits.prompt_tokens + 40_000
    for run in book.runs.values():
        assert len(run.result) <= limits.result_characters + 40
