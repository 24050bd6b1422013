"""What a person may have meant with words that were not understood, as wishes for buttons."""

import re

from agents.assistant.assistant import Turn
from agents.assistant.wishes import (
    AskDoctor,
    AskForHelp,
    AuditTask,
    CancelTask,
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    ListRuns,
    PauseSearch,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    StartSearch,
    Steer,
    StopSearch,
    Wish,
)

MOST = 4
_HINTS: tuple[tuple[str, Wish], ...] = (
    (r"stop|end|halt|enough|done", StopSearch()),
    (r"paus|wait|hold|break", PauseSearch()),
    (r"contin|resum|go|more|again|further", ContinueSearch()),
    (r"export|down|take|home|result|file|zip|save", ExportResult()),
    (r"code|source|kernel|cuda|show|see", ShowCode()),
    (r"why|explain|how|reason|work", ExplainCandidate()),
    (r"profil|slow|bound|bottle|memory|bandwidth|occup", ShowProfile()),
    (r"idea|tri|try|attempt", ShowLedger()),
    (r"progress|status|far|doing|best|fast|time|result", ShowProgress()),
    (r"gpu|cuda|machine|device|compil", AskDoctor()),
    (r"run|earlier|yesterday|history|list", ListRuns()),
    (r"floor|limit|worth|audit|baseline", AuditTask()),
)
# Wishes that make no sense outside a search.
_LIVE = (StopSearch, PauseSearch)
_OF_RUN = (
    ContinueSearch,
    ExportResult,
    ShowCode,
    ExplainCandidate,
    ShowProfile,
    ShowLedger,
    ShowProgress,
)


def guesses(words: str, turn: Turn) -> tuple[Wish, ...]:
    """A few wishes that make sense now, those that the words remind of first."""
    hinted = [wish for pattern, wish in _HINTS if re.search(rf"\b(?:{pattern})", words)]
    found = [wish for wish in (*hinted, *_usual(words, turn)) if _possible(wish, turn)]
    return tuple(dict.fromkeys(found))[:MOST]


def _usual(words: str, turn: Turn) -> tuple[Wish, ...]:
    if turn.running:
        hint = (Steer(hints=(words[:80],)),) if len(words) > 2 else ()
        return (*hint, ShowProgress(), PauseSearch(), AskForHelp())
    if turn.run:
        return (ExplainCandidate(), ExportResult(), ContinueSearch(), AskForHelp())
    if turn.task:
        return (StartSearch(), AuditTask(), CancelTask(), AskForHelp())
    return (AskForHelp(), ListRuns(), AskDoctor())


def _possible(wish: Wish, turn: Turn) -> bool:
    if isinstance(wish, _LIVE):
        return turn.running
    if isinstance(wish, ContinueSearch):
        return bool(turn.run) and not turn.running
    if isinstance(wish, _OF_RUN):
        return bool(turn.run)
    if isinstance(wish, AuditTask):
        return bool(turn.task or turn.run)
    return True
