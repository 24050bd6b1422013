"""What each role's line says: rounds, ideas, critique, questions to models, in their own words.

How a candidate is told stands in `candidates`.
"""

from datetime import datetime

from kernelwright.agents.roles.registry import ROLES
from kernelwright.graphs.run_view import CandidateView, RunView
from kernelwright.graphs.run_view.events import (
    Awaited,
    BaselinesMeasured,
    Critiqued,
    IdeasProposed,
    ModelCalled,
    Noted,
    RoleAnswered,
    RoundFinished,
    RunStarted,
    StrategyEvolved,
)
from kernelwright.graphs.run_view.wording import amount, count, milliseconds, one_line, ratio
from kernelwright.tools.types import Idea
from kernelwright.ui.chat.messages.candidates import said
from kernelwright.ui.chat.messages.lines import Line
from kernelwright.ui.chat.messages.safe import fence, inline, paragraphs, text
from kernelwright.ui.terminal.model_calls import (
    asked_words,
    changes,
    evolved_words,
    prediction_words,
)

# Of a model's thinking, this much is shown; the report has all of it.
REASONING = 6_000


def beginning(key: str, event: RunStarted) -> Line:
    """What is searched over, and where."""
    verb = "goes on" if event.resumed else "begins"
    words = [
        f"{text(event.task)} on {text(event.hardware)}: it moves "
        f"{amount(event.bytes_moved, 'B')} and does {amount(event.flops, 'FLOP')}, so nothing "
        f"here can be faster than **{milliseconds(event.floor_ms)}**. "
        f"Workers: {text(event.isolation.words)}."
    ]
    words += [f"- {text(warning)}" for warning in event.warnings]
    return _step(key, f"The search {verb}", "\n\n".join(words), event.at, "flag")


def baselines(key: str, event: BaselinesMeasured) -> Line:
    """What PyTorch itself does."""
    rows = []
    for item in event.baselines.items:
        found = item.measurement
        time = milliseconds(found.median_ms) if found else "could not run"
        band = f"10-90 % band {found.spread:.0%} wide" if found else one_line(item.failure, 160)
        rows.append(f"- {inline(item.name)}: **{time}**, {text(band)}")
    return _step(key, "PyTorch itself, timed", "\n".join(rows), event.at, "timer")


def round_begun(key: str, number: int, at: datetime) -> Line:
    """A round, open while it goes on."""
    name = f"Round {number}" if number else "Before the first round"
    return Line(key=key, name=name, at=at, words="It goes on.", icon="repeat", open=True)


def round_ended(line: Line, event: RoundFinished, view: RunView) -> Line:
    """The same round with what it brought, closed."""
    tried = view.of_round(event.round)
    correct = sum(item.is_correct for item in tried)
    words = (
        f"{count(len(tried), 'candidate')}, {correct} correct. "
        f"Best so far {milliseconds(view.best_ms)}{_against(view.best, view)}; "
        f"{count(event.elites, 'elite')}."
    )
    if event.why_stop:
        words += f" The search ends here: {text(event.why_stop)}."
    return line.model_copy(
        update={
            "name": f"Round {event.round}: {_short(view)}",
            "words": words,
            "ended_at": event.at,
            "open": False,
        }
    )


def reasons(key: str, event: IdeasProposed) -> Line:
    """Why these ideas, in the planner's words."""
    words = paragraphs(event.reasoning) or "The planner gave no reasons."
    return _step(key, f"Planner: {count(len(event.ideas), 'idea')}", words, event.at, "lightbulb")


def idea(key: str, at: datetime, idea: Idea, view: RunView) -> Line:
    """An idea, with what it brought so far."""
    tried = view.of_idea(idea.id)
    best = view.best_of(tried)
    words = [f"**How**: {text(idea.mechanism)}", f"**Why**: {text(idea.reason)}"]
    if idea.predicted_ms is not None:
        words.append(f"**Predicts** {milliseconds(idea.predicted_ms)}; watch {text(idea.metric)}")
    if idea.risk:
        words.append(f"**Risk**: {text(idea.risk)}")
    if best is not None:
        words.append(f"**Brought** {milliseconds(best.correct_ms)}{_against(best, view)}")
    name = f"Idea {_number(idea, view)}: {one_line(idea.title, 80)}"
    if tried:
        name += f" ({count(len(tried), 'candidate')}, {_best_words(best)})"
    return _step(key, name, "\n\n".join(words), at, "sparkles")


def critique(key: str, event: Critiqued, view: RunView) -> Line:
    """What the critic makes of fast and slow candidates."""
    analysis = event.analysis
    words = [paragraphs(view.with_names(analysis.implies))]
    for claim in analysis.claims:
        pair = f"{view.name_of(claim.faster)} beats {view.name_of(claim.slower)}"
        words.append(f"**{text(pair)}**: {text(view.with_names(claim.words))}")
        words.append("\n".join(f"- {text(view.with_names(number))}" for number in claim.numbers))
    words += [f"- {text(view.with_names(prediction_words(item)))}" for item in analysis.predictions]
    if analysis.predictions_checked:
        held, checked = analysis.predictions_held, analysis.predictions_checked
        words.append(f"Earlier predictions: {held} of {checked} held.")
    words += [f"*{text(note)}*" for note in analysis.notes]
    name = f"Critic: {one_line(view.with_names(analysis.implies), 80)}"
    return _step(key, name, "\n\n".join(part for part in words if part), event.at, "scale")


def asked(key: str, event: ModelCalled) -> Line:
    """A question to a model: what it took, and what the model thought aloud."""
    words = [said(asked_words(event))]
    if event.failure:
        words.append(f"There is no answer: {text(event.failure)}")
    if event.reasoning:
        words.append(paragraphs(event.reasoning, REASONING))
    name = f"{ROLES.appearance(event.role).label}: asked {one_line(event.model or 'a model', 40)}"
    line = _step(key, name, "\n\n".join(words), event.at, "brain")
    return line.model_copy(update={"failed": bool(event.failure)})


def answered(key: str, event: RoleAnswered) -> Line:
    """What a role with a step of its own answered."""
    shown = ROLES.appearance(event.role)
    name = f"{shown.label}: {one_line(event.words, 80)}"
    return _step(key, name, paragraphs(event.words), event.at, shown.icon)


def evolved(key: str, event: StrategyEvolved) -> Line:
    """A role is told something else from now on."""
    words = [said(evolved_words(event))]
    words += [text(event.version.why)] if event.version.why else []
    words.append(fence("\n".join(changes(event.before, event.version.text)), "diff"))
    name = f"Strategist: new words for the {event.version.role}"
    return _step(key, name, "\n\n".join(words), event.at, "git-branch")


def noted(key: str, event: Noted | Awaited) -> Line:
    """A plain sentence."""
    return _step(key, one_line(event.words, 90), paragraphs(event.words), event.at, "info")


def _step(key: str, name: str, words: str, at: datetime, icon: str) -> Line:
    """A step that tells something finished."""
    return Line(key=key, name=name, words=words, at=at, ended_at=at, icon=icon)


def _number(idea: Idea, view: RunView) -> int:
    return list(view.ideas).index(idea.id) + 1 if idea.id in view.ideas else 0


def _best_words(best: CandidateView | None) -> str:
    return f"best {milliseconds(best.correct_ms)}" if best else "none correct yet"


def _short(view: RunView) -> str:
    if view.best is None:
        return "nothing correct yet"
    return f"best {milliseconds(view.best_ms)}{_against(view.best, view)}"


def _against(best: CandidateView | None, view: RunView) -> str:
    speedup = view.speedup_of(best) if best else None
    return f", {ratio(speedup)} the best baseline" if speedup else ""
