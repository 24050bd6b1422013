"""Answers to an open question, and offers where a message was not understood."""

import re
from collections.abc import Sequence

from kernelwright.agents.assistant.parsing.names import number
from kernelwright.agents.assistant.types import (
    AskDoctor,
    AskForHelp,
    AuditTask,
    CancelTask,
    Command,
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    ListRuns,
    MeasureAgain,
    Offer,
    PauseSearch,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    StartSearch,
    Steer,
    StopSearch,
    Turn,
)

_YES = re.compile(
    r"(?:y|yes|yep|yeah|yup|ya|ja|jawohl|klar|sure(?: thing)?|ok(?:ay)?|k|go|go ahead|"
    r"go for it|do it|do that|let us (?:go|do it|do that)|start|fine|"
    r"of course|absolutely|definitely|certainly|please do|yes please|sounds good|"
    r"looks good|good|great|perfect|correct|right|exactly|confirm(?:ed)?|"
    r"approve[d]?|agreed|alright|all right|that is (?:right|fine|ok|good|correct)|"
    r"go on|proceed|los|passt|mach(?: das)?|why not|by all means|lgtm|\+1|👍)"
    r"(?:[ ,.!]+(?:please|go(?: ahead)?|do it|do that|that|yes|it|thanks|thank you|"
    r"sure|start|then|export(?: it)?|approved?|of course))*"
)
_NO = re.compile(
    r"(?:n|no|nope|nah|nein|nee|no thanks|no thank you|not now|not yet|cancel|"
    r"never ?mind|do not|rather not|abort|stop|leave it|lieber nicht|later|"
    r"do not do (?:it|that)|forget it|lass mal|abbrechen|👎)(?:[ ,.!]+(?:thanks|"
    r"thank you|do not|please|cancel|never mind|it|that|stop|not now))*"
)
_NTH = re.compile(
    r"(?:(?:the |option |number |no\.? |take |use |choose |pick |button |"
    r"#)*)(?P<n>\d{1,2}|one|two|three|four|five|first|second|third|fourth|fifth|last|"
    r"\d(?:st|nd|rd|th))(?: (?:one|option|choice|offer|button|please))*"
)


def is_yes(words: str) -> bool:
    """Whether a message agrees and says nothing else."""
    return bool(_YES.fullmatch(words))


def is_no(words: str) -> bool:
    """Whether a message declines and says nothing else."""
    return bool(_NO.fullmatch(words))


def answer_in(words: str, offers: Sequence[Offer]) -> Command | None:
    """The offer that a message takes; None when it takes none, or declines what has no button."""
    if not offers:
        return None
    for offer in offers:
        if words and words == _comparable(offer.label):
            return offer.wish
    if is_yes(words):
        return next((offer.wish for offer in offers if not _declines(offer) and _mild(offer)), None)
    if is_no(words):
        return next((offer.wish for offer in offers if _declines(offer)), None)
    return _nth(words, offers) or _begun(words, offers)


def _nth(words: str, offers: Sequence[Offer]) -> Command | None:
    match = _NTH.fullmatch(words)
    if match is None:
        return None
    which = len(offers) if match["n"] == "last" else number(match["n"])
    return offers[which - 1].wish if 1 <= which <= len(offers) else None


def _begun(words: str, offers: Sequence[Offer]) -> Command | None:
    """A label's beginning, where only one label begins so."""
    if len(words) < 3:
        return None
    found = [offer.wish for offer in offers if _comparable(offer.label).startswith(words)]
    return found[0] if len(found) == 1 else None


def _declines(offer: Offer) -> bool:
    label = _comparable(offer.label)
    return isinstance(offer.wish, CancelTask) or bool(
        re.match(r"(?:no|not|cancel|do not|don't|leave|keep)\b", label)
    )


def _mild(offer: Offer) -> bool:
    """A bare `yes` ends no search, whatever was guessed."""
    return not isinstance(offer.wish, StopSearch)


def _comparable(label: str) -> str:
    return " ".join(re.sub(r"[^\w\s+#.-]", " ", label.lower()).split()).strip(" .")


MOST = 4
_HINTS: tuple[tuple[str, Command], ...] = (
    (r"stop|end|halt|enough|done", StopSearch()),
    (r"paus|wait|hold|break", PauseSearch()),
    (r"measure|certif", MeasureAgain()),
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
# Commands that make no sense outside a search.
_LIVE = (StopSearch, PauseSearch)
_OF_RUN = (
    ContinueSearch,
    MeasureAgain,
    ExportResult,
    ShowCode,
    ExplainCandidate,
    ShowProfile,
    ShowLedger,
    ShowProgress,
)


def guesses(words: str, turn: Turn) -> tuple[Command, ...]:
    """A few commands that make sense now, those that the words remind of first."""
    hinted = [command for pattern, command in _HINTS if re.search(rf"\b(?:{pattern})", words)]
    found = [command for command in (*hinted, *_usual(words, turn)) if _possible(command, turn)]
    return tuple(dict.fromkeys(found))[:MOST]


def _usual(words: str, turn: Turn) -> tuple[Command, ...]:
    if turn.running:
        hint = (Steer(hints=(words[:80],)),) if len(words) > 2 else ()
        return (*hint, ShowProgress(), PauseSearch(), AskForHelp())
    if turn.run:
        return (ExplainCandidate(), ExportResult(), ContinueSearch(), AskForHelp())
    if turn.task:
        return (StartSearch(), AuditTask(), CancelTask(), AskForHelp())
    return (AskForHelp(), ListRuns(), AskDoctor())


def _possible(command: Command, turn: Turn) -> bool:
    if isinstance(command, _LIVE):
        return turn.running
    if isinstance(command, ContinueSearch):
        return bool(turn.run) and not turn.running
    if isinstance(command, _OF_RUN):
        return bool(turn.run)
    if isinstance(command, AuditTask):
        return bool(turn.task or turn.run)
    return True
