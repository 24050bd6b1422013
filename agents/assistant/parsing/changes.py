"""Understands changes of the task on the table: shapes, element types, precision, entry, device."""

import re

from kernelwright.agents.assistant.parsing.shapes import (
    PRECISION,
    TYPE,
    precisions_in,
    shapes_in,
    sizes_in,
)
from kernelwright.agents.assistant.types.chat import Turn
from kernelwright.agents.assistant.types.commands import ChangeTask, Command, Steer

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


def change_in(words: str, said: str, turn: Turn) -> Command | None:
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


_NVIDIA = (
    r"g?b[23]00|gh200|h[12]00|h20|h800|a800|a100|v100|p100|t4|l40s?|l4|l20|a10g?|a16|a2|a30|a40"
    r"|a[2456]000(?: ada)?|titan(?: (?:x|v|xp|rtx))?|gtx ?\d{3,4}(?: ?ti)?"
    r"|(?:geforce )?rtx ?(?:pro ?)?(?:a?\d{4})(?: ?(?:ti|super|ada|blackwell))*|"
    r"[345]0[5-9]0(?: ?ti)?"
    r"|jetson(?: (?:agx )?\w+)?|(?:dgx )?spark"
)
_OTHERS = (
    r"mi[123]\d{2}x?|radeon(?: \w+){1,3}|rx ?\d{4}(?: ?xtx?)?|arc ?[ab]\d{3}|"
    r"apple m\d|m[1-4](?: (?:pro|max|ultra))?"
)
_CPUS = r"cpu|processor|xeon|epyc|ryzen|threadripper|grace cpu|core i\d"
_MEMORY = r"(?:[ -]?(?:sxm\d?|pcie|nvl|hbm\d?e?|\d+ ?gb))*"
_DEVICE = re.compile(
    rf"\b(?:nvidia |amd |intel )?(?:(?P<gpu>(?:{_NVIDIA}|{_OTHERS}){_MEMORY})|(?P<cpu>{_CPUS}))\b"
)
# Before a bare name that could be something else (`m2`, `a2`, `cpu`), one of these is said.
_PLACED = re.compile(
    r"\b(?:on|for|with|have|has|target(?:ing)?|using|runs?|auf)"
    r"(?: (?:a|an|the|my|our|this|one|nvidia|amd|intel|apple|tesla|meine[rmn]?|der|dem|einer?))* $"
)
_UNLIKELY = re.compile(r"^(?:m[1-4]|a2|a16|t4|l4|cpu|processor|spark|[345]0[5-9]0)$")


def device_in(words: str) -> str:
    """The device's name as it is usually written; "" where none is named."""
    for match in _DEVICE.finditer(words):
        name = (match["gpu"] or match["cpu"]).strip()
        if _UNLIKELY.match(name) and not _PLACED.search(words[: match.start()]):
            continue
        return _usual(name)
    return ""


def is_only_device(words: str) -> bool:
    """Whether a clause says nothing but which device is meant."""
    rest = _DEVICE.sub(" ", words)
    rest = re.sub(
        r"\b(?:i|we|have|has|use|using|run|running|it|on|for|with|a|an|the|my|our|to|is|gpu|card|"
        r"device|nvidia|target|targeting|will|be|should|this|that|machine|server|one|of)\b",
        " ",
        rest,
    )
    return bool(device_in(words)) and not re.search(r"\w", rest)


def _usual(name: str) -> str:
    if name in ("cpu", "processor"):
        return "CPU"
    capital = {"jetson", "titan", "radeon", "spark", "xeon", "epyc", "ryzen", "threadripper"}
    parts = name.replace("geforce ", "").split()
    usual = [part.capitalize() if part in capital else _upper(part) for part in parts]
    return re.sub(r"^(RTX|GTX)(?=\d)", r"\1 ", " ".join(usual))


def _upper(part: str) -> str:
    kept = {"ti": "Ti", "super": "SUPER", "ada": "Ada", "pcie": "PCIe", "apple": "Apple"}
    return kept.get(part, part.upper())
