"""A model's coder in the whole graph: repairs are bounded, a person's kernel comes first."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.coder.coder import PlaybookCoder
from kernelwright.agents.coder.model import CODER, ModelCoder
from kernelwright.agents.planner.model import PLANNER
from kernelwright.agents.planner.planner import PlannerInput, Proposal
from kernelwright.agents.roles import AgentSet
from kernelwright.agents.shared.facts import Start
from kernelwright.graphs.replay import replay
from kernelwright.graphs.search.context import Circumstances, MakeAgents
from kernelwright.graphs.search.options.run_terms import start_of
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import (
    Candidate,
    Idea,
    LanguageName,
    Prompt,
    Refusal,
    Reply,
    TracePolicy,
    Verdict,
)
from kernelwright.tools.types.run import Summary

KERNEL = """// memory=streamed
// tune: THREADS in 64, 128, 256
// tune: VECTOR in 1, 2, 4
extern "C" void run(const float* x, float* y) {{ /* {number} */ }}
"""
PLAN = "def forward(x):\n    y = empty_like(x)\n    launch('run', args=(x, y))\n    return y\n"


class OneIdea:
    async def plan(self, planner_input: PlannerInput) -> Proposal:
        idea = Idea(
            id=f"r{planner_input.round}i1", title="Mine", mechanism="words", reason="words",
            category="memory", metric="ms", round=planner_input.round, origin="model",
        )  # fmt: skip
        return Proposal(ideas=(idea,), reasoning="")


class CountingClient:
    """Writes another kernel each time it is asked."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.keys.append(prompt.key)
        kernel = KERNEL.format(number=len(self.keys))
        return Reply(text=f"```cpp\n{kernel}```\n```python\n{PLAN}```")


@pytest.fixture
def client() -> CountingClient:
    return CountingClient()


@pytest.fixture
def model_agents(toy: ModuleType, client: CountingClient) -> MakeAgents:
    def make(around: Circumstances) -> AgentSet:
        repertoire = toy.ToyRepertoire(toy.LOOPS)
        coder = ModelCoder(
            client, around.task, around.hardware, PlaybookCoder(repertoire), repertoire,
            start_of(around.archive),
        )  # fmt: skip
        agents: AgentSet = toy.toy_agents(toy.LOOPS)
        return agents.replaced(PLANNER, OneIdea()).replaced(CODER, coder)

    return make


def always(verdict: Verdict) -> Callable[[Candidate, str], Verdict]:
    return lambda candidate, effort: verdict


async def test_a_models_repairs_are_bounded_and_each_is_another_question(
    toy: ModuleType, client: CountingClient, model_agents: MakeAgents, tmp_path: Path
) -> None:
    profile = toy.PROFILE.model_copy(
        update={"rounds": 1, "repairs": 2, "candidates_per_idea": 1, "patience": 9}
    )
    executor = toy.ToyExecutor(wrong=always(Verdict.WRONG_RESULT))
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=executor,
        make_agents=model_agents,
    )  # fmt: skip
    assert isinstance(summary, Summary)
    assert client.keys == ["coder:r1i1:0", "coder:r1i1:1", "coder:r1i1:2"]
    archive = Archive.open(summary.run, tmp_path)
    written = [item.candidate for item in archive.candidates()]
    archive.close()
    assert [item.parents for item in written] == [(), (written[0].id,), (written[1].id,)]


async def test_a_persons_kernel_is_the_first_idea_and_is_known_after_a_resume(
    toy: ModuleType, tmp_path: Path
) -> None:
    start = Start(language="cpp", kernel=KERNEL.format(number=0), plan=PLAN, name="mine.cpp")
    profile = toy.PROFILE.model_copy(update={"rounds": 1})

    class Executor(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        def cost(self, candidate: Candidate) -> float:
            return 0.9 if candidate.origin == "person" else float(super().cost(candidate))

    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=Executor(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS), start=start,
    )  # fmt: skip
    assert isinstance(summary, Summary)
    archive = Archive.open(summary.run, tmp_path)
    ideas = [idea.id for idea in archive.ideas(1)]
    assert start_of(archive) == start
    assert ideas[0] == "r1i0"
    assert len(set(ideas)) == len(ideas)
    entry = next(item for item in archive.ledger() if item.idea == "r1i0")
    assert entry.correct == entry.candidates >= 1
    assert entry.measured_ms == 0.9
    archive.close()
    again = await resume_search(
        summary.run, home=tmp_path, rounds=2, executor=Executor(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )  # fmt: skip
    assert isinstance(again, Summary)
    assert again.rounds == 2
    replayed = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert replayed.difference is None


async def test_a_bare_kernel_is_wrapped_by_the_model(
    toy: ModuleType, client: CountingClient, model_agents: MakeAgents, tmp_path: Path
) -> None:
    start = Start(language="cpp", kernel="void mine() {}\n", name="mine.cpp")
    profile = toy.PROFILE.model_copy(update={"rounds": 1, "repairs": 0, "candidates_per_idea": 1})
    executor = toy.ToyExecutor(wrong=always(Verdict.WRONG_RESULT))
    await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=executor,
        make_agents=model_agents, start=start,
    )  # fmt: skip
    assert sorted(client.keys) == ["coder:r1i0:0", "coder:r1i1:0"]


TWO_KERNELS = 'extern "C" void one(float* y) {}\nextern "C" void other(float* y) {}\n'


@pytest.mark.parametrize(
    ("language", "kernel", "plan", "words"),
    [
        ("cuda", KERNEL.format(number=0), PLAN, "takes cpp"),
        ("cpp", TWO_KERNELS, "", "has no plan, and it exports one, other"),
    ],
)
async def test_a_kernel_that_cannot_be_used_is_refused_in_a_sentence(
    toy: ModuleType, tmp_path: Path, language: LanguageName, kernel: str, plan: str, words: str
) -> None:
    start = Start(language=language, kernel=kernel, plan=plan, name="mine")
    answer = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path,
        executor=toy.ToyExecutor(), start=start,
    )  # fmt: skip
    assert isinstance(answer, Refusal)
    assert words in answer.sentence
