"""What each line of a run says: rounds, ideas, candidates, critique, questions to models.

Every role speaks in its own words. A candidate is told with its code, what the compiler and the
judge said of it, and what bounds it.
"""

from collections.abc import Sequence
from datetime import datetime

from kernelwright.agents.roles import ROLES
from kernelwright.graphs.run_view import CandidateView, RunView
from kernelwright.graphs.run_view.events import (
    UNKNOWN_FLOOR,
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
    ToolCalled,
    amount,
    count,
    milliseconds,
    one_line,
    percent,
    ratio,
    seconds,
)
from kernelwright.graphs.run_view.figures import Figure, in_words, settings_words
from kernelwright.tools.languages import language_of
from kernelwright.tools.profile import by_importance
from kernelwright.tools.types import Candidate, Evaluation, Evidence, Idea, Rank, Verdict
from kernelwright.tools.types.speed_words import doubt
from kernelwright.ui.chat.messages.lines import Line
from kernelwright.ui.chat.messages.safe import fence, inline, paragraphs, table, text
from kernelwright.ui.terminal.output import (
    asked_words,
    changes,
    evolved_words,
    prediction_words,
    record_words,
)

LOG = 6_000


def candidate(key: str, parent: str, tried: CandidateView, view: RunView) -> Line:
    """A candidate's line: a name that says how it went, the whole of it inside."""
    found = tried.evaluation
    return Line(
        key=key,
        parent=parent,
        name=f"{tried.name} {_by(tried)}: {_outcome(tried, view)}",
        words="\n\n".join(part for part in _parts(tried, view) if part),
        at=tried.at,
        ended_at=tried.judged_at,
        icon=_icon(tried, view),
        failed=found is not None and found.verdict is not Verdict.CORRECT,
    )


def said(sentence: str) -> str:
    """A sentence of ours about others' things: shown as text, with a full stop."""
    return text(sentence).rstrip(".") + "."


def source(candidate: Candidate) -> str:
    """The kernel and its plan."""
    kernel = fence(candidate.kernel, language_of(candidate).spec.web_lexer)
    return f"**Kernel**\n\n{kernel}\n\n**Plan**\n\n{fence(candidate.plan, 'python')}"


def readings(evidence: tuple[Evidence, ...]) -> str:
    """What the profiler read, with how it was come by."""
    rows = [
        (item.name, _value(item), item.rank.value, one_line(item.source, 80)) for item in evidence
    ]
    return table(("reading", "value", "how sure", "from"), rows) if rows else ""


def _parts(tried: CandidateView, view: RunView) -> list[str]:
    made, found = tried.candidate, tried.evaluation
    parts = (
        [paragraphs(view.with_names(made.note))] if made.note and made.origin != "playbook" else []
    )
    parts.append(_settings(made))
    if not _is_variant(tried, view):
        parts.append(source(made))
    if found is not None:
        parts += _judgement(found)
    if tried.profile is not None:
        parts += _profile(tried, view)
    return parts


def _settings(made: Candidate) -> str:
    values = settings_words(made.settings)
    return f"**Settings**: {text(values)}" if values else ""


def _is_variant(tried: CandidateView, view: RunView) -> bool:
    """Whether the same kernel stands in an earlier candidate already."""
    made = tried.candidate
    return any(
        item.number < tried.number
        and item.candidate.kernel == made.kernel
        and item.candidate.plan == made.plan
        for item in view.of_idea(made.idea)
    )


def _judgement(found: Evaluation) -> list[str]:
    checked = found.verification
    parts = [f"**Judge**: {found.verdict.words}, {said(checked.reason or 'without a word')}"]
    if found.verdict is Verdict.CORRECT and checked.error_ratio is not None:
        parts[0] += f" Its error is {checked.error_ratio:.2f} times PyTorch's own."
    if found.compiler_log.strip():
        parts += ["**Compiler**", fence(found.compiler_log[:LOG], "text")]
    if found.comparisons:
        rows = [
            (
                item.baseline,
                ratio(item.ratio),
                f"{item.ci95_low:.2f} to {item.ci95_high:.2f}",
                doubt(item.settled_outcome),
            )
            for item in found.comparisons
        ]
        parts.append(table(("against", "speed-up", "95 % interval", ""), rows))
    return parts


def _profile(tried: CandidateView, view: RunView) -> list[str]:
    assert tried.profile is not None
    told = tried.profile
    named = view.with_names
    parts = [f"**Profiler**: {text(named(told.headline)) or 'what it read of it'}"]
    parts += [paragraphs(named(told.explanation))] if told.explanation else []
    symptoms = by_importance(told.symptoms)
    parts += ["\n".join(f"- {text(item.name)}: {text(named(item.words))}" for item in symptoms)]
    return [*parts, readings(told.evidence)]


def _outcome(tried: CandidateView, view: RunView) -> str:
    found = tried.evaluation
    if found is None:
        return "being judged"
    if found.verdict is not Verdict.CORRECT:
        return found.verdict.words
    figure = view.figure_of(tried)
    if figure is None:
        return "correct, not timed"
    return f"{figure.brief}{_place(tried, view)}"


def _place(tried: CandidateView, view: RunView) -> str:
    """Whether it leads, or led before others were found."""
    if tried == view.best:
        return f", {view.best_name}"
    return ", led for a time" if tried.was_best else ""


def _by(tried: CandidateView) -> str:
    made = tried.candidate
    settings = settings_words(made.settings)
    if tried.by == "repair":
        return f"by the coder, repair {tried.repairs}"
    if tried.by == "tuner":
        return f"by the tuner ({one_line(settings, 48)})" if settings else "by the tuner"
    return "by the coder"


def _icon(tried: CandidateView, view: RunView) -> str:
    if tried == view.best:
        return "trophy"
    if tried.evaluation is None:
        return "loader"
    return "check" if tried.evaluation.verdict is Verdict.CORRECT else "x"


def _value(item: Evidence) -> str:
    if item.rank is Rank.UNAVAILABLE or item.value is None:
        return "unavailable"
    shown = percent(item.value) if item.unit == "%" and item.value <= 1 else f"{item.value:.4g}"
    return shown if shown.endswith("%") else f"{shown} {item.unit}".strip()


# Of a model's thinking, this much is shown; the report has all of it.
REASONING = 6_000


def beginning(key: str, event: RunStarted) -> Line:
    """What is searched over, and where."""
    verb = "goes on" if event.resumed else "begins"
    words = [
        f"{text(event.task)} on {text(event.hardware)}: it moves "
        f"{amount(event.bytes_moved, 'B')} and does {amount(event.flops, 'FLOP')}; the floor "
        f"here is **{milliseconds(event.floor_ms)}**, {text(event.floor_how or UNKNOWN_FLOOR)}. "
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
    """The same round with what its own candidates brought, closed."""
    tried = view.of_round(event.round)
    correct = sum(item.is_correct for item in tried)
    words = f"{count(len(tried), 'candidate')}, {correct} correct: {_best_words(tried, view)}."
    if event.why_stop:
        words += f" The search ends here: {text(event.why_stop)}."
    return line.model_copy(
        update={
            "name": f"Round {event.round}: {_best_words(tried, view)}",
            "words": words,
            "ended_at": event.at,
            "open": False,
        }
    )


def reasons(key: str, event: IdeasProposed) -> Line:
    """Why these ideas, in the planner's words."""
    words = paragraphs(in_words(event.reasoning)) or "The planner gave no reasons."
    return _step(key, f"Planner: {count(len(event.ideas), 'idea')}", words, event.at, "lightbulb")


def idea(key: str, at: datetime, idea: Idea, view: RunView) -> Line:
    """An idea, with what it brought so far."""
    tried = view.of_idea(idea.id)
    named, figure = view.with_names, _figure(tried, view)
    words = [f"**How**: {text(named(idea.mechanism))}", f"**Why**: {text(named(idea.reason))}"]
    if idea.predicted_ms is not None:
        words.append(f"**Predicts** {milliseconds(idea.predicted_ms)}; watch {text(idea.metric)}")
    if idea.risk:
        words.append(f"**Risk**: {text(idea.risk)}")
    if figure is not None:
        words.append(f"**Brought** {figure.words}")
    name = f"Idea {_number(idea, view)}: {one_line(named(idea.title), 80)}"
    if tried:
        name += f" ({count(len(tried), 'candidate')}, {_best_words(tried, view)})"
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
    if record := record_words(analysis):
        words.append(f"Earlier predictions: {record}.")
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


def called(key: str, event: ToolCalled) -> Line:
    """A call of a tool: with what, and what came back."""
    run = event.run
    words = [fence(run.arguments, "json")] if run.arguments not in ("", "{}") else []
    words += [fence(run.result, ""), f"*{text(run.key)}, {seconds(run.seconds)}*"]
    name = f"{ROLES.appearance(run.role).label}: {one_line(run.tool, 40)}"
    name += f", {one_line(run.result, 60)}"
    line = _step(key, name, "\n\n".join(words), event.at, "wrench")
    return line.model_copy(update={"failed": run.failed})


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


def noted(key: str, event: Noted | Awaited, view: RunView) -> Line:
    """A plain sentence."""
    words = view.with_names(event.words)
    return _step(key, one_line(words, 90), paragraphs(words), event.at, "info")


def _step(key: str, name: str, words: str, at: datetime, icon: str) -> Line:
    """A step that tells something finished."""
    return Line(key=key, name=name, words=words, at=at, ended_at=at, icon=icon)


def _number(idea: Idea, view: RunView) -> int:
    return list(view.ideas).index(idea.id) + 1 if idea.id in view.ideas else 0


def _best_words(tried: Sequence[CandidateView], view: RunView) -> str:
    """The best of some candidates with how closely it was looked at."""
    figure = _figure(tried, view)
    return f"best {figure.words}" if figure else "none correct"


def _figure(tried: Sequence[CandidateView], view: RunView) -> Figure | None:
    best = view.best_of(tried)
    return view.figure_of(best) if best else None
