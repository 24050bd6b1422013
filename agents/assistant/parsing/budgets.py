"""Finds limits: how much a search may spend, in English and German words.

Limits are rounds, time, tokens, money, and how thorough a search is to be. `ten more seconds` is
beyond what there is, `stop in ten seconds` is counted from now, `take up to 6 minutes` is of the
whole search. A count of tokens is a budget only where a cap is spoken of, as `4096 tokens` may be
the rows of an input. Not covered: money in other currencies than US dollars.
"""

import re
from typing import Literal

from kernelwright.tools.types import Value

Search = Literal["quick", "standard", "deep"]

_SMALL = (
    "zero|null", "one|an|a|another|ein|eine|einen|einer|einem|eins", "two|zwei", "three|drei",
    "four|vier", "five|fünf|fuenf", "six|sechs", "seven|sieben", "eight|acht", "nine|neun",
    "ten|zehn", "eleven|elf", "twelve|zwölf|zwoelf",
)  # fmt: skip
_NUMBERS = {word: float(value) for value, of in enumerate(_SMALL) for word in of.split("|")}
_NUMBERS |= {
    "fifteen": 15, "fünfzehn": 15, "twenty": 20, "zwanzig": 20, "thirty": 30, "dreißig": 30,
    "dreissig": 30, "forty": 40, "vierzig": 40, "forty-five": 45, "fifty": 50, "fünfzig": 50,
    "sixty": 60, "sechzig": 60, "ninety": 90, "neunzig": 90, "hundred": 100, "hundert": 100,
    "a hundred": 100, "one hundred": 100, "two hundred": 200, "five hundred": 500,
    "thousand": 1000, "tausend": 1000, "a thousand": 1000, "one thousand": 1000,
    "half an": 0.5, "half a": 0.5, "half": 0.5, "halbe": 0.5, "eine halbe": 0.5,
    "einer halben": 0.5, "a halbe": 0.5, "quarter of an": 0.25, "a quarter of an": 0.25,
    "a quarter": 0.25, "anderthalb": 1.5, "eineinhalb": 1.5, "one and a half": 1.5,
    "two and a half": 2.5, "zweieinhalb": 2.5, "a few": 3, "ein paar": 3, "a paar": 3,
    "some": 3, "einige": 3, "a couple of": 2, "a couple": 2,
}  # fmt: skip
_TIMES: dict[str, float] = {
    "k": 1e3, "thousand": 1e3, "tausend": 1e3, "m": 1e6, "million": 1e6, "millions": 1e6,
    "mio": 1e6, "millionen": 1e6, "": 1.0,
}  # fmt: skip
_FIGURE = r"\d{1,3}(?:[.,']\d{3})+(?![\d.,]*\d)|\d{1,9}(?:[.,]\d{1,4})?"
_WORD = "|".join(sorted(map(re.escape, _NUMBERS), key=len, reverse=True))
_COUNT = (
    rf"(?:(?P<figure>{_FIGURE})[ -]?(?P<times>(?:k|thousand|tausend|million|mio|millionen|m)"
    rf"(?=[ -]))?|(?P<word>\b(?:{_WORD})(?=[ -])))"
)
_MORE_WORDS = (
    r"more|additional|further|extra|other|longer|noch|weitere[nrms]?|zusätzliche[nrms]?|mehr"
)
_BETWEEN = rf"[ -]?(?:(?:{_MORE_WORDS}|full|whole|ganze[nr]?|volle[nr]?|of|a|an) )*"
_ROUNDS = re.compile(rf"{_COUNT}{_BETWEEN}(?:rounds?|runden?)\b")
_UNTIL_ROUND = re.compile(
    r"\b(?:after|until|till|nach|bis(?: zu)?) (?:the )?(?:end of )?(?:round|runde) "
    r"(?P<number>\d{1,4})\b"
)
_THIS_ROUND = re.compile(
    r"\b(?:after|at the end of|with|finish|complete|nach|mit|am ende)(?: of)? "
    r"(?:this|the (?:current|present|running)|dieser|der|die|diese) (?:(?:laufenden|aktuellen) )?"
    r"(?:round|runde)\b"
)
_TIME = re.compile(
    rf"{_COUNT}{_BETWEEN}"
    r"(?P<unit>hours?|hrs?|h|stunden?|std|minutes?|mins?|minuten?|m|seconds?|secs?|sekunden?"
    r"|sek|s)\b(?P<half> and a half\b)?|\b(?P<quarter>(?:drei)?viertelstunde)\b"
    r"|\bhalben? (?P<halfhour>stunde|minute)\b"
)
_TOKENS = re.compile(rf"{_COUNT}{_BETWEEN}(?:llm |model |output |api )?(?:tokens?|toks?)\b")
_TOKENS_BEFORE = re.compile(
    r"\b(?:tokens?|token.?(?:budget|limit|cap))(?: (?:budget|limit|cap|use|usage))?"
    rf"(?: to| of| at| is| on| auf| von|:|=)+ ?(?P<figure>{_FIGURE}) ?"
    r"(?P<times>k|thousand|tausend|million|mio|m)?\b"
)
_MONEY = re.compile(
    rf"(?:us ?)?\$ ?(?P<behind>{_FIGURE})(?! ?(?:cents?|ct)\b)"
    rf"|{_COUNT}{_BETWEEN}(?:(?P<dollars>\$|usd\b|(?:us.)?dollars?\b|bucks?\b)"
    r"|(?P<cents>us.?cents?\b|cents?\b|ct\b|¢))"
)
_CAP = re.compile(
    r"\b(?:at (?:the )?most|not? more than|less than|fewer than|up to|max(?:imum|imal)?|budget"
    r"|limit\w*|cap(?:ped)?|spend|within|no higher than|under|below|stay"
    r"|höchstens|hoechstens|maximal|bis zu"
    r"|nicht (?:mehr|more) als|not more als|begrenz\w*|beschränk\w*|stop after|stop at|ausgeben"
    r"|verbrauch\w*|only)\b"
)
_NO_MORE_THAN = re.compile(
    r"\b(?:not?|nicht|nie) (?:use |spend |take |needs? )?(?:more|mehr|longer|länger) (?:than|als)\b"
)
_MORE = re.compile(rf"\b(?:{_MORE_WORDS}|another)\b")
_FROM_NOW = re.compile(
    r"\b(?:in|after|nach)\b (?:another |the next |weiteren? |more |noch )*(?:\d|[a-zäöüß-]+ )"
)
_ENDS = re.compile(
    r"\b(?:stop|end|finish|quit|abort|wrap up|be done|halt|stopp\w*|beende\w*|aufhören|aufhoeren"
    r"|hör\w* (?:.{1,30} )?(?:auf|on)|ende|schluss|schluß|abbrechen|fertig)\b"
)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_KIND = (
    r"(?:search|run|one|optimi[sz]ation|look|mode|pass|suche|suchlauf|lauf|durchlauf|optimierung)"
)
_DEPTHS: tuple[tuple[Search, str], ...] = (
    ("quick", r"quick(?:ly)?|fast|short|brief|small|rapid|cheap|schnelle?[nrms]?|kurze?[nrms]?"
              r"|kleine?[nrms]?|rasche?[nrms]?"),
    ("standard", r"standard|normale?[nrms]?|default|usual|medium|regular|übliche?[nrms]?"
                 r"|mittlere?[nrms]?"),
    ("deep", r"deep(?:er|ly)?|thorough(?:ly)?|long|extensive(?:ly)?|exhaustive(?:ly)?|big|full"
             r"|serious|intensive(?:ly)?|gründliche?[nrms]?|gruendliche?[nrms]?|tiefe?[nrms]?"
             r"|lange?[nrms]?|ausführliche?[nrms]?|umfassende?[nrms]?|intensive?[nrms]?"),
)  # fmt: skip
_ASKS_DEEP = re.compile(
    r"\b(?:take your time|be thorough|go deep|lass dir zeit|nimm dir zeit"
    r"|(?:gründlich|gruendlich|ausführlich|intensiv|tief) (?:such|search|optimier)\w*)\b"
)
_DEPTHS_FOUND = tuple(
    (
        name,
        re.compile(
            rf"\b(?:{words}) {_KIND}\b"
            rf"|\b(?!run fast)(?:search|go|run|do it|start|suche?|optimi[sz]e|optimiere)"
            rf"(?: it| this)? (?:{words})(?=$|[ ,.!?;])(?! (?:enough|as)\b)"
        ),
        re.compile(words),
        re.compile(rf"\b(?:{words})(?= {_KIND}\b)"),
    )
    for name, words in _DEPTHS
)

_BEFORE_LIMITS = re.compile(
    r"\b(?:for|with|in|within|up to|at most|about|around|and|of|only|max(?:imum)?|a|an"
    r"|not? more than|nicht mehr als|using|do|take|run|spend|höchstens|maximal|bis zu|für)\s*$"
)


class Limits(Value):
    """What was said of rounds, time, tokens and dollars; None where nothing was.

    `more` is said of what comes on top of what there is, `from_now` of what is counted from the
    moment of saying it: `stop in ten seconds`, `stop after this round` (0 further rounds).
    """

    rounds: int | None = None
    seconds: float | None = None
    search: Search | None = None
    tokens: int | None = None
    usd: float | None = None
    more: bool = False
    from_now: bool = False

    @property
    def any(self) -> bool:
        """Whether anything was said."""
        return self.amounts or self.search is not None

    @property
    def amounts(self) -> bool:
        """Whether anything that can be counted was said."""
        return (self.rounds, self.seconds, self.tokens, self.usd) != (None,) * 4


def limits_in(words: str) -> Limits:
    """The limits that a clause of plain words names."""
    rounds, seconds = rounds_in(words), seconds_in(words)
    from_now = bool(_ENDS.search(words)) and (
        bool(_THIS_ROUND.search(words)) or (seconds is not None and bool(_FROM_NOW.search(words)))
    )
    return Limits(
        rounds=rounds,
        seconds=seconds,
        search=depth_in(words),
        tokens=tokens_in(words),
        usd=usd_in(words),
        more=bool(_MORE.search(_NO_MORE_THAN.sub(" ", words))),
        from_now=from_now,
    )


_OF_THE_SEARCH = re.compile(
    r"\b(?:take|give|search|spend|use|look|have|need no more|nimm"
    r"|gib|such\w*|brauch\w*|dauern|hast)\b"
)
_POLITE = r"(?:please|bitte|and|und|but|aber|be|it|do|mach|es|only|nur|very|sehr|a|eine?n?)"


def limits_beforehand(text: str) -> Limits:
    """What a first message says of the search to come, beside what it is about.

    `make this faster, a deep search`, `mach das schneller, höchstens 2 Minuten`, `..., gründlich`.
    A time counts where the clause is about the search: `it takes 2 seconds` is not.
    """
    found = Limits()
    for clause in re.split(r"[,;.!?\n]+(?:\s|$)", text.lower()):
        said = limits_in(" ".join(clause.split())).model_dump(exclude={"more", "from_now"})
        if not (_CAP.search(clause) or _OF_THE_SEARCH.search(clause)):
            said["seconds"] = None
        said["search"] = said["search"] or _depth_alone(clause)
        known = {name: value for name, value in said.items() if value is not None}
        found = found.model_copy(update=known)
    return found


def _depth_alone(clause: str) -> Search | None:
    """A clause of nothing but a depth: `quick please`, `gründlich`."""
    rest = " ".join(re.sub(rf"\b{_POLITE}\b", " ", clause).split())
    if rest == "fast":  # the kernel is to be, as a rule
        return None
    return next((name for name, words in _DEPTHS if re.fullmatch(words, rest)), None)


def rounds_in(words: str) -> int | None:
    """Rounds: `3 rounds`, `after round 3`, and 0 of `stop after this round`."""
    if _THIS_ROUND.search(words):
        return 0 if _ENDS.search(words) else None
    if until := _UNTIL_ROUND.search(words):
        return int(until["number"])
    found = _ROUNDS.search(words)
    return int(_amount(found)) if found else None


def seconds_in(words: str) -> float | None:
    """Seconds: `6 minutes`, `half an hour`, `1 min 30 s`, `anderthalb Stunden`."""
    found = [_duration(match) for match in _TIME.finditer(_apart(words))]
    return sum(found) if found else None


def tokens_in(words: str) -> int | None:
    """Tokens, where a cap is spoken of: `at most 10k tokens`, `a token budget of 5000`."""
    if not (_CAP.search(words) or _NO_MORE_THAN.search(words)):
        return None
    if behind := _TOKENS_BEFORE.search(words):
        return int(_figure(behind["figure"]) * _TIMES[behind["times"] or ""])
    match = _TOKENS.search(words)
    return int(_amount(match)) if match else None


def usd_in(words: str) -> float | None:
    """US dollars: `$2`, `2 dollars`, `50 cents`."""
    match = _MONEY.search(words)
    if match is None:
        return None
    if match["behind"]:
        return _figure(match["behind"])
    return round(_amount(match) / (100.0 if match["cents"] else 1.0), 6)


def depth_in(words: str) -> Search | None:
    """How thorough a search is to be: `a deep search`, `search thoroughly`, `quick`."""
    for name, said, alone, _ in _DEPTHS_FOUND:
        if said.search(words) or alone.fullmatch(words):
            return name
    return "deep" if _ASKS_DEEP.search(words) else None


def without_limits(words: str) -> str:
    """The words that are left when limits are taken out, joined as they stood."""
    rest = _apart(words)
    if tokens_in(rest) is not None:
        rest = _TOKENS.sub(" ", _TOKENS_BEFORE.sub(" ", rest))
    for pattern in (_MONEY, _THIS_ROUND, _UNTIL_ROUND, _ROUNDS, _TIME):
        rest = pattern.sub(" ", rest)
    for _, _, _, before in _DEPTHS_FOUND:
        rest = before.sub(" ", rest)
    return " ".join(_BEFORE_LIMITS.sub(" ", rest.strip()).split())


def _apart(words: str) -> str:
    """`5m30s` as two parts."""
    return re.sub(r"(?<=\d)(h|min|m|s)(?=\d)", r"\1 ", words)


def _duration(match: re.Match[str]) -> float:
    if match["quarter"]:
        return 2700.0 if match["quarter"].startswith("drei") else 900.0
    if match["halfhour"]:
        return 1800.0 if match["halfhour"] == "stunde" else 30.0
    count = _amount(match) + (0.5 if match["half"] else 0.0)
    return count * _UNITS[match["unit"][0] if match["unit"][:2] != "st" else "h"]


def _amount(match: re.Match[str]) -> float:
    """The number before a unit."""
    if match["figure"]:
        return _figure(match["figure"]) * _TIMES[match["times"] or ""]
    return _NUMBERS[match["word"]]


def _figure(text: str) -> float:
    """A number with a point or comma, of thousands before three digits and decimal otherwise."""
    if re.fullmatch(r"[1-9]\d{0,2}(?:[.,']\d{3})+", text):
        return float(re.sub(r"\D", "", text))
    return float(text.replace(",", ".").replace("'", ""))
