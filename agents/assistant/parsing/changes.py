"""Understands changes of the loaded task: shapes, element types, precision, entry point, device.

`(4096, 1024) fp16` and `64 x 128 bf16` are inputs; `allow tf32` is a precision that results may
have; `in eval mode` is a mode of the module. Sizes of one dimension alone (`with 4096 columns`,
`batch size 64`, `8k rows`) become `columns=4096` or `rows=64`: the last or the first dimension of
the inputs. Not covered: dimensions between them, such as channels.
"""

import re

from kernelwright.agents.assistant.parsing.ranges import only_range_in
from kernelwright.agents.assistant.types import ChangeTask, Command, Steer, Turn

_TYPES = {
    "float16": r"fp16|f16|float16|half(?: precision\b|(?! an?\b))",
    "bfloat16": r"bf16|bfloat16|brain float(?:16)?",
    "float64": r"fp64|f64|float64|double(?: precision)?",
    "float32": r"fp32|f32|float32|single precision|full precision|floats?",
    "int64": r"int64|i64|longs?",
    "int32": r"int32|i32|ints?",
    "int16": r"int16|i16",
    "int8": r"int8|i8",
    "uint8": r"uint8|u8",
    "bool": r"bools?|booleans?|mask",
}
TYPE = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _TYPES.items()))
_SIZE = r"\d{1,9}k?"
_SHAPE = re.compile(
    rf"[(\[]\s*(?P<listed>{_SIZE}(?:\s*,\s*{_SIZE})*)\s*,?\s*[)\]]"
    rf"|(?<![\w.])(?P<crossed>{_SIZE}(?:(?:\s*[x*]\s*|\s+by\s+){_SIZE})+)(?![\w.])"
    r"|\b(?<!batch )(?:shape|size)s?(?: of| is|:|=|"
    rf" to)?\s+(?P<single>{_SIZE})(?![\w.])(?!\s*[,x*])"
    rf"|(?<![\w.])(?P<elements>{_SIZE})\s+elements\b"
    rf"|(?<![\w.])(?P<comma>\d{{1,9}}(?:\s*,\s*\d{{1,9}}){{1,5}})(?![\w.])"
)
_BOUND = re.compile(r"\s*(?:below|under|up to|less than|<)\s*(\d{1,9})")
_LOWER = re.compile(
    r"\b(?:fp16|f16|float16|half(?: precision\b|(?! an?\b))|bf16|bfloat16|"
    r"brain float(?:16)?|tf32|tf-32"
    r"|mixed precision|lower precision|reduced precision|low precision)\b"
)
PRECISION = _LOWER


def shapes_in(words: str) -> tuple[str, ...]:
    """Inputs as `64x128:float16`, in their order; without the type where none was said."""
    found = list(_SHAPE.finditer(words))
    types = [_type_near(words, found, number) for number in range(len(found))]
    said = {name for name, _ in types if name}
    everywhere = _only_type(words) if not said else ""
    return tuple(
        _written(match, name or everywhere, bound)
        for match, (name, bound) in zip(found, types, strict=True)
    )


def precisions_in(words: str) -> tuple[str, ...]:
    """Precisions below single that are spoken of, in their order."""
    found = []
    for match in _LOWER.finditer(words):
        said = match[0]
        if "tf" in said:
            found.append("tf32")
        elif "bf" in said or "brain" in said:
            found.append("bfloat16")
        else:
            found.append("float16")
    return tuple(dict.fromkeys(found))


def _type_near(words: str, found: list[re.Match[str]], number: int) -> tuple[str, str]:
    """The type said behind a shape, before the next one, and what bounds its integers."""
    end = found[number].end()
    until = found[number + 1].start() if number + 1 < len(found) else len(words)
    behind = words[end:until]
    match = TYPE.search(behind)
    if match is None:
        return "", ""
    bound = _BOUND.match(behind[match.end() :])
    return str(match.lastgroup), bound[1] if bound else ""


def _only_type(words: str) -> str:
    match = TYPE.search(words)
    return str(match.lastgroup) if match else ""


def _written(match: re.Match[str], dtype: str, bound: str) -> str:
    said = next(part for part in match.groups() if part)
    sizes = [_size(part) for part in re.findall(_SIZE, said)]
    shape = "x".join(sizes)
    if not dtype:
        # A single number would be read as a plain Python scalar.
        return shape if len(sizes) > 1 else f"{shape}:float32"
    return f"{shape}:{dtype}" + (f"<{bound}" if bound and "int" in dtype else "")


def _size(text: str) -> str:
    """`4k` rows are 4096 of them."""
    return str(int(text[:-1]) * 1024) if text.endswith("k") else str(int(text))


_COUNTED = r"(?P<{0}>\d{{1,9}}k?)"
_ROWS = r"rows?|batch(?:es| ?size)?|samples?|tokens?|zeilen"
_COLUMNS = r"columns?|cols?|features?|hidden(?: ?(?:size|dim|units))?|wide|width|spalten"
_BEFORE = rf"(?<![\w.x]){_COUNTED.format('before')}\s+(?P<named>{_ROWS}|{_COLUMNS})\b"
_AFTER = (
    rf"\b(?P<name>{_ROWS}|{_COLUMNS})(?: of| to| is|:|=| =)?\s+{_COUNTED.format('after')}(?![\w.x])"
)
_SAID = re.compile(rf"{_BEFORE}|{_AFTER}")
_AROUND = re.compile(
    r"\b(?:with|use|using|make|it|set|change|switch|to|have|has|take|for|at|and|a|an|the|of|"
    r"rather|instead|only|but|now|please|try|want|i|need|number|input|inputs|what about|how about"
    r"|let us|say|my|there|are|is|shapes?|go|run|on|mit)\b"
)


def sizes_in(words: str) -> tuple[str, ...]:
    """The sizes of a clause that says nothing else; none where it does."""
    if re.search(r"\w", _AROUND.sub(" ", _SAID.sub(" ", words))):
        return ()
    return tuple(dict.fromkeys(map(_shape_of, _SAID.finditer(words))))


def sizes_with(words: str) -> tuple[str, ...]:
    """The sizes that stand among other words, as beside a file."""
    return tuple(dict.fromkeys(map(_shape_of, _SAID.finditer(words))))


def _shape_of(match: re.Match[str]) -> str:
    name = match["named"] or match["name"]
    size = match["before"] or match["after"]
    count = int(size[:-1]) * 1024 if size.endswith("k") else int(size)
    return f"{'rows' if re.fullmatch(_ROWS, name) else 'columns'}={count}"


_AGAINST = re.compile(
    r"\b(?:no|not|never|without|avoid|ban|forbid|exclude|stop|disallow|un-?ban|forget|"
    r"focus|why|what|how)\b"
)
_ALLOWED = re.compile(
    r"\b(?:allow\w*|permit\w*|use|using|in|with|fine|ok|okay|accept\w*|may|can|"
    r"precision|let|to|want|need|set|change|switch|make|try|at|enable|good|enough|run|"
    r"dtype|type|go)\b"
)
_MODE = re.compile(r"\b(?P<mode>eval(?:uation)?|train(?:ing)?)[ -]?mod(?:e|us)\b")
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
    if (mode := _MODE.search(words)) and not _AGAINST.search(words):
        return ChangeTask(evaluation=mode["mode"].startswith("eval"))
    entry = _entry(said)
    return ChangeTask(entry=entry) if entry else None


def resizing_in(words: str, turn: Turn) -> ChangeTask | None:
    """`with 4096 columns`, `batch 1 to 64`, about a task that is still to be searched."""
    if turn.task and not turn.running and (asked := only_range_in(PRECISION.sub(" ", words))):
        return ChangeTask(shapes=asked, precisions=precisions_in(words))
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
