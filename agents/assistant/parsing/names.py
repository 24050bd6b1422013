"""Finds what a person refers to: candidates, rounds, ideas and runs, by number, rank or id."""

import re

from kernelwright.agents.assistant.types import Turn

_ORDINALS = [
    "zeroth",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]
_NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
_ORDINAL = rf"\d{{1,4}}(?:st|nd|rd|th)|{'|'.join(_ORDINALS[1:])}"
_NUMBER = rf"\d{{1,6}}|{'|'.join(_NUMBERS)}"
_NOUN = r"(?:candidate|version|kernel|variant|attempt|implementation|solution|one)"
_BEST = (
    r"(?:the )?(?:current |overall )?(?:best|fastest|quickest|winner|winning|top|"
    r"leader|leading|champion)\b"
)
_LAST = r"(?:the )?(?:last|latest|newest|most recent|previous)\b(?! round)"
_IT = r"\b(?:this|that)(?: (?:candidate|version|kernel|one))?\b|\bit\b"
_RANKED = rf"(?:the )?(?:(?P<rank>{_ORDINAL})[ -](?:best|fastest|quickest)|runner[ -]?up)\b"
_CANDIDATE = re.compile(
    rf"(?P<place>\b{_RANKED}(?: {_NOUN})?)"
    r"|\b(?:v|version|candidate|kernel|variant|attempt|number|no\.?|"
    rf"nr\.?)[ #]*(?P<number>\d{{1,6}})\b"
    rf"|#(?P<hash>\d{{1,6}})\b"
    rf"|\b(?P<ordinal>{_ORDINAL}) {_NOUN}\b"
    rf"|\b(?P<id>(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{{6,12}}|\d{{9,12}})\b"
    rf"|(?P<best>\b{_BEST}(?: {_NOUN})?)"
    rf"|(?P<last>\b{_LAST}(?: {_NOUN})?)"
)
_ROUND = re.compile(
    rf"\brounds? (?:number |no\.? |#)?(?P<number>{_NUMBER})\b|\b(?P<ordinal>{_ORDINAL}) round\b"
    r"|\b(?P<last>(?:the |this |that |last |latest |previous |current )+round)\b"
)
_IDEA = re.compile(
    rf"\bidea (?:number |no\.? |nr\.? |#)?(?P<number>{_NUMBER})\b|\b(?P<ordinal>{_ORDINAL}) idea\b"
)
# As in `softmax-1121-ab3f`.
_RUN = re.compile(r"\b[a-z][\w.]*(?:-[\w.]+)*-\d{4}-[0-9a-z]{2,8}\b")
_RUN_NAMED = re.compile(r"\brun (?:called |named |id )?(?P<name>[a-z0-9][\w.-]*[\w])")
_FILLERS = """
    it this that again now on once more the a an for with of is was and to in from
    yesterday today last
"""
_NO_NAMES = frozenset(_FILLERS.split())


def candidates_in(words: str, turn: Turn) -> tuple[str, ...]:
    """Candidates in the order they are spoken of; `it` is what was spoken of before."""
    found = [_named(match, turn) for match in _CANDIDATE.finditer(words)]
    if not found and re.search(_IT, words):
        found = list(spoken_of(turn))
    return tuple(dict.fromkeys(found))


def candidate_in(words: str, turn: Turn) -> str:
    """The candidate that is spoken of; the best where none is."""
    return next(iter(candidates_in(words, turn)), "best")


def spoken_of(turn: Turn) -> tuple[str, ...]:
    """The candidate that the conversation was last about, in the person's words."""
    for said, _ in reversed(turn.earlier):
        named = [_named(match, turn) for match in _CANDIDATE.finditer(said.lower())]
        if named:
            return tuple(named[-1:])
    return ()


def round_in(words: str) -> int | None:
    """The round that is spoken of, 0 being the last; None where none is."""
    match = _ROUND.search(words)
    if match is None:
        return None
    if match["last"]:
        return 0
    return number(match["number"] or match["ordinal"])


def ideas_in(words: str) -> str:
    """The words with every idea written as `idea 3`."""
    return _IDEA.sub(lambda match: f"idea {number(match['number'] or match['ordinal'])}", words)


def run_in(words: str) -> str:
    """The run that is named, by its id or the beginning of it; "" where none is."""
    if match := _RUN.search(words):
        return match[0]
    named = _RUN_NAMED.search(words)
    return named["name"] if named and named["name"] not in _NO_NAMES else ""


def number(text: str) -> int:
    """A number in figures or words, as a count or as a rank."""
    if text in _ORDINALS:
        return _ORDINALS.index(text)
    if text in _NUMBERS:
        return _NUMBERS.index(text)
    return int(re.sub(r"\D", "", text) or 0)


def _named(match: re.Match[str], turn: Turn) -> str:
    if match["place"]:
        return f"best {number(match['rank'] or 'second')}"
    if match["best"]:
        return "best"
    if match["last"]:
        return f"v{len(turn.candidates)}" if turn.candidates else "best"
    if match["id"]:
        return match["id"]
    return f"v{number(match['number'] or match['hash'] or match['ordinal'])}"
