"""The strategist: rewrites the evolving advice in the planner's or the coder's prompt.

It looks at what every version brought and answers with the next one. It is a language model without
rules behind it, for rules have no prompts: without a model nothing evolves and nothing is asked.
Advice is a list of points, so that versions differ by lines and a small model can write one.

A version is judged by the best child it produced: the fastest correct candidate of the ideas (for
the planner) or among the candidates (for the coder) that were written under it; settings that the
tuner chose are nobody's words. That is read from the archive, so a resumed run goes on with the
version that the dead one used. Not here: when a version is rewritten (`graphs.search.learn`).
"""

from collections.abc import Iterable, Sequence
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
    shortened,
    task_card,
)
from kernelwright.agents.prompting.fitting import fitted
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.agents.role import Appearance, Role, RoleSetting
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import (
    UNKNOWN,
    Archive,
    Behaviour,
    Standing,
    Transition,
    is_timed,
    ranked,
    transitions,
)
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.types import (
    Analysis,
    EvolvingRole,
    Idea,
    LedgerEntry,
    Prompt,
    StrategyVersion,
    Task,
    Value,
)


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
        told = fitted(messages)
        return Prompt(key=key, role="strategist", messages=told, round=retrospect.round)


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


ROLES: tuple[EvolvingRole, ...] = ("planner", "coder")


def first(role: EvolvingRole) -> StrategyVersion:
    """The version that every search begins with."""
    from kernelwright.agents.prompting.templates import section

    return StrategyVersion(
        id=f"{role}:0", role=role, text=section(HERE / f"strategy-{role}.md").strip()
    )


def current(archive: Archive, role: EvolvingRole) -> StrategyVersion:
    """The version under which this role writes now."""
    known = versions(archive, role)
    chosen = archive.term(_term(role))
    return next((item for item in known if item.id == chosen), known[0])


def choose(archive: Archive, version: StrategyVersion) -> None:
    """Let the role write under this version from now on; the version is kept too."""
    archive.record_strategy(version)
    archive.record_term(_term(version.role), version.id)


def versions(archive: Archive, role: EvolvingRole) -> tuple[StrategyVersion, ...]:
    """Every version of a role's section, in the order they were born; the first is always there."""
    known = tuple(item for item in archive.strategies() if item.role == role)
    return known or (first(role),)


def trials(archive: Archive, role: EvolvingRole) -> tuple[Trial, ...]:
    """What became of every version, in the order they were born."""
    standings = archive.standings()
    ranks = {item.candidate.id: rank for rank, item in enumerate(ranked(standings))}
    ideas = {idea.id: idea.strategy for idea in archive.ideas()}

    def children(version: StrategyVersion) -> list[Standing]:
        if role == "planner":
            return [s for s in standings if ideas.get(s.candidate.idea) == version.id]
        return [s for s in standings if s.candidate.strategy == version.id]

    return tuple(_trial(version, children(version), ranks) for version in versions(archive, role))


def fittest(tried: tuple[Trial, ...]) -> Trial | None:
    """The version with the best child; the older one of equals, None when none was tried."""
    found = [trial for trial in tried if trial.children]
    return min(found, key=lambda trial: (trial.rank is None, trial.rank or 0), default=None)


def _trial(version: StrategyVersion, of: list[Standing], ranks: dict[str, int]) -> Trial:
    best = min(
        (item for item in of if is_timed(item.evaluation)),
        key=lambda item: ranks[item.candidate.id],
        default=None,
    )
    return Trial(
        version=version,
        children=len(of),
        correct=sum(is_timed(item.evaluation) for item in of),
        best=best.candidate.id if best else "",
        best_ms=best.evaluation.median_ms if best else None,
        rank=ranks[best.candidate.id] if best else None,
    )


def _term(role: EvolvingRole) -> str:
    return f"strategy:{role}"


LINES = 24
_REASON_CHARACTERS = 200


def outcomes(archive: Archive, role: EvolvingRole) -> tuple[str, ...]:
    """The latest outcomes of a role's work, the newest last."""
    ideas, standings = archive.ideas(), archive.standings()
    if role == "planner":
        entries = {entry.idea: entry for entry in archive.ledger()}
        lines = [_of_idea(idea, entries.get(idea.id), standings) for idea in ideas if idea.strategy]
    else:
        titles = {idea.id: idea.title for idea in ideas}
        written = (s for s in standings if s.candidate.strategy and s.author != "tuner")
        lines = [_of_candidate(item, titles.get(item.candidate.idea, "")) for item in written]
    return tuple(lines[-LINES:])


def _of_idea(idea: Idea, entry: LedgerEntry | None, standings: Sequence[Standing]) -> str:
    what = f"{idea.id} under {idea.strategy}: '{idea.title}' ({idea.category})"
    predicted = f"predicted {milliseconds(idea.predicted_ms)}"
    if entry is None or not entry.candidates:
        return f"{what}, {predicted}: no candidate was judged"
    some = f"{entry.correct} of {entry.candidates} candidates correct"
    if entry.measured_ms is None:
        of = [item for item in standings if item.candidate.idea == idea.id]
        return f"{what}, {predicted}: {some}; {_failure(of[-1])}" if of else f"{what}: {some}"
    gain = f", {entry.gain:.2f} times as fast as the best before it" if entry.gain else ""
    return f"{what}, {predicted}: reached {milliseconds(entry.measured_ms)}{gain}; {some}"


def _of_candidate(item: Standing, title: str) -> str:
    candidate = item.candidate
    by = "a repair" if item.author == "repair" else "written"
    what = f"{candidate.id} under {candidate.strategy}: {by} for {candidate.idea} '{title}'"
    labels = f" ({', '.join(candidate.strategies)})" if candidate.strategies else ""
    if is_timed(item.evaluation):
        return f"{what}{labels}: correct, {milliseconds(item.evaluation.median_ms)}"
    return f"{what}{labels}: {_failure(item)}"


def _failure(item: Standing) -> str:
    verdict = item.evaluation.verdict.words
    reason = " ".join(item.evaluation.verification.reason.split())
    return f"{verdict}: {shortened(reason, _REASON_CHARACTERS)}"


PAID, COST, FAILED = 6, 3, 3
# Less than this is the noise of a screening, neither a gain nor a loss.
WORTH_SAYING = 1.03


def moves(standings: Sequence[Standing], ideas: Iterable[Idea]) -> tuple[str, ...]:
    """One line a move: those that paid, the most first, then those that cost or never ran."""
    titles = {idea.id: idea.title for idea in ideas}
    grouped: dict[tuple[Behaviour, Behaviour], list[Transition]] = {}
    for item in transitions(standings):
        grouped.setdefault((item.before, item.after), []).append(item)
    best = [max(of, key=_gain) for of in grouped.values()]
    several = {(of[0].before, of[0].after): len(of) for of in grouped.values()}
    paid = sorted((item for item in best if _gain(item) >= WORTH_SAYING), key=_gain, reverse=True)
    cost = sorted((item for item in best if 0 < _gain(item) <= 1 / WORTH_SAYING), key=_gain)
    failed = [item for item in best if item.gain is None]
    shown = (*paid[:PAID], *cost[:COST], *failed[-FAILED:])
    return tuple(_line(item, titles, several[item.before, item.after]) for item in shown)


def _gain(item: Transition) -> float:
    return item.gain or 0.0


def _line(item: Transition, titles: dict[str, str], ideas: int) -> str:
    title = titles.get(item.idea, "")
    what = f"{item.idea} '{title}'" if title else item.idea or "an idea"
    more = f", best of {ideas} ideas" if ideas > 1 else ""
    way = f"{what}, from {item.source}; {item.correct} of {item.tried} correct{more}"
    return f"{_brought(item)}: {_path(item.before, item.after)} ({way})"


def _brought(item: Transition) -> str:
    if item.gain is None:
        return "nothing correct"
    if item.gain >= 1.0:
        return f"{item.gain:.2f} times as fast"
    return f"{1 / item.gain:.2f} times as slow"


def _path(before: Behaviour, after: Behaviour) -> str:
    """What changed, axis by axis; where nothing did, where it stayed."""
    axes = (
        ("memory", before.memory, after.memory),
        ("compute", before.compute, after.compute),
        ("parallel", before.parallel, after.parallel),
    )
    changed = [f"{name} '{one}' -> '{other}'" for name, one, other in axes if one != other]
    if changed:
        return "; ".join(changed)
    known = [f"{name} '{one}'" for name, one, _ in axes if one != UNKNOWN]
    return f"within {', '.join(known) or 'one behaviour'}"
