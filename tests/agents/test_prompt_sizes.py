"""Every prompt of a search for a GPU: within 24,000 tokens, and without advice for a CPU."""

import re
from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel

from kernelwright.agents.coder.coder import CoderRequest, Failure, PlaybookCoder
from kernelwright.agents.coder.model import ModelCoder
from kernelwright.agents.critic.critic import CriticInput, PlaybookCritic
from kernelwright.agents.critic.model import ModelCritic
from kernelwright.agents.llm.client import LLMError, tokens_in
from kernelwright.agents.llm.tool_loop import LooseBook, ToolClient
from kernelwright.agents.llm.tools import Tool, tool
from kernelwright.agents.planner.model import ModelPlanner
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.profiler.profiler import ModelProfiler, PlaybookProfiler
from kernelwright.agents.prompting.fitting import MOST_TOKENS, fitted
from kernelwright.agents.strategist.strategist import first
from kernelwright.profiles.load import Hardware, all_hardware
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    CompileReport,
    Conditions,
    DType,
    Evaluation,
    Graph,
    Idea,
    InputSpec,
    LedgerEntry,
    Measurement,
    Message,
    Node,
    Prompt,
    Ref,
    Reply,
    Task,
    TensorSpec,
    Verdict,
    Verification,
)

SPEC = TensorSpec(shape=(4096, 1024), dtype=DType.FLOAT32)
# Long enough that two of them are more than a prompt may be.
PADDING = "".join(f"    // line {number} of a long kernel\n" for number in range(1400))
KERNEL = """// memory=streamed
extern "C" __global__ void run(const float* x, float* y, int n) {{
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * {number}.0f;
{padding}}}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("run", grid=1, block=256, args=(x, y, 256))
    return y
"""
OF_A_CPU = re.compile(
    r"OpenMP|#pragma omp|kw::lanes|kernelwright\.hpp|AVX|page fault|On a CPU|-march=native|vectoris"
)


ABOUT = "What it does, in two sentences of usual length. " * 3


class Anything(BaseModel):
    words: str = ""


@dataclass
class Silent:
    """Keeps what it is asked, and never answers."""

    asked: list[Prompt] = field(default_factory=list)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        raise LLMError("nobody answers")


def long_task() -> Task:
    nodes = [Node(name="x", op="input", out=(SPEC,))]
    for number in range(120):
        before = Ref(node=nodes[-1].name)
        nodes.append(Node(name=f"n{number}", op="aten.relu.default", args=(before,), out=(SPEC,)))
    return Task(
        name="long", path="long.py", source="# a line of the module\n" * 900, source_sha256="0",
        entry="Model", entry_kind="module", inputs=(InputSpec(name="x", tensor=SPEC),),
        outputs=(SPEC,), bytes_moved=2 * SPEC.size_bytes, flops=SPEC.numel,
        graph=Graph(nodes=tuple(nodes), inputs=("x",), outputs=(nodes[-1].name,)),
    )  # fmt: skip


def standing(number: int, *, verdict: Verdict = Verdict.CORRECT) -> Standing:
    candidate = new_candidate(
        "cuda", KERNEL.format(number=number, padding=PADDING), PLAN, idea=f"r1i{number}",
        origin="model", strategies=("memory=streamed",),
    )  # fmt: skip
    conditions = Conditions(device="toy", l2_flushed=False, input_sets=1)
    ms = 0.1 * number
    screen = Measurement(
        median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=conditions
    )
    return Standing(
        number=number, candidate=candidate, round=1, author="coder", effort="screen",
        evaluation=Evaluation(
            candidate=candidate.id, verification=Verification(verdict=verdict, reason="off"),
            reports=(CompileReport(kernel="run", registers=255, spill_bytes=64),),
            screen=screen if verdict is Verdict.CORRECT else None,
            compiler_log="kernel.cu(3): error: something\n" * 400,
        ),
    )  # fmt: skip


def an_idea(number: int, parent: str | None = None) -> Idea:
    return Idea(
        id=f"r1i{number}", title=f"idea {number}", mechanism="words " * 60, reason="words " * 30,
        category="memory", metric="bytes", predicted_ms=1.0, round=1, origin="model", parent=parent,
    )  # fmt: skip


@pytest.fixture
def h200() -> Hardware:
    return next(item for item in all_hardware().values() if item.name.endswith("H200"))


@pytest.fixture
async def asked(h200: Hardware) -> list[Prompt]:
    """The prompts of all roles, with everything in them as long as it gets."""
    client, task = Silent(), long_task()
    repertoire = repertoire_for(task, h200)
    fallback = PlaybookCoder(repertoire)
    right = tuple(standing(number) for number in range(1, 24))
    wrong = standing(24, verdict=Verdict.COMPILE_ERROR)
    ideas = tuple(an_idea(number) for number in range(1, 24))
    ledger = tuple(
        LedgerEntry(
            idea=idea.id, category="memory", predicted_ms=1.0, measured_ms=1.0,
            best_before_ms=1.5, candidates=1, correct=1, round=1,
        )
        for idea in ideas
    )  # fmt: skip
    coder = ModelCoder(client, task, h200, fallback, repertoire)
    request = CoderRequest(
        idea=an_idea(30, parent=right[0].candidate.id), count=2, round=2, parents=right[:3],
        written=tuple(item.candidate for item in right), judged=right, strategy=first("coder"),
    )  # fmt: skip
    await coder.write(request)
    for item, flaw in ((wrong, ""), (right[0], "`run` spills: 64 bytes")):
        failure = Failure(candidate=item.candidate, evaluation=item.evaluation, flaw=flaw)
        await coder.repair(request, failure)
    planner = ModelPlanner(client, task, h200, PlaybookPlanner(repertoire), repertoire)
    planner_input = PlannerInput(
        round=2, rounds=4, wanted=3, floor_ms=0.01, best=right[0], parents=right[:3], tried=ideas,
        ledger=ledger, standings=right, strategy=first("planner"),
    )  # fmt: skip
    await planner.plan(planner_input)
    critic_input = CriticInput(
        round=2, standings=right, ideas=ideas, ledger=ledger, task=task, hardware=h200,
        floor_ms=0.01,
    )  # fmt: skip
    await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    profiler = ModelProfiler(client, PlaybookProfiler())
    one = right[0]
    await profiler.profile(one.candidate, one.evaluation, task, h200, closely=True, round=2)
    return client.asked


async def test_every_prompt_fits_and_speaks_of_gpus_only(asked: list[Prompt]) -> None:
    roles = [prompt.role for prompt in asked]
    assert roles == ["coder", "coder", "coder", "planner", "critic", "profiler"]
    for prompt in asked:
        assert tokens_in(prompt) <= MOST_TOKENS, prompt.key
        text = "\n".join(message.text for message in prompt.messages)
        assert not (found := OF_A_CPU.search(text)), (prompt.key, found)


async def test_what_was_left_out_is_said_and_the_example_stays(asked: list[Prompt]) -> None:
    text = asked[0].messages[-1].text
    assert "lines are left out here" in text
    assert "map_load" in asked[0].messages[0].text
    assert "Fast: `" in text


async def test_tools_stand_within_the_same_bound(asked: list[Prompt]) -> None:
    async def run(given: Anything) -> str:
        return ""

    tools: tuple[Tool, ...] = tuple(
        tool(f"tool_{number}", ABOUT, Anything, run) for number in range(4)
    )
    client = Silent()
    with pytest.raises(LLMError):
        await ToolClient(client, tools, LooseBook()).say(asked[0])
    assert tokens_in(client.asked[0]) <= MOST_TOKENS


def test_standing_words_are_never_shortened() -> None:
    long = "x\n" * 60_000
    messages = (
        Message(author="system", text=f"```\n{long}```"),
        Message(author="person", text=f"Before.\n\n```cuda\n{long}```\n\nBehind."),
    )
    system, person = fitted(messages)
    assert system == messages[0]
    assert person.text.startswith("Before.\n\n```cuda\nx\n")
    assert person.text.endswith("x\n```\n\nBehind.")
    assert len(person.text) < 2_000
