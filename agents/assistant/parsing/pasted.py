"""Tells code from words in a message: fenced blocks, and code that was pasted bare.

Not covered: code in other languages than Python.
"""

import ast
import re
from collections.abc import Sequence

from kernelwright.agents.assistant.types.chat import Attachment
from kernelwright.agents.llm.json_text import blocks
from kernelwright.tools.types import Value

_PYTHON = frozenset({"", "python", "py", "python3", "pytorch", "torch"})
_BEGINS = re.compile(r"^(?:import |from \S+ import |class |def |async def |@|\"\"\"|#!|# )")
_IN_CODE = re.compile(
    r"^(?:\s|$|import |from \S+ import |class |def |async def |@|[)\]}]|#|\"\"\"|return\b|if |for "
    r"|with |[A-Za-z_][\w.\[\], ]*\s*(?:=|\+=|\()|[A-Za-z_]\w*:\s*\w)"
)
_MODULE = re.compile(r"^(?:class|def|async def) \w+|^\w+ = ", re.MULTILINE)
_FENCE = re.compile(r"(?:`{3,}|~{3,}).*?(?:`{3,}|~{3,}|\Z)", re.DOTALL)


class Pasted(Value):
    """What a message says besides the code in it, and the code."""

    words: str
    source: str = ""


def take_apart(text: str) -> Pasted:
    """Part words and code; without code, all of it is words."""
    fenced = [block for block in blocks(text) if block.language in _PYTHON]
    sources = [block.text for block in fenced if is_module(block.text)]
    if sources:
        return Pasted(words=_FENCE.sub("\n", text).strip(), source="\n\n".join(sources))
    return _bare(text)


def is_module(text: str) -> bool:
    """Whether a text defines something that could be a task."""
    return bool(_MODULE.search(text)) and bool(
        re.search(r"\btorch\b|\bnn\.|\bF\.|def \w+\(|class \w+", text)
    )


def python_files(attachments: Sequence[Attachment]) -> tuple[Attachment, ...]:
    """Those that can be Python, by name or, where that says nothing, by content."""
    return tuple(
        item
        for item in attachments
        if item.name.lower().endswith(".py")
        or ("." not in item.name.rsplit("/", 1)[-1] and is_module(item.text))
        or (item.name.lower().endswith((".txt", ".md")) and is_module(item.text))
    )


def _bare(text: str) -> Pasted:
    """The longest stretch of lines from the first that begins code to the last that can be it."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if _BEGINS.match(line)), None)
    if begin is None:
        return Pasted(words=text)
    end = begin
    while end < len(lines) and _IN_CODE.match(lines[end]):
        end += 1
    source = "\n".join(lines[begin:end]).strip("\n")
    if not is_module(source) or not _is_code(source):
        return Pasted(words=text)
    return Pasted(words="\n".join(lines[:begin] + lines[end:]).strip(), source=source + "\n")


def _is_code(text: str) -> bool:
    """Python, or so much like it that its reader should say what is wrong with it."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text.count("\n") >= 2 and bool(re.search(r"^(?:class|def|import|from) ", text, re.M))
    return True
