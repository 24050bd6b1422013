"""Writes the planner's question: standing words once, then what this round looks like."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.prompting.cards import (
    analysis_card,
    candidate_card,
    hardware_card,
    progress_card,
    roofline_card,
    steering_card,
    symptoms_card,
    task_card,
)
from kernelwright.agents.prompting.contract import contract_summary, craft
from kernelwright.agents.prompting.tables import (
    ledger_table,
    milliseconds,
    shortened,
    standings_table,
)
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing, behaviour, gain, origin
from kernelwright.tools.types import Idea, LanguageName, Message, Prompt, Task

HERE = Path(__file__).parent
# Of the best candidate's source, this much is shown: structure matters here, not every line.
_SHOWN = 14_000


class Question:
    """The planner's prompt for one task on one device.

    Args:
        task: What is to become faster.
        hardware: Where.
        language: What candidates are written in.

    Raises:
        PromptError: When a prompt file does not fit.
    """

    def __init__(self, task: Task, hardware: Hardware, language: LanguageName) -> None:
        self._task, self._hardware = task, hardware
        self._words = PromptTemplate(
            HERE / "planner.md",
            "contract", "craft", "task", "hardware", "roofline", "progress", "round", "rounds",
            "wanted", "ledger", "standings", "best", "symptoms", "analysis", "moves", "steering",
            "options", "strategy", "parents", "island", "islands",
        )  # fmt: skip
        self._turned_away = PromptTemplate(
            HERE / "planner-again.md", "accepted", "turned_away", "pins", "wanted"
        )
        # What stays the same in every round is written once, and stands before what does not, so
        # that a server can keep it.
        self._standing = {
            "contract": contract_summary(language),
            "craft": craft(language),
            "task": task_card(task),
            "hardware": hardware_card(hardware),
        }

    def prompt(self, situation: PlannerInput, options: Sequence[Idea]) -> Prompt:
        """The question of one round.

        Args:
            situation: What the planner may look at.
            options: What the playbook would do, as P1, P2, ...
        """
        best, home = situation.best, _home(situation)
        messages = self._words.messages(
            **self._standing,
            roofline=roofline_card(self._task, self._hardware, situation.floor_ms),
            progress=progress_card(situation.floor_ms, situation.baseline_ms, best),
            round=situation.round,
            rounds=situation.rounds,
            wanted=situation.wanted,
            ledger=ledger_table(situation.tried, situation.ledger),
            standings=standings_table(situation.standings),
            best=candidate_card(home.candidate, home.evaluation, _SHOWN) if home else "",
            symptoms=_profiled(situation) if situation.best else "",
            analysis=analysis_card(situation.analysis) if situation.analysis else "",
            moves="\n".join(f"- {line}" for line in situation.moves),
            steering=steering_card(situation.steering) if _said(situation) else "",
            options="\n".join(_option(*item) for item in enumerate(options, start=1)),
            strategy=situation.strategy.text if situation.strategy else "",
            parents=parents_card(situation.parents, situation.standings),
            island=situation.island,
            islands=situation.islands,
        )
        return Prompt(
            key=f"planner:{situation.round}",
            role="planner",
            messages=messages,
            round=situation.round,
        )

    def again(
        self,
        prompt: Prompt,
        answered: str,
        accepted: Sequence[Idea],
        turned_away: Sequence[str],
        pins: Sequence[str],
        wanted: int,
    ) -> Prompt:
        """The same question with the model's answer and what was turned away."""
        more = self._turned_away.messages(
            accepted=[idea.title for idea in accepted],
            turned_away=turned_away,
            pins=pins,
            wanted=wanted,
        )
        own = Message(author="model", text=answered)
        update = {"key": f"{prompt.key}:differently", "messages": (*prompt.messages, own, *more)}
        return prompt.model_copy(update=update)


def _home(situation: PlannerInput) -> Standing | None:
    """The best of the population that this round grows; of all, where there is but one."""
    if situation.islands == 1:
        return situation.best
    return situation.parents[0] if situation.parents else None


def _profiled(situation: PlannerInput) -> str:
    """Symptoms, and what the profiler made of them where it spoke."""
    return "\n\n".join(filter(None, (situation.explanation, symptoms_card(situation.symptoms))))


def _said(situation: PlannerInput) -> bool:
    said = situation.steering
    return bool(said.hints or said.pins or said.bans)


def _option(number: int, idea: Idea) -> str:
    predicted = milliseconds(idea.predicted_ms)
    return f"- P{number}: {idea.title} ({idea.category}, expects {predicted}). {idea.mechanism}"


_NOTE_CHARACTERS = 160


def parents_card(parents: Sequence[Standing], standings: Sequence[Standing]) -> str:
    """The parents, the fastest first; "" where there are none."""
    if not parents:
        return ""
    known = {item.candidate.id: item for item in standings}
    return "\n".join(f"- {_line(item, _brought(item, known))}" for item in parents)


def _brought(item: Standing, known: Mapping[str, Standing]) -> float | None:
    source = origin(item, known)
    return gain(source.evaluation, item.evaluation) if source else None


def _line(item: Standing, brought: float | None) -> str:
    candidate, cell = item.candidate, behaviour(item.candidate, item.evaluation)
    parts = [
        f"`{candidate.id}` ({candidate.idea}): {milliseconds(item.evaluation.median_ms)}",
        f"memory '{cell.memory}', compute '{cell.compute}', parallel '{cell.parallel}'",
        f"{brought:.2f} times as fast as what it set out from" if brought else "",
        shortened(" ".join(candidate.note.split()), _NOTE_CHARACTERS),
    ]
    return "; ".join(part for part in parts if part)
