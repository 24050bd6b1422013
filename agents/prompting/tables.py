"""What was tried and how it went, as tables: ideas with what they brought, candidates with times.

Tables are cut to what helps a planner: the newest ideas, the fastest implementation of each
kind, the last failures.
"""

import re
from collections.abc import Iterable, Sequence
from math import inf

from kernelwright.tools.archive import Standing, ranked
from kernelwright.tools.types import Idea, LedgerEntry, Verdict

LEDGER_ROWS = 40
OLD_LEDGER_ROWS = 10
STANDING_ROWS = 12
FAILURES = 5
_REASON_CHARACTERS = 240


def ledger_table(ideas: Sequence[Idea], ledger: Sequence[LedgerEntry]) -> str:
    """Every idea tried, the newest last, with what it really did.

    Of many, the newest are shown, and of the older ones those that were fastest.
    """
    if not ideas:
        return "Nothing was tried yet."
    entries = {entry.idea: entry for entry in ledger}
    older, newer = ideas[:-LEDGER_ROWS], ideas[-LEDGER_ROWS:]
    fast = sorted(older, key=lambda idea: _reached_ms(entries.get(idea.id)))[:OLD_LEDGER_ROWS]
    shown = [*(idea for idea in older if idea in fast), *newer]
    rows = [_ledger_row(idea, entries.get(idea.id)) for idea in shown]
    cut = [f"({len(ideas) - len(shown)} older ideas are not shown.)"] * (len(shown) < len(ideas))
    return "\n".join((*cut, table("idea|what|category|predicted|measured|gain", rows)))


def standings_table(standings: Sequence[Standing]) -> str:
    """The fastest correct candidates, one an implementation, and the last failures."""
    best: dict[tuple[str, str], Standing] = {}
    for item in ranked(standings):
        best.setdefault((item.candidate.kernel, item.candidate.plan), item)
    fastest = list(best.values())[:STANDING_ROWS]
    failed = [item for item in standings if item.evaluation.verdict is not Verdict.CORRECT]
    if not fastest and not failed:
        return "No candidate was judged yet."
    parts = []
    if fastest:
        header = "candidate|idea|by|time|error|declared|settings"
        parts.append(table(header, [_standing_row(item) for item in fastest]))
    if failed:
        parts += ["The last that failed:", *(f"- {_failure(item)}" for item in failed[-FAILURES:])]
    return "\n".join(parts)


def _reached_ms(entry: LedgerEntry | None) -> float:
    return entry.measured_ms if entry and entry.measured_ms is not None else inf


def _ledger_row(idea: Idea, entry: LedgerEntry | None) -> str:
    measured, gain = "not measured yet", "-"
    if entry is not None:
        some = f"{entry.correct} of {entry.candidates} candidates correct"
        measured = milliseconds(entry.measured_ms) if entry.measured_ms else f"failed: {some}"
        gain = f"{entry.gain:.3g}x" if entry.gain else "-"
    what = f"{idea.title}: {idea.mechanism}"
    return row(idea.id, what, idea.category, milliseconds(idea.predicted_ms), measured, gain)


def _standing_row(item: Standing) -> str:
    candidate, found = item.candidate, item.evaluation
    error = found.verification.error_ratio
    return row(
        candidate.id,
        candidate.idea,
        item.author if item.author != "coder" else candidate.origin,
        milliseconds(found.median_ms),
        "-" if error is None else f"{error:.2g}x",
        ", ".join(candidate.strategies),
        " ".join(f"{setting.name}={setting.value}" for setting in candidate.settings),
    )


def _failure(item: Standing) -> str:
    reason = " ".join(item.evaluation.verification.reason.split())
    verdict = item.evaluation.verdict.value.replace("_", " ")
    idea = item.candidate.idea or "no idea"
    return f"{item.candidate.id} ({idea}): {verdict}: {shortened(reason, _REASON_CHARACTERS)}"


_CELL_CHARACTERS = 300


def fenced(language: str, text: str) -> str:
    """Text between fences that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def milliseconds(value: float | None) -> str:
    """A time with its unit, or a dash."""
    return "-" if value is None else f"{value:.4g} ms"


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text that is too long, and how much is missing between."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


def table(header: str, rows: Iterable[str]) -> str:
    """A table of rows made by `row`; the header's cells are separated by `|`."""
    names = header.split("|")
    return "\n".join((row(*names), row(*("---" for _ in names)), *rows))


def row(*cells: str) -> str:
    """A line of a table; what would break the table is replaced, and long cells are cut."""
    plain = (
        shortened(" ".join(cell.split()).replace("|", "/"), _CELL_CHARACTERS) for cell in cells
    )
    return f"| {' | '.join(plain)} |"
