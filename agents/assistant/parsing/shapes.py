"""Finds shapes, element types and precisions in plain words.

`(4096, 1024) fp16` and `64 x 128 bf16` are inputs; `allow tf32` is a precision that results may
have. Sizes of one dimension alone (`with 4096 columns`, `batch size 64`, `8k rows`) become
`columns=4096` or `rows=64`: the last or the first dimension of the inputs. Not covered: dimensions
between them, such as channels.
"""

import re

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
