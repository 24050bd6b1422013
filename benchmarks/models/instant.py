"""A model and a judge that answer at once, and watches around those who wait for them.

The answers are of the usual length and in the form that the prompts ask for, so that reading them
costs what it costs in a run. What is not covered: malformed answers and faults, which
`benchmarks/models/faults.py` is for.
"""

import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from thousand import Thousand, baselines, hash_of

from kernelwright.agents.coder.coder import PlaybookCoder
from kernelwright.agents.coder.model import ModelCoder
from kernelwright.agents.critic.critic import PlaybookCritic
from kernelwright.agents.critic.model import ModelCritic
from kernelwright.agents.llm.wrappers import RecordingClient
from kernelwright.agents.planner.model import ModelPlanner
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.profiler.profiler import ModelProfiler, PlaybookProfiler
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.run_view.events import ModelCalled
from kernelwright.graphs.search.context import Circumstances
from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.library.kernel_library import PlaybookRepertoire
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import (
    Baselines,
    Call,
    Candidate,
    Evaluation,
    Profile,
    Prompt,
    Refusal,
    Reply,
    Task,
    TracePolicy,
)
from kernelwright.tools.types.run import TokenCounts

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LABELS = "// memory=rows in shared memory\n// compute=plain\n// parallel=block per row\n"


@dataclass
class Asked:
    """One question: seconds from the call of the mind to it, and from its answer on."""

    role: str
    characters: int
    prompt_s: float
    parse_s: float = 0.0


@dataclass
class InstantClient:
    """Answers each role with something that it can use."""

    repertoire: PlaybookRepertoire
    asked: list[Asked] = field(default_factory=list)
    began: dict[str, float] = field(default_factory=dict)
    dice: random.Random = field(default_factory=lambda: random.Random(7))

    async def say(self, prompt: Prompt) -> Reply:
        """The answer."""
        text = {"planner": self._ideas, "coder": self._candidates,
                "critic": self._contrast, "profiler": self._bound}[prompt.role]()  # fmt: skip
        now = time.perf_counter()
        characters = sum(len(message.text) for message in prompt.messages)
        self.asked.append(Asked(prompt.role, characters, now - self.began[prompt.role]))
        tokens = TokenCounts(input=characters // 4, output=len(text) // 4)
        reply = Reply(text=text, reasoning="thinking " * 300, model="instant", tokens=tokens)
        self.began[prompt.role] = time.perf_counter()
        return reply

    def finished(self, role: str) -> None:
        """The mind has handed its answer on."""
        last = next((item for item in reversed(self.asked) if item.role == role), None)
        if last is not None and not last.parse_s:
            last.parse_s = time.perf_counter() - self.began[role]

    def _word(self) -> str:
        return "".join(self.dice.choices(LETTERS, k=7))

    def _ideas(self) -> str:
        ideas = [
            {
                "title": " ".join(self._word() for _ in range(4)),
                "mechanism": " ".join(self._word() for _ in range(60)),
                "reason": "it moves 32 MB once " * 8, "category": "memory",
                "metric": "bytes read: 2.0x -> 1.0x of the input", "predicted_ms": 0.1,
                "risk": "registers may spill",
            }
            for _ in range(4)
        ]  # fmt: skip
        return json.dumps({"reasoning": "the input is read twice " * 20, "ideas": ideas})

    def _candidates(self) -> str:
        options = self.repertoire.options()
        option = options[self.dice.randrange(len(options))]
        draft = self.repertoire.draft({option.loop: option.strategy.name})
        fence = self.repertoire.language
        whole = [
            f"```{fence}\n{LABELS}// {self._word()}\n{draft.kernel}```\n"
            f"```python\n{draft.plan}```\n"
            for _ in range(2)
        ]
        return "This keeps the row where it is.\n" + "\n".join(whole)

    def _contrast(self) -> str:
        words = "the faster one keeps its row in shared memory, so it is read once"
        claim = {"words": words, "faster": "K1", "slower": "K2",
                 "numbers": ["K1.screen_ms=0.08", "K2.screen_ms=0.2"]}  # fmt: skip
        step = {"words": words, "attribute": "memory", "value": "rows in shared memory",
                "below_ms": 0.1, "metric": "registers", "metric_to": 64}  # fmt: skip
        return json.dumps({"explains": [claim] * 3, "implies": words, "next": [step] * 3})

    def _bound(self) -> str:
        return json.dumps({"words": "memory bandwidth bounds it", "numbers": ["K1.registers=64"]})


class TimedAgent:
    """Notes when its mind was called and when it was done."""

    def __init__(self, inner: object, client: InstantClient, role: str) -> None:
        self._inner, self._client, self._role = inner, client, role

    def __getattr__(self, name: str) -> object:
        """The mind's method of that name, watched."""
        method = getattr(self._inner, name)

        async def timed(*given: object, **named: object) -> object:
            self._client.began[self._role] = time.perf_counter()
            try:
                return await method(*given, **named)
            finally:
                self._client.finished(self._role)

        return timed


def minds_of(
    around: Circumstances, client: InstantClient, repertoire: PlaybookRepertoire
) -> AgentSet:
    """The model's minds over the playbook's, as in a run, their calls recorded."""

    def told(call: Call) -> None:
        reply = call.reply or Reply(text="")
        around.emit(
            ModelCalled(
                key=call.prompt.key,
                role=call.prompt.role,
                model=reply.model,
                tokens=reply.tokens,
                reasoning=reply.reasoning,
                round=call.prompt.round,
            )
        )

    book = RecordingClient(client, around.archive, told)
    known = book, around.task, around.hardware
    agents = {
        "planner": ModelPlanner(*known, PlaybookPlanner(repertoire), repertoire),
        "coder": ModelCoder(*known, PlaybookCoder(repertoire), repertoire),
        "profiler": ModelProfiler(book, PlaybookProfiler()),
        "critic": ModelCritic(book, PlaybookCritic()),
    }
    timed = {role: TimedAgent(agent, client, role) for role, agent in agents.items()}
    return AgentSet({"strategist": None, **timed})


@dataclass
class InstantExecutor(Executor):
    """Judges as the crowd's judge does, at once."""

    crowd: Thousand
    isolation: str = "none"

    async def hardware(self) -> Hardware:
        """The crowd's device."""
        return self.crowd.hardware

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """The crowd's task."""
        return self.crowd.task

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines:
        """The crowd's."""
        return baselines()

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Nothing to remember."""

    async def evaluate(self, task: Task, candidate: Candidate, effort: str) -> Evaluation:
        """A verdict by the candidate's id."""
        precise = effort != "screen" and bool(hash_of(candidate.id) % 8)
        return self.crowd.evaluation(candidate, precise=precise)

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """No device, no counters."""
        return Profile(candidate=candidate.id)

    async def aclose(self) -> None:
        """Nothing to close."""


class TimedSaver(AsyncSqliteSaver):
    """Checkpoints, with the time each took in `spent_s`."""

    @property
    def spent_s(self) -> list[float]:
        """Seconds of every checkpoint so far."""
        return self.__dict__.setdefault("_spent_s", [])

    async def aput(self, *given: object, **named: object) -> object:
        """Keep a checkpoint."""
        began = time.perf_counter()
        try:
            return await super().aput(*given, **named)
        finally:
            self.spent_s.append(time.perf_counter() - began)
