"""What stands in a model's text: fenced blocks, thinking in tags, and JSON however it is wrapped.

Models forget to close a fence, wrap a whole answer in another fence, open one at the end of a
sentence, and leave their thinking in the text. Around and in JSON there are sentences, trailing
commas, comments, Python's literals, an end that broke off, a tool call written as text: each is
read for what it means. What comes out are values in the order in which they deserve to be tried;
whether one fits is for its reader to say. Not covered: code that is not fenced at all.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator

from pydantic import JsonValue

from kernelwright.tools.types import Value

_OPENING = re.compile(r"(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_LANGUAGE = re.compile(r"[A-Za-z][\w+#.-]*")
_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(
    rf"<(?:think|thinking|reasoning)>(.*?){_END.pattern}", re.DOTALL | re.IGNORECASE
)
_ENDED = re.compile(r"^.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_BEGUN = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
# Fences of these are around an answer, not around code.
_WRAPPERS = frozenset({"", "markdown", "md", "text", "txt", "plaintext"})


class Block(Value):
    """One fenced block; `language` is the first word after the fence, in lower case, or ""."""

    language: str
    text: str


def without_thinking(text: str) -> tuple[str, str]:
    """The answer and the thinking that stood in tags around or before it.

    Thinking that never ended is left in the answer: there is nothing else to read.
    """
    # Behind the last end nothing can match, and looking for it there would take quadratic time.
    last = max((match.end() for match in _END.finditer(text)), default=0)
    thoughts = [match[1].strip() for match in _THOUGHT.finditer(text[:last])]
    rest = _THOUGHT.sub("", text[:last]) + text[last:]
    if ended := _ENDED.match(rest):  # the server's template had opened the tag
        thoughts.append(_BEGUN.sub("", ended[0]).rsplit("</", 1)[0].strip())
        rest = rest[ended.end() :]
    return _BEGUN.sub("", rest).strip(), "\n\n".join(thoughts)


def blocks(text: str) -> tuple[Block, ...]:
    """The fenced blocks of an answer in its order, those in its thinking left out.

    A block that was never closed ends where the next one with a language begins, or with the
    text. A wrapper around blocks (a `markdown` fence) is not a block itself.
    """
    reader = _Reader()
    for line in without_thinking(text)[0].splitlines():
        reader.take(line)
    reader.close()
    return tuple(reader.found)


class _Reader:
    """Goes through lines, with at most one block open."""

    def __init__(self) -> None:
        self.found: list[Block] = []
        self._fence = ""
        self._language = ""
        self._lines: list[str] = []
        self._wrappers = 0

    def take(self, line: str) -> None:
        """One line more."""
        opening = _OPENING.search(line)
        if not self._fence:
            if opening:
                self._begin(opening)
            return
        if opening is None or not self._ends(opening):
            self._lines.append(line)
            return
        named = _language(opening["info"])
        if named:
            self._next(opening)
            return
        if before := line[: opening.start()].rstrip():
            self._lines.append(before)
        self.close()

    def close(self) -> None:
        """End the open block, if any; an empty one is none."""
        text = "\n".join(self._lines).strip("\n")
        if self._fence and text.strip():
            self.found.append(Block(language=self._language, text=text))
        self._fence, self._language, self._lines = "", "", []

    def _begin(self, opening: re.Match[str]) -> None:
        named = _language(opening["info"])
        if not named and self._wrappers:
            self._wrappers -= 1  # the end of a fence that was around the blocks
            return
        self._fence, self._language, self._lines = opening["fence"], named, []

    def _next(self, opening: re.Match[str]) -> None:
        """A block begins inside another: that one is a wrapper, or was not closed."""
        code = any(line.strip() for line in self._lines)
        if self._language in _WRAPPERS and (self._language or not code):
            self._wrappers += 1
            self._fence = ""
        self.close()
        self._begin(opening)

    def _ends(self, opening: re.Match[str]) -> bool:
        """Whether the fence of this line is at least as strong as the open one."""
        fence = opening["fence"]
        strong = fence[0] == self._fence[0] and len(fence) >= len(self._fence)
        wrapped = self._language in _WRAPPERS and bool(_language(opening["info"]))
        return strong or wrapped


def _language(info: str) -> str:
    """The language that an opening fence names; "" when it names none."""
    found = _LANGUAGE.match(info.strip())
    return found[0].lower() if found else ""


# Where a call of a tool keeps what we asked for.
_ARGUMENTS = ("arguments", "parameters", "args", "input", "function", "tool_calls")
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)  # a raw line break in a string is no reason to fail
# Objects in one text that are looked at: a listing of code has braces without end.
_MOST = 64
# Wrappers around one answer: a list of calls, a call, its function, its arguments.
_DEEPEST = 5


def whole(text: str) -> Iterator[JsonValue]:
    """Every complete value, those in fences first, later ones before earlier ones."""
    answer, _ = without_thinking(text)
    fenced = [block.text for block in blocks(text) if block.language in ("", "json", "json5")]
    for part in [*reversed(fenced), answer]:
        for value in reversed(list(_values(part))):
            yield from _unwrapped(value)


def broken_off(text: str) -> Iterator[JsonValue]:
    """What an answer that broke off amounts to, as much as possible of it first."""
    answer, _ = without_thinking(text)
    plain = _plain(answer)
    start = plain.find("{")
    while start >= 0 and (end := _end(plain, start)):
        start = plain.find("{", end)
    if start < 0:
        return
    for closed in _closed(plain[start:]):
        value = _decoded(closed)
        if value is not None:
            yield from _unwrapped(value)


def _values(text: str) -> Iterator[JsonValue]:
    """The objects and lists of a text, outermost only; as it stands, then without comments."""
    whole_text = _decoded(text.strip())
    if isinstance(whole_text, dict | list):
        yield whole_text
        return
    for version in dict.fromkeys((_plain(text), text)):
        yield from _embedded(version)


def _embedded(text: str) -> Iterator[JsonValue]:
    position = found = 0
    while found < _MOST and (begin := re.search(r"[{\[]", text[position:])):
        start = position + begin.start()
        end = _end(text, start)
        value = _decoded(text[start:end]) if end else None
        if value is None:
            position = start + 1
        else:
            yield value
            position = end
        found += 1


def _decoded(text: str) -> JsonValue:
    """The value that a text is; None if it is none."""
    for read in (_DECODER.decode, _literal):
        try:
            value: JsonValue = read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict | list):
            return value
    return None


def _literal(text: str) -> JsonValue:
    """A value written as Python's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model's odd escapes are not ours to warn of
        value: JsonValue = ast.literal_eval(text)
    return value


def _plain(text: str) -> str:
    """Without comments and trailing commas; strings stay as they are."""
    bare = _COMMENT.sub(lambda match: match[1] or "", text)
    return _TRAILING.sub(lambda match: match[1] or "", bare)


def _end(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`; 0 if nothing does."""
    depth, quoted, escaped = 0, False, False
    for position in range(start, len(text)):
        letter = text[position]
        if quoted:
            quoted = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return position + 1
    return 0


def _closed(text: str) -> Iterator[str]:
    """The text cut after a value and closed, latest cut first."""
    cuts: list[tuple[int, str]] = []
    open_brackets: list[str] = []
    quoted = escaped = False
    for position, letter in enumerate(text):
        if quoted:
            quoted = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "{[":
            open_brackets.append("}" if letter == "{" else "]")
        elif letter in "}]" and open_brackets:
            open_brackets.pop()
            cuts.append((position + 1, "".join(reversed(open_brackets))))
        elif letter == ",":
            cuts.append((position, "".join(reversed(open_brackets))))
    ends = "".join(reversed(open_brackets))
    yield text + ('"' if quoted else "") + ends
    for position, closing in reversed(cuts[-_MOST:]):
        yield text[:position] + closing


def _unwrapped(value: JsonValue, depth: int = 0) -> Iterator[JsonValue]:
    """The value, and what it holds if it is a tool call or a list of one."""
    yield value
    if depth >= _DEEPEST:
        return
    if isinstance(value, list) and len(value) == 1:
        yield from _unwrapped(value[0], depth + 1)
    if not isinstance(value, dict):
        return
    inner = [value[name] for name in _ARGUMENTS if name in value]
    inner += list(value.values()) if len(value) == 1 and not inner else []
    for item in inner:
        held = _decoded(item) if isinstance(item, str) else item
        if isinstance(held, dict | list):
            yield from _unwrapped(held, depth + 1)
