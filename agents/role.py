"""What a role is: who answers which question, by rules or by a model, where, and how it is shown.

A role is one value in its folder (`agents/critic/role.py`) and one line in the registry. What a
search asks in its own steps (the planner, the coder, ...) is a plain `Role`, whose implementations
have that role's Protocol. A role that is asked in a step of its own is made by `step_role`: the
graph gives it a step there, and what it answers is told as an event and kept.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.shared.facts import Start, Steering
from kernelwright.agents.toolbox.workbench import RoleTools
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.kernel_library import Repertoire
from kernelwright.tools.types import Analysis, Idea, LedgerEntry, Symptom, Task, Value

Agent = TypeVar("Agent", covariant=True)
Question = TypeVar("Question")
QuestionIn = TypeVar("QuestionIn", contravariant=True)

# Where a role of its own stands in a round: right before the planner, or right after a step.
Place = Literal["before_plan", "after_profile", "after_critique", "after_select"]


@dataclass(frozen=True)
class RoleSetting:
    """What an agent is made for.

    `start` is the person's own kernel, where there is one; `tools` what its model's tools work
    with, None where a search gives none.
    """

    task: Task
    hardware: Hardware
    repertoire: Repertoire
    start: Start | None = None
    tools: RoleTools | None = None


@dataclass(frozen=True)
class Appearance:
    """How a role is shown: its name for people, rich's style of it, the chat's icon."""

    label: str
    style: str = "default"
    icon: str = "message-circle"


@dataclass(frozen=True, kw_only=True)
class Role(Generic[Agent]):
    """One role of a search.

    Attributes:
        name: What it is called in prompts, events, recorded calls and on the command line.
        by_rules: Makes the agent that needs no key.
        by_model: Makes the agent that asks a language model, with the rules behind it. Its prompt
            is loaded, and its placeholders checked, when the agent is made.
        shown: How it is shown.
        part: What an ablation calls the part of a search that is missing without it.
        switch_off: Makes the agent that stands in while that part is switched off, from the agent
            that would have answered and the search's seed; None where steps leave the part out.
    """

    name: str
    by_rules: Callable[[RoleSetting], Agent]
    by_model: Callable[[LLMClient, RoleSetting], Agent]
    shown: Appearance
    part: str = ""
    switch_off: Callable[[object, int], Agent] | None = None

    def agent(self, setting: RoleSetting, client: LLMClient | None) -> Agent:
        """Who thinks: a model where a client is given, the rules otherwise."""
        return self.by_rules(setting) if client is None else self.by_model(client, setting)


class RoundView(Value):
    """What a role with a step of its own may look at.

    `round` is the round that is going on, or the one to be planned. `best` is the fastest by its
    most trusted time. Times in milliseconds, None where they are not known.
    """

    round: int
    task: Task
    hardware: Hardware
    floor_ms: float
    baseline_ms: float | None = None
    best: Standing | None = None
    standings: tuple[Standing, ...] = ()
    ideas: tuple[Idea, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    steering: Steering = Steering()


class RoleAnswer(Value):
    """What such a role answers; a role adds typed fields of its own.

    `words` is the answer in a sentence for people; `notes` say what went wrong on the way.
    """

    words: str
    notes: tuple[str, ...] = ()


class RoleAgent(Protocol[QuestionIn]):
    """Who thinks for a role with a step of its own."""

    async def answer(self, question: QuestionIn) -> RoleAnswer:
        """Answer the role's question."""
        ...


Asked = Callable[[RoundView], Awaitable[RoleAnswer]]


@dataclass(frozen=True, kw_only=True)
class StepRole(Role[Asked]):
    """A role that is asked once a round, in a step of its own at `place`."""

    place: Place


def step_role(
    name: str,
    place: Place,
    *,
    question: Callable[[RoundView], Question],
    by_rules: Callable[[RoleSetting], RoleAgent[Question]],
    by_model: Callable[[LLMClient, RoleSetting], RoleAgent[Question]],
    shown: Appearance,
) -> StepRole:
    """A role that gets a step of its own, switched off by the part `role:NAME`.

    Args:
        name: As of every role.
        place: Where its step stands in a round.
        question: What of the round it is asked.
        by_rules: Makes the agent that needs no key.
        by_model: Makes the agent that asks a language model.
        shown: How it is shown.
    """
    return StepRole(
        name=name,
        place=place,
        by_rules=lambda setting: _asked(by_rules(setting), question),
        by_model=lambda client, setting: _asked(by_model(client, setting), question),
        shown=shown,
        part=f"role:{name}",
    )


def _asked(agent: RoleAgent[Question], question: Callable[[RoundView], Question]) -> Asked:
    async def ask(view: RoundView) -> RoleAnswer:
        return await agent.answer(question(view))

    return ask
