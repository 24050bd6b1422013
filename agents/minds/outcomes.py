"""What was tried under the recent versions of an evolving prompt, a line each, for the strategist.

The planner's prompt is judged by ideas, the coder's by the candidates that it wrote; settings that
the tuner chose are nobody's words.
"""

from collections.abc import Sequence

from agents.minds.text import milliseconds, shortened
from tools.archive import Archive, Standing, is_timed
from tools.nouns import EvolvingRole, Idea, LedgerEntry

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
    verdict = item.evaluation.verdict.value.replace("_", " ")
    reason = " ".join(item.evaluation.verification.reason.split())
    return f"{verdict}: {shortened(reason, _REASON_CHARACTERS)}"
