"""The strategist: rewrites the evolving advice in the planner's or the coder's prompt.

It looks at what every version brought and answers with the next one. It is a language model without
rules behind it, for rules have no prompts: without a model nothing evolves and nothing is asked.
Advice is a list of points, so that versions differ by lines and a small model can write one. The
strategist as a role of the search is declared here too. What is kept is decided elsewhere, by what
the children of a version achieve.
"""

from pathlib import Path
from typing import Protocol

from pydantic import Field, field_validator

from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.cards import (
    analysis_card,
    hardware_card,
    milliseconds,
    roofline_card,
    task_card,
)
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.agents.role import Appearance, Role, RoleSetting
from kernelwright.profiles.load import Hardware
from kernelwright.tools.tasks import floor_ms
from kernelwright.tools.types import Analysis, EvolvingRole, Prompt, StrategyVersion, Task, Value


class Trial(Value):
    """A version and what its children did.

    `best` is the id of the fastest correct child, "" when there is none; `rank` its place among all
    candidates of the run, 0 for the best. Times in milliseconds.
    """

    version: StrategyVersion
    children: int = 0
    correct: int = 0
    best: str = ""
    best_ms: float | None = None
    rank: int | None = None


class StrategistInput(Value):
    """Everything the strategist may look at.

    `parent` is the version to rewrite, the fittest so far; `trials` are all versions in the order
    they were born. `outcomes` and `moves` are lines in plain words: what was tried under the
    recent versions and what came of it, and which moves between behaviours paid.
    """

    role: EvolvingRole
    round: int
    parent: StrategyVersion
    trials: tuple[Trial, ...]
    outcomes: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    analysis: Analysis | None = None


class StrategistAnswer(Value):
    """The next version, None where there is none; `notes` say why."""

    version: StrategyVersion | None = None
    notes: tuple[str, ...] = ()


class Strategist(Protocol):
    """Rewrites a section against its outcomes."""

    async def rewrite(self, retrospect: StrategistInput) -> StrategistAnswer:
        """Answer with a version that differs from all before it."""
        ...


HERE = Path(__file__).parent
# Versions that are shown with their words; the figures of all are shown.
SHOWN = 3
MOST, LONGEST = 12, 600

WORDS = PromptTemplate(
    HERE / "strategist.md",
    "role",
    "task",
    "hardware",
    "limits",
    "parent",
    "advice",
    "record",
    "others",
    "outcomes",
    "moves",
    "analysis",
    "most",
    "longest",
)


class Rewrite(Value):
    """What the model answers."""

    why: str = Field(
        description="one or two sentences: which outcomes led to which changes, with numbers"
    )
    points: tuple[str, ...] = Field(
        min_length=2,
        max_length=MOST,
        description="all points of the new advice in order, those that stay included; "
        f"one to three plain sentences each, at most {LONGEST} characters",
    )

    @field_validator("points")
    @classmethod
    def _plain(cls, points: tuple[str, ...]) -> tuple[str, ...]:
        """One line a point, whatever bullets and breaks it came with."""
        lines = tuple(" ".join(point.split()).lstrip("-*• ").strip() for point in points)
        kept = tuple(dict.fromkeys(line for line in lines if line))
        if long := next((line for line in kept if len(line) > LONGEST), None):
            raise ValueError(
                f"a point may have at most {LONGEST} characters, but one has {len(long)}"
            )
        if len(kept) < 2:
            raise ValueError("there must be at least two different points")
        return kept


class ModelStrategist:
    """Asks a model for the next version.

    Args:
        client: Who is asked.
        task: What the search is about.
        hardware: The device it is for.
    """

    def __init__(self, client: LLMClient, task: Task, hardware: Hardware) -> None:
        self._client = client
        self._task = task
        self._hardware = hardware

    async def rewrite(self, retrospect: StrategistInput) -> StrategistAnswer:
        """See the class; nobody answering, or an answer without anything new, is a note."""
        role, round = retrospect.role, retrospect.round
        kept = f"the {role}'s strategy stays as it is after round {round}"
        try:
            answered = await answer(self._client, self.ask(retrospect), Rewrite)
        except LLMError as error:
            return StrategistAnswer(notes=(f"{kept}: {error}",))
        text = "\n".join(f"- {point}" for point in answered.value.points)
        if text in {trial.version.text for trial in retrospect.trials}:
            return StrategistAnswer(
                notes=(f"{kept}: the strategist wrote nothing new", *answered.notes)
            )
        version = StrategyVersion(
            id=f"{role}:{round}",
            role=role,
            text=text,
            parent=retrospect.parent.id,
            round=round,
            why=answered.value.why.strip(),
        )
        return StrategistAnswer(version=version, notes=answered.notes)

    def ask(self, retrospect: StrategistInput) -> Prompt:
        """The question of a round."""
        task, hardware, parent = self._task, self._hardware, retrospect.parent
        limit_ms = floor_ms(task.bytes_moved, task.flops, hardware)
        others = [item for item in retrospect.trials if item.version.id != parent.id][-SHOWN:]
        messages = WORDS.messages(
            role=retrospect.role,
            task=task_card(task),
            hardware=hardware_card(hardware),
            limits=roofline_card(task, hardware, limit_ms),
            parent=parent.id,
            advice=parent.text,
            record="\n".join(f"- {_record(item)}" for item in retrospect.trials),
            others=[(item.version.id, item.version.why, item.version.text) for item in others],
            outcomes=retrospect.outcomes,
            moves=retrospect.moves,
            analysis=analysis_card(retrospect.analysis),
            most=MOST,
            longest=LONGEST,
        )
        key = f"strategist:{retrospect.role}:{retrospect.round}"
        return Prompt(key=key, role="strategist", messages=messages, round=retrospect.round)


def _record(trial: Trial) -> str:
    version = trial.version
    born = f"{version.id}, {f'rewritten from {version.parent}' if version.parent else 'the first'}"
    if not trial.children:
        return f"{born}: nothing was judged under it yet"
    some = f"{trial.correct} of {trial.children} candidates correct"
    if trial.rank is None:
        return f"{born}: {some}"
    place = "the best of the run" if trial.rank == 0 else f"number {trial.rank + 1} of the run"
    return f"{born}: {some}, the best {trial.best} with {milliseconds(trial.best_ms)} ({place})"


def _by_rules(setting: RoleSetting) -> None:
    return None


def _by_model(client: LLMClient, setting: RoleSetting) -> Strategist:

    return ModelStrategist(client, setting.task, setting.hardware)


STRATEGIST: Role[Strategist | None] = Role(
    name="strategist",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Strategist", "green", "git-branch"),
)
