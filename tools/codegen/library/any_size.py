"""One kernel for every size of a dimension, from the texts written for a few sizes.

Emitters bake sizes into what they write. Written for several sizes with the same strategy and
settings, the texts are equal but for some whole numbers, as `64` or `64.0f`; where each of those is
`a * size + b` for every size, the size becomes an argument of the kernels, and the plan reads it
from an input as it runs. The sizes are primes, so that what an emitter leaves out where sizes
divide is there. That the result is right, also at sizes that do divide, is for the judge to say:
this is text alone.

Where a size decides what is written (which registers a row takes, how a loop is unrolled) there is
no such text, and `None` says so. So it is where the compiler wants a constant: an array's length, a
template's argument (these the compiler refuses).
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelwright.tools.types import LanguageName, Setting, Value

# What a size is to the kernels.
_TYPES: Mapping[LanguageName, str] = {"cpp": "const int64_t", "cuda": "const long long"}
_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\d[\d.]*(?:[eE][+-]?\d+)?\w*|\w+|\s+|.', re.DOTALL
)
_WHOLE = re.compile(r"(\d+)([uUlL]*)")
_FLOATING = re.compile(r"(\d+\.\d*(?:e\+\d+)?|\d+e\+\d+)(f?)")
_DECLARED = re.compile(r"^\s*// (?:tune|require):.*\n", re.MULTILINE)


class Text(Value):
    """A kernel and its plan."""

    kernel: str
    plan: str


def settled(text: Text, settings: Sequence[Setting]) -> Text:
    """The text with one value for every tunable: those chosen, whatever else was declared."""
    lines = [f"// tune: {item.name} in {item.value}" for item in settings]
    kernel = _DECLARED.sub("", text.kernel)
    *includes, rest = re.split(r"(?<=\n)(?!#include|\n)", kernel, maxsplit=1)
    declared = "\n".join(lines)
    if lines:
        kernel = "".join(includes) + f"{declared}\n{rest}"
    return Text(kernel=kernel, plan=text.plan)


def same(one: Text, other: Text) -> bool:
    """Whether two texts differ in comments and white space at most."""
    return _plain(one.kernel) == _plain(other.kernel) and ast.dump(ast.parse(one.plan)) == ast.dump(
        ast.parse(other.plan)
    )


def _plain(text: str) -> list[str]:
    return [
        word for word in _TOKEN.findall(text) if word.strip() and not word.startswith(("//", "/*"))
    ]


@dataclass(frozen=True)
class Line:
    """A whole number as `factor * size + more`; `type_` is the floating type that it has, or ""."""

    factor: int
    more: int
    type_: str = ""

    def printed(self, name: str) -> str:
        """The expression in a kernel."""
        said = self._sum(name)
        return f"{self.type_}({said.strip('()')})" if self.type_ else said

    def in_plan(self, name: str) -> str:
        """The expression in a plan."""
        return f"(1.0 * {self._sum(name)})" if self.type_ else self._sum(name)

    def _sum(self, name: str) -> str:
        """With brackets where it is more than the name."""
        if (self.factor, self.more) == (1, 0):
            return name
        scaled = name if self.factor == 1 else f"{self.factor} * {name}"
        sign = "-" if self.more < 0 else "+"
        return f"({scaled} {sign} {abs(self.more)})" if self.more else f"({scaled})"


def line_through(sizes: Sequence[int], values: Sequence[int]) -> Line | None:
    """The line on which all of them lie, with whole coefficients."""
    factor, rest = divmod(values[1] - values[0], sizes[1] - sizes[0])
    made = Line(factor, values[0] - factor * sizes[0])
    on_it = all(made.factor * s + made.more == v for s, v in zip(sizes, values, strict=True))
    return made if on_it and not rest else None


def any_size(
    texts: Mapping[int, Text], name: str, place: tuple[int, int], language: LanguageName
) -> Text | None:
    """The text for every size; None where the texts differ in more than whole numbers on lines.

    Args:
        texts: by the size that each was written for, at least three.
        name: what the size is called in kernels and plan; it is no name of theirs.
        place: the input, by its number, and the dimension from which the plan reads it.
        language: of the kernels.
    """
    if language not in _TYPES:
        return None
    sizes = tuple(texts)
    kernel = _joined([texts[size].kernel for size in sizes], sizes)
    plan = _joined([texts[size].plan for size in sizes], sizes)
    if kernel is None or plan is None:
        return None
    printed = _Kernel(kernel, name, _TYPES[language]).printed()
    if printed is None:
        return None
    source, functions = printed
    words = "".join(part if isinstance(part, str) else part.in_plan(name) for part in plan)
    return Text(kernel=source, plan=_reading(words, name, place, functions))


Part = str | Line


def _joined(texts: Sequence[str], sizes: Sequence[int]) -> list[Part] | None:
    """The common text in parts, with lines where the numbers differ."""
    rows = [_TOKEN.findall(text) for text in texts]
    if len({len(row) for row in rows}) != 1:
        return None
    parts: list[Part] = []
    for words in zip(*rows, strict=True):
        if len(set(words)) == 1:
            parts.append(words[0])
            continue
        if words[0].startswith("//"):
            parts.append(_comment(words, sizes))
            continue
        if (line := _line(words, sizes)) is None:
            return None
        parts.append(line)
    return parts


def _line(words: Sequence[str], sizes: Sequence[int]) -> Line | None:
    """The line through whole numbers of one type, by the size that each was written for."""
    for pattern in (_WHOLE, _FLOATING):
        read = [found for word in words if (found := pattern.fullmatch(word))]
        values = [_whole(found[1]) for found in read]
        if len(read) < len(words) or len({found[2] for found in read}) > 1 or None in values:
            continue
        line = line_through(sizes, [value for value in values if value is not None])
        type_ = "" if pattern is _WHOLE else "float" if read[0][2] else "double"
        return line and replace(line, type_=type_)
    return None


def _whole(text: str) -> int | None:
    """The number that a text spells; None where it has a fraction."""
    if text.isdigit():
        return int(text)
    return int(float(text)) if float(text).is_integer() else None


def _comment(words: Sequence[str], sizes: Sequence[int]) -> str:
    """A comment with `n` for the sizes in it, where it tells of them."""
    inner = _joined([word[2:] for word in words], sizes)
    if inner is None:
        return words[0]
    return "//" + "".join(part if isinstance(part, str) else part.printed("n") for part in inner)


@dataclass
class _Function:
    """A function of the kernel's text, by the numbers of its parts."""

    name: str
    opening: int
    closing: int  # of its parameters
    begin: int
    end: int = 0
    ranged: bool = False
    calls: set[str] = field(default_factory=set)


class _Kernel:
    """Hands the size through a kernel's functions to where it is needed."""

    def __init__(self, parts: Sequence[Part], name: str, kind: str) -> None:
        self._parts, self._name, self._kind = list(parts), name, kind
        self._functions = {item.name: item for item in self._found()}

    def printed(self) -> tuple[str, frozenset[str]] | None:
        """The text, and which functions take the size as their last argument."""
        for number, part in enumerate(self._parts):
            if isinstance(part, Line) and not self._placed(number):
                return None
        self._spread()
        taking = {name: item for name, item in self._functions.items() if item.ranged}
        inserted: dict[int, str] = {}
        for item in taking.values():
            inserted[item.closing] = self._argument(item.opening, f"{self._kind} {self._name}")
            for number in range(item.begin, item.end):
                if self._parts[number] in taking and (bounds := self._brackets(number + 1)):
                    inserted[bounds[1]] = self._argument(bounds[0], self._name)
        words = [
            inserted.get(number, "") + (part if isinstance(part, str) else part.printed(self._name))
            for number, part in enumerate(self._parts)
        ]
        return "".join(words), frozenset(taking)

    def _argument(self, opening: int, words: str) -> str:
        empty = not str(self._parts[opening + 1]).strip() and self._parts[opening + 2] == ")"
        return words if empty or self._parts[opening + 1] == ")" else f", {words}"

    def _placed(self, number: int) -> bool:
        """Whether a size can be an argument where this number stands; notes which function it is.

        A constant expression that is only a name for the number becomes an ordinary constant.
        """
        inside = next((f for f in self._functions.values() if f.begin < number < f.end), None)
        before, after = self._near(number, -1), self._near(number, 1)
        if inside is None or (before == "[" and after == "]"):
            return False
        inside.ranged = True
        start = number
        while start > inside.begin and self._parts[start] not in (";", "{", "}"):
            start -= 1
        for at in range(start, number):
            if self._parts[at] == "constexpr":
                self._parts[at] = "const"
        return True

    def _near(self, number: int, step: int) -> Part:
        number += step
        while isinstance(word := self._parts[number], str) and not word.strip():
            number += step
        return word

    def _spread(self) -> None:
        """Whoever calls a function that takes the size takes it too."""
        changed = True
        while changed:
            changed = False
            ranged = {name for name, item in self._functions.items() if item.ranged}
            for item in self._functions.values():
                if not item.ranged and ranged & item.calls:
                    item.ranged = changed = True

    def _brackets(self, number: int) -> tuple[int, int] | None:
        """The brackets that open at this part, or behind white space from there."""
        while number < len(self._parts) and not str(self._parts[number]).strip():
            number += 1
        if self._parts[number] != "(":
            return None
        depth = 0
        for at in range(number, len(self._parts)):
            depth += (self._parts[at] == "(") - (self._parts[at] == ")")
            if depth == 0:
                return number, at
        return None

    def _found(self) -> list[_Function]:
        """The functions that stand at the top, with what each of them calls."""
        found: list[_Function] = []
        depth, brackets, last, is_struct = 0, 0, (-1, -1), False
        for number, part in enumerate(self._parts):
            if depth == 0 and part == "(":
                brackets += 1
                last = (number, -1) if brackets == 1 else last
            elif depth == 0 and part == ")":
                brackets -= 1
                last = (last[0], number) if brackets == 0 else last
            elif part in ("struct", "union", "enum", "namespace") and depth == 0:
                is_struct = True
            elif part == "{":
                if depth == 0 and last[1] >= 0 and not is_struct:
                    named = str(self._near(last[0], -1))
                    found.append(_Function(named, *last, begin=number))
                depth += 1
            elif part == "}":
                depth -= 1
                if depth == 0 and found and not found[-1].end:
                    found[-1].end = number
            if depth == 0 and part in (";", "}"):
                last, is_struct = (-1, -1), False
        names = {item.name for item in found}
        for item in found:
            within = self._parts[item.begin : item.end]
            item.calls = {part for part in within if isinstance(part, str) and part in names}
        return found


def _reading(plan: str, name: str, place: tuple[int, int], functions: frozenset[str]) -> str:
    """The plan with the size read first, and given to the kernels that take it."""
    tree = ast.parse(plan)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="launch"), args=[ast.Constant(value=kernel)]):
                if kernel in functions:
                    _give(node, name)
    forward = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    read = f"{name} = {forward.args.args[place[0]].arg}.shape[{place[1]}]"
    forward.body[:0] = ast.parse(read).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _give(launch: ast.Call, name: str) -> None:
    for keyword in launch.keywords:
        if keyword.arg == "args" and isinstance(keyword.value, ast.Tuple | ast.List):
            keyword.value.elts.append(ast.Name(name, ast.Load()))
