"""How a candidate is told: its code, what the compiler and the judge said, what bounds it."""

from kernelwright.graphs.run_view import CandidateView, RunView
from kernelwright.graphs.run_view.wording import VERDICT, milliseconds, one_line, percent, ratio
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import Candidate, Evaluation, Evidence, Rank, Verdict
from kernelwright.ui.chat.messages.lines import Line
from kernelwright.ui.chat.messages.safe import fence, paragraphs, table, text

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
        icon=_icon(tried),
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
    parts = [paragraphs(made.note)] if made.note and made.origin != "playbook" else []
    parts.append(_settings(made))
    if not _is_variant(tried, view):
        parts.append(source(made))
    if found is not None:
        parts += _judgement(found)
    if tried.profile is not None:
        parts += _profile(tried)
    return parts


def _settings(made: Candidate) -> str:
    values = ", ".join(f"{item.name} = {item.value}" for item in made.settings)
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
    parts = [f"**Judge**: {VERDICT[found.verdict]}, {said(checked.reason or 'without a word')}"]
    if found.verdict is Verdict.CORRECT and checked.error_ratio is not None:
        parts[0] += f" Its error is {checked.error_ratio:.2f} times PyTorch's own."
    if found.compiler_log.strip():
        parts += ["**Compiler**", fence(found.compiler_log[:LOG], "text")]
    if found.comparisons:
        rows = [
            (item.baseline, ratio(item.ratio), f"{item.ci95_low:.2f} to {item.ci95_high:.2f}")
            for item in found.comparisons
        ]
        parts.append(table(("against", "speed-up", "95 % interval"), rows))
    return parts


def _profile(tried: CandidateView) -> list[str]:
    assert tried.profile is not None
    told = tried.profile
    parts = [f"**Profiler**: {paragraphs(told.explanation) or 'what it read of it'}"]
    parts += ["\n".join(f"- {text(item.name)}: {text(item.words)}" for item in told.symptoms)]
    return [*parts, readings(told.evidence)]


def _outcome(tried: CandidateView, view: RunView) -> str:
    found = tried.evaluation
    if found is None:
        return "being judged"
    if found.verdict is not Verdict.CORRECT:
        return VERDICT[found.verdict]
    if tried.correct_ms is None:
        return "correct, not timed"
    speedup = view.speedup_of(tried)
    over = f", {ratio(speedup)}" if speedup else ""
    new = ", new best" if tried.was_best else ""
    return f"{milliseconds(tried.correct_ms)}{over}{new}"


def _by(tried: CandidateView) -> str:
    made = tried.candidate
    settings = " ".join(f"{item.name}={item.value}" for item in made.settings)
    if tried.by == "repair":
        return f"by the coder, repair {tried.repairs}"
    if tried.by == "tuner":
        return f"by the tuner ({one_line(settings, 48)})" if settings else "by the tuner"
    return "by the coder"


def _icon(tried: CandidateView) -> str:
    if tried.was_best:
        return "trophy"
    if tried.evaluation is None:
        return "loader"
    return "check" if tried.evaluation.verdict is Verdict.CORRECT else "x"


def _value(item: Evidence) -> str:
    if item.rank is Rank.UNAVAILABLE or item.value is None:
        return "unavailable"
    shown = percent(item.value) if item.unit == "%" and item.value <= 1 else f"{item.value:.4g}"
    return shown if shown.endswith("%") else f"{shown} {item.unit}".strip()
