"""Reads what models write around code: fenced blocks, and thinking in tags.

Models forget to close a fence, wrap a whole answer in another fence, open one at the end of a
sentence, and leave their thinking in the text. Not covered: code that is not fenced at all.
"""

import re

from tools.nouns import Value

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
