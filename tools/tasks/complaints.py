"""What a compiler complained about, out of the log of a build that failed inside a user's code.

PyTorch's `load` and `load_inline` raise ninja's whole log, which begins with the command: a person
who reads its first line learns nothing. Known are the forms of GCC, Clang, nvcc, ptxas, the linker
and the shell, in English. Not covered: a compiler that a file starts by itself.
"""

import re

_BUILD = re.compile(r"Error building extension '[^']*'")
_COMPLAINT = re.compile(
    r"\berror(?: #[\w-]+)?\s*:|\): (?:catastrophic )?error\b|\b(?:ptxas|nvcc) (?:error|fatal)"
    r"|undefined reference to|multiple definition of|cannot find -l|: not found$"
)
_ONLY_THAT_IT_FAILED = ("collect2:", "ninja:")
_QUOTED = re.compile(r"\s*\d+ \| ?(.*)")
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/:]+/)+")
_MOST, _LONGEST = 2, 200


def why_not_built(text: str) -> str:
    """The first complaints of a failed build's log with its name; empty where it is none."""
    build = _BUILD.search(text)
    found = complaints(text[build.end() :]) if build else ()
    return f"{build.group()}: {'; '.join(found)}" if build and found else ""


def complaints(log: str) -> tuple[str, ...]:
    """The first few, each with the line of the source that the compiler quoted beside it."""
    lines = log.splitlines()
    found = {
        _short(line, lines[number + 1] if number + 1 < len(lines) else ""): line
        for number, line in enumerate(lines)
        if _COMPLAINT.search(line)
    }
    telling = [said for said, line in found.items() if not line.startswith(_ONLY_THAT_IT_FAILED)]
    return tuple((telling or list(found))[:_MOST])


def _short(line: str, following: str) -> str:
    quoted = _QUOTED.fullmatch(following)
    source = f", at `{quoted.group(1).strip()}`" if quoted else ""
    return _FOLDERS.sub("", line.strip())[:_LONGEST] + source[:_LONGEST]
