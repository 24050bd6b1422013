"""Understands changes of the task on the table: shapes, element types, precision, entry, device."""

import re

from agents.assistant.assistant import Turn
from agents.assistant.reading.devices import device_in, is_only_device
from agents.assistant.reading.shapes import PRECISION, TYPE, precisions_in, shapes_in
from agents.assistant.reading.sizes import sizes_in
from agents.assistant.wishes import ChangeTask, Steer, Wish

_AGAINST = re.compile(
    r"\b(?:no|not|never|without|avoid|ban|forbid|exclude|stop|disallow|un-?ban|forget|"
    r"focus|why|what|how)\b"
)
_ALLOWED = re.compile(
    r"\b(?:allow\w*|permit\w*|use|using|in|with|fine|ok|okay|accept\w*|may|can|"
    r"precision|let|to|want|need|set|change|switch|make|try|at|enable|good|enough|run|"
    r"dtype|type|go)\b"
)
_ENTRY = re.compile(
    r"\b(?:use|take|optimi[sz]e|entry(?: point)?(?: is|:|=)?|pick|choose|i mean(?:t)?|"
    r"with|called|try|do)(?: the)? (?:(?:class|function|module|entry|"
    r"def) )(?P<after>[A-Za-z_]\w*)"
    r"|\bentry(?: point)?(?: is|:|=| to)? (?P<entry>[A-Za-z_]\w*)"
    r"|\b(?:use|take|optimi[sz]e|pick|choose|"
    r"i mean(?:t)?)(?: the)? (?P<before>[A-Za-z_]\w*) (?:class|function|module|"
    r"entry)\b",
    re.IGNORECASE,
)
_FILLERS = """
    the a my this that it one point is other first second whole same default
"""
_NO_ENTRIES = frozenset(_FILLERS.split())


def change_in(words: str, said: str, turn: Turn) -> Wish | None:
    """What a clause changes of the task; `said` are its words as written, for names in them."""
    if resized := resizing_in(words, turn):
        return resized
    inputs, gpu = shapes_in(words), device_in(words)
    if inputs:
        return ChangeTask(inputs=inputs, precisions=_tf32(words), gpu=gpu)
    if (precisions := precisions_in(words)) and not _AGAINST.search(words) and _is_allowed(words):
        if turn.running:  # the task of a search that goes on stays as it is
            return Steer(hints=precisions)
        return ChangeTask(precisions=precisions, gpu=gpu)
    if is_only_device(words):
        return ChangeTask(gpu=gpu)
    entry = _entry(said)
    return ChangeTask(entry=entry) if entry else None


def resizing_in(words: str, turn: Turn) -> ChangeTask | None:
    """`with 4096 columns`, about a task that is still to be searched."""
    sizes = sizes_in(PRECISION.sub(" ", words)) if turn.task and not turn.running else ()
    return ChangeTask(sizes=sizes, precisions=precisions_in(words)) if sizes else None


def wants_shapes(words: str) -> bool:
    """Whether other shapes or precisions are asked for without saying which."""
    return bool(
        re.search(
            r"\b(?:change|other|different|set|adjust|modify|new|larger|bigger|smaller|wrong|"
            r"edit)\b.*"
            r"\b(?:shapes?|sizes?|inputs?|dimensions?|dims?|precisions?|dtypes?|"
            r"batch(?: ?size)?)\b|\bbatch(?: ?size)? \d+",
            words,
        )
    )


def _is_allowed(words: str) -> bool:
    rest = PRECISION.sub(" ", words)
    return bool(_ALLOWED.search(rest)) or not re.search(
        r"\w", re.sub(r"\b(?:and|or|also|please)\b", " ", rest)
    )


def _tf32(words: str) -> tuple[str, ...]:
    """With shapes, a type is the inputs'; only what is no type can be a precision."""
    return precisions_in(TYPE.sub(" ", words))


def _entry(said: str) -> str:
    match = _ENTRY.search(said)
    name = (match["after"] or match["entry"] or match["before"]) if match else ""
    return "" if name.lower() in _NO_ENTRIES else name
