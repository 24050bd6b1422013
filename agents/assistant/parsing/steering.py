"""Understands where a person wants a search to look: hints, pins, bans, and taking them back.

What is named stays in the person's words, ideas apart (`idea 3`). A hint works where its words
occur in an idea, and the playbook says `vectors` where people say vectorised loads, SIMD or float4:
synonyms translate one into the other. Language models read the person's words and need none.
"""

import re
from collections.abc import Callable

from kernelwright.agents.assistant.parsing.changes import PRECISION, precisions_in
from kernelwright.agents.assistant.parsing.names import ideas_in
from kernelwright.agents.assistant.types import ShowSteering, Steer
from kernelwright.agents.shared.facts import Steering

_TOPICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"vectori[sz]\w*|vector (?:loads?|access\w*|instructions?|width)|simd|avx\S*|float[24]|"
     r"128.?bit|wide(?:r)? (?:loads?|vectors?|access\w*)|sse\S*", ("vector", "vectors")),
    (r"shared mem\w*|smem|scratchpad|shmem", ("shared",)),
    (r"regist\w+", ("registers",)),
    (r"warps?|shuffles?|shfl\S*|warp.?level|lane\w*", ("warp",)),
    (r"one.?pass|single.?pass|online|streaming softmax|fewer passes", ("online", "one pass")),
    (r"re.?comput\w+|re.?read\w*|two.?pass", ("recomputing", "re-read")),
    (r"cach(?:e|ed|ing)|row.?buffers?|blocking", ("cache",)),
    (r"l2\b.*", ("l2",)),
    (r"cp\.?async|async\w*|double.?buffer\w*|pipelin\w+|prefetch\w*|tma", ("asynchronous",)),
    (r"persistent\b.*|resident\b.*", ("persistent", "resident")),
    (r"split\w*|more (?:parallelism|blocks|threads)|occupancy|parallelism",
     ("split", "parallelism")),
    (r"fus(?:e|ed|ing|ion)\b.*", ("fused", "fusion")),
    (r"coalesc\w*|contiguous\b.*", ("consecutive", "contiguous")),
    (r"til(?:e|es|ed|ing)\b.*", ("tile", "tiles")),
    (r"stream\w*", ("streamed", "streaming")),
)  # fmt: skip
_AROUND = r"(?:\w+ ){0,4}?(?:%s)(?: \w+){0,2}"


def in_playbook_words(command: str) -> tuple[str, ...]:
    """The hint, and what else says the same in the playbook's ideas."""
    said = command.strip().lower()
    for pattern, words in _TOPICS:
        if re.fullmatch(_AROUND % pattern, said):
            return tuple(dict.fromkeys((command, *words)))
    return (command,)


def topic(text: str) -> str:
    """What a wish is about: the same for words that mean the same, such as fp16 and half."""
    said = text.strip().lower()
    lower, rest = precisions_in(said), PRECISION.sub(" ", said)
    if lower and not re.search(
        r"\w", re.sub(r"\b(?:in|use|using|anything|kernels?|any)\b", "", rest)
    ):
        return f"precision {' '.join(lower)}"
    for pattern, words in _TOPICS:
        if re.fullmatch(_AROUND % pattern, said):
            return words[0]
    return re.sub(r"^(?:any|the|a|an|use of|using) ", "", said)


def widened(steering: Steering) -> Steering:
    """The same steering in the person's words and in the playbook's."""
    return Steering(hints=_all(steering.hints), pins=_all(steering.pins), bans=_all(steering.bans))


def _all(commands: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for command in commands for word in in_playbook_words(command)))


# Stands for all hints, pins and bans when they are taken back.
EVERYTHING = "everything"

_AVOID = (
    r"(?:stop|quit|cease|no more|enough) (?:of )?(?:try|us|mess|explor|do|work|"
    r"consider|generat|writ|"
    r"propos|wast)\w*(?: (?:out|time|with|on))*",
    r"(?:do not|never|you must not|you should not|not|no need to) (?:use|try|explore|touch|consider"
    r"|do|go for|bother with|waste time on|rely on|allow|want|propose|write|generate)(?: any)?",
    r"(?:avoid|ban|exclude|forbid|skip|drop|without|leave out|rule out|stay away from|"
    r"keep away from"
    r"|steer clear of|disallow|block|get rid of|no more|enough of|enough with|less|not|refrain from"
    r"|i (?:hate|dislike)|i do not (?:like|want|trust)|away with|stop with|stop)"
    r"(?: any| all| every)?",
    r"(?:no|nothing with|nothing using)(?: more)?",
)
_FORGET = (
    r"(?:un-?ban|un-?pin|un-?block|forget|lift|remove|delete|clear|reset|take back|undo|revoke|drop"
    r"|withdraw|cancel|release|ignore)(?: (?:about|what i said about|my|previous|last|"
    r"earlier|the|all|any|every|"
    r"that|ban|bans|pin|pins"
    r"|hint|hints|wish|wishes|rule|steering|restrictions?|constraints?|instructions?|"
    r"on|for|of|against"
    r"|said))*",
    r"(?:allow|permit|re-?enable|bring back|reconsider)(?: for)?",
    r"(?:use|try|you (?:may|can) (?:use|try)|look at|consider)",
)
_TAKEN_BACK = re.compile(
    r"\b(?:ban|pin|hint|said|steering|wish|restrict|constrain|rule|instr|un-?pin|un-?ban|un-?block|"
    r"forget|everything|lift)"
)
_FIRST = (
    r"(?:pin|prioriti[sz]e|only(?: use| try| consider| explore)?|stick (?:to|with)|begin with"
    r"|start with|commit to|insist on|go all in on|put .{0,3}first|definitely (?:use|try)"
    r"|always (?:use|try)|must use|limit yourself to|restrict yourself to|first(?: try| do)?)",
)
_TOWARDS = (
    r"(?:focus(?: more)?|concentrate(?: more)?|work(?: more)?|zoom in|home in|"
    r"spend (?:more|some)? ?"
    r"(?:time|effort|budget)|put more effort|double down) (?:on|into|in)",
    r"(?:try|explore|look (?:at|into)|consider|prefer|favou?r|lean towards?|go for|aim for|use"
    r"|experiment with|investigate|think about|what about|how about|more focus on|"
    r"what if (?:you|we) (?:used?|"
    r"tried|try)|go (?:on )?(?:with|from)|build on|more of|more|follow up on|"
    r"hint(?: at)?:?|test|play with"
    r"|exploit|take advantage of|make use of|see (?:if|whether)|maybe|push|pursue|i (?:like|prefer)"
    r"|i would (?:try|use)|add|switch to|move to|apply)"
    r"(?: out| using| with| some| more| harder| also)*",
)
_BUDGET = re.compile(
    r"(?:give|grant|spend|put|allocate|assign)(?: some| a little)?(?: more (?:budget|"
    r"time|effort|tries"
    r"|attempts|priority|attention|room|chances?|weight) (?:to|on|for|into|in))? (?P<what>.+?)"
    r"(?: (?:some |a )?(?:more|extra|another|additional|higher|second) (?:budget|time|"
    r"effort|tries|try"
    r"|attempts?|priority|attention|room|chances?|candidates?|weight))?"
)
_AFTER: tuple[tuple[str, str], ...] = (
    (r"(?P<what>.+?) (?:is|are) (?:allowed|fine|ok|okay|good)(?: again)?", "forget"),
    (r"(?:could|would|might|can|will) (?P<what>.+?) (?:help|be faster|be better|make sense"
     r"|be worth (?:it|a try)|make a difference|work)", "hints"),
    (r"(?P<what>.+?) (?:is|are) (?:forbidden|banned|not allowed|off limits|out|useless|a dead end"
     r"|a waste of time|not an option|pointless|a bad idea)", "bans"),
    (r"(?P<what>.+?) (?:first|at first|before anything else|has priority|is a must|needs? more "
     r"(?:budget|time|effort))", "pins"),
    (r"(?P<what>.+?) (?:looks?|seems?|is|are|sounds?) (?:promising|interesting"
     r"|worth (?:a try|trying|it)|a good idea|the way to go)", "hints"),
)  # fmt: skip
# Words around what is meant.
_STEERING_AROUND = re.compile(
    r"^(?:(?:the|a|an|any|all|some|more|using|use of|with|on|to|from|of|trying|doing|about|your|my|"
    r"that|those|these|this|such|something|anything|like|things like|stuff like|into|"
    r"it with|them with|for)\s+)+"
    r"|\s+(?:stuff|things?|ideas?|approach(?:es)?|tricks?|techniques?|strateg(?:y|ies)|anymore|"
    r"any more|any longer|again|instead|first|for a while|at all|anywhere|everywhere|"
    r"altogether|please|more|direction|path|route|"
    r"whatsoever|kind of (?:things?|stuff)|as an? (?:starting point|basis|base|start|template))+$"
)
_LAST_WORD = re.compile(r"(?:undo|revert|take|withdraw) (?:that|it|this|the last one)(?: back)?")
_SO = re.compile(
    r",? (?:so )?(?:drop|skip|forget|leave|ignore|stop|avoid|try|use|do|"
    r"do not use) (?:it|that|them)$"
)
# Behind these stands what there was before.
_RATHER = re.compile(r" (?:instead of|rather than|in place of|over) [^,;]+$")
_PARTS = re.compile(r"\s*(?:,|;|\band\b|\bor\b|&|\+|\bas well as\b|\bnor\b)\s*")
_ALL = re.compile(
    r"(?:everything|all|it all|all of (?:it|them|that|this)|steering|hints?|pins?|bans?|wishes|"
    r"(?:everything |all )?(?:what |that )?i (?:said|told you|asked)|restrictions?|"
    r"constraints?|instructions?|rules?|that|it)?"
)
_NOTHING = re.compile(
    r"(?:(?:after|before|when|if|until|once|in) .*|it|this|that|them|one|ones|me|you|"
    r"search(?:ing)?|run(?:ning)?|now|anything|"
    r"something|everything"
    r"|task|module|harder|better|faster|else|something else|way|go|yes|no|time|good|so|\W*)"
)


def steering_in(words: str) -> Steer | ShowSteering | None:
    """What a clause asks of the search; None when it asks nothing of the kind."""
    words = _RATHER.sub("", ideas_in(words))
    if _LAST_WORD.fullmatch(words):
        return ShowSteering()  # where each can be taken back
    forget = _forgotten(words)
    if forget:
        return Steer(forget=forget)
    for command, openings in _KINDS:
        if what := _behind(openings, words):
            return command(what)
    if (given := _BUDGET.fullmatch(words)) and given["what"] != words.split(" ", 1)[-1]:
        return Steer(pins=_listed(given["what"])) if _listed(given["what"]) else None
    return _said_after(words)


def _bans(what: tuple[str, ...]) -> Steer:
    return Steer(bans=what)


def _pins(what: tuple[str, ...]) -> Steer:
    return Steer(pins=what)


def _hints(what: tuple[str, ...]) -> Steer:
    return Steer(hints=what)


_KINDS: tuple[tuple[Callable[[tuple[str, ...]], Steer], tuple[str, ...]], ...] = (
    (_bans, _AVOID),
    (_pins, _FIRST),
    (_hints, _TOWARDS),
)


def _behind(openings: tuple[str, ...], words: str) -> tuple[str, ...]:
    for opening in openings:
        if match := re.fullmatch(rf"{opening}:? (?P<what>.+)", words):
            return _listed(match["what"])
    return ()


def _forgotten(words: str) -> tuple[str, ...]:
    """What is taken back; `allow X` does so too, as nothing else can have stood against it."""
    taken, allowed, again = _FORGET
    if match := re.fullmatch(rf"{taken}(?: (?P<what>.+))?", words):
        what = (match["what"] or "").strip()
        if not _TAKEN_BACK.search(words):
            return ()
        return (EVERYTHING,) if _ALL.fullmatch(what) else _listed(what)
    match = re.fullmatch(rf"{allowed} (?P<what>.+)|{again} (?P<once>.+?) again", words)
    return _listed(match["what"] or match["once"]) if match else ()


def _said_after(words: str) -> Steer | None:
    words = _SO.sub("", words)
    for pattern, field in _AFTER:
        match = re.fullmatch(pattern, words)
        if match and (what := _listed(match["what"])):
            return Steer.model_validate({field: what})
    return None


def _listed(text: str) -> tuple[str, ...]:
    """The things that are named, each without the words around it."""
    found = []
    for part in _PARTS.split(text):
        part = part.strip(" .,!?:;\"'()")
        before = None
        while part != before:
            before, part = part, _STEERING_AROUND.sub("", part).strip()
        if part and not _NOTHING.fullmatch(part):
            found.append(part[:120])
    return tuple(dict.fromkeys(found))
