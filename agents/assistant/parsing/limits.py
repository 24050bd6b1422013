"""Finds how much may be spent: rounds, time, and how thorough a search is to be."""

import re
from typing import Literal

from kernelwright.agents.assistant.parsing.names import number
from kernelwright.tools.types import Value

Search = Literal["quick", "standard", "deep"]

_COUNT = (
    r"\d{1,4}|an?|another|one|two|three|four|five|six|seven|eight|nine|ten|twelve|"
    r"a few|a couple of"
)
_ROUNDS = re.compile(
    rf"\b(?P<count>{_COUNT}) (?:more |additional |further |extra |other )*rounds?\b"
)
_TIME = re.compile(
    r"\b(?:(?P<half>half an? )|(?P<count>\d{1,6}(?:\.\d+)?)[ -]?|(?P<words>an?|"
    r"another|one|two|three|"
    r"four|five|ten|fifteen|twenty|thirty|a few|a couple of) )(?:more |additional |"
    r"further |extra )*"
    r"(?P<unit>hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)\b"
)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_WORDS = {
    "a": 1.0,
    "an": 1.0,
    "another": 1.0,
    "fifteen": 15.0,
    "twenty": 20.0,
    "thirty": 30.0,
    "a few": 3.0,
    "a couple of": 2.0,
}
_SEARCHES: tuple[tuple[Search, str], ...] = (
    ("quick", r"quick|fast|short|brief|small|rapid|cheap"),
    ("standard", r"standard|normal|default|usual|medium|regular"),
    ("deep", r"deep(?:er)?|thorough(?:ly)?|long|extensive|exhaustive|big|full|serious"),
)


class Limits(Value):
    """What was said of rounds and seconds; None where nothing was."""

    rounds: int | None = None
    seconds: float | None = None
    search: Search | None = None

    @property
    def any(self) -> bool:
        """Whether anything was said."""
        return self != Limits()


def limits_in(words: str) -> Limits:
    """The limits that a clause names."""
    rounds = _ROUNDS.search(words)
    return Limits(
        rounds=_rounds(rounds["count"]) if rounds else None,
        seconds=_seconds(words),
        search=_search(words),
    )


def without_limits(words: str) -> str:
    """The words that are left when limits are taken out, joined as they stood."""
    rest = _TIME.sub(" ", _ROUNDS.sub(" ", words))
    for _, pattern in _SEARCHES:
        rest = re.sub(rf"\b(?:{pattern})(?= (?:search|run|one|optimi[sz]ation)\b)", " ", rest)
    rest = re.sub(r"\b(?:for|with|in|within|up to|at most|about|around|and|of|only|max(?:imum)?|a|"
                  r"an|no more than|using|do|take|run|spend)\s*$", " ", rest.strip())  # fmt: skip
    return " ".join(rest.split())


def _rounds(count: str) -> int:
    return int(_WORDS.get(count) or number(count))


def _seconds(words: str) -> float | None:
    found = [_duration(match) for match in _TIME.finditer(words)]
    return sum(found) if found else None


def _duration(match: re.Match[str]) -> float:
    if match["half"]:
        count = 0.5
    elif match["count"]:
        count = float(match["count"])
    else:
        count = _WORDS.get(match["words"]) or float(number(match["words"]))
    return count * _UNITS[match["unit"][0]]


def _search(words: str) -> Search | None:
    for name, pattern in _SEARCHES:
        if re.search(rf"\b(?:{pattern}) (?:search|run|one|optimi[sz]ation|look)\b", words):
            return name
        if re.search(rf"\b(?:search|go|run|do it|start|optimi[sz]e) (?:{pattern})\b", words):
            return name
    return next((name for name, pattern in _SEARCHES if re.fullmatch(pattern, words)), None)
