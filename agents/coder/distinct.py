"""Whether two drafts really differ: in what they do, and not in how it is written down.

Comments, labels, layout, whole numbers and the names that a draft itself gives are left out: a
block of 128 threads instead of 256 is a setting, which belongs into a tunable, and the tuner finds
it without a model. What is left is compared token by token. Not covered: the same work in another
order of statements, which is taken for different.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

from kernelwright.agents.coder.answers import Draft

SAME = (
    "it is {other} once more: only names, comments or whole numbers differ; numbers belong into "
    "the `// tune:` lines of one candidate, another candidate differs in structure"
)

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PLAN_COMMENTS = re.compile(r"#[^\n]*")
_NAME = r"[A-Za-z_]\w*"
# A name behind a type, a star or an ampersand, and in front of what follows a declared one.
_DECLARED = re.compile(rf"(?:{_NAME}|>|\*|&)[\s*&]+({_NAME})\s*(?=[=;,)(\[{{:])")
_TUNED = re.compile(rf"//\s*tune:\s*({_NAME})|#define\s+({_NAME})")
_PLANNED = re.compile(
    rf"^\s*({_NAME}(?:\s*,\s*{_NAME})*)\s*=[^=]|\bfor\s+({_NAME})\s+in\b|\bdef\s+\w+\(([^)]*)\)",
    re.MULTILINE,
)
_WORDS = frozenset({
    "if", "for", "while", "switch", "return", "else", "do", "case", "sizeof", "constexpr", "auto",
})  # fmt: skip
_TOKEN = re.compile(
    rf"""
    (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<real>(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?[fFlL]?|\d+[eE][-+]?\d+[fF]?)
    |(?P<whole>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)
    |(?P<name>{_NAME})
    |(?P<sign>\S)
    """,
    re.VERBOSE,
)


def same_work(draft: Draft, others: Iterable[tuple[str, Draft]]) -> str:
    """The name of the first of the others that does the same; "" where none does."""
    own = structure(draft.kernel, draft.plan)
    return next((name for name, one in others if structure(one.kernel, one.plan) == own), "")


@lru_cache(maxsize=1024)
def structure(kernel: str, plan: str) -> str:
    """A fingerprint of what a kernel and its plan do; the same for every spelling of it."""
    tuned = {name for found in _TUNED.finditer(kernel) for name in found.groups() if name}
    code, steps = _COMMENTS.sub(" ", kernel), _PLAN_COMMENTS.sub(" ", plan)
    own = tuned | {found[1] for found in _DECLARED.finditer(code)}
    given = (group for found in _PLANNED.finditer(steps) for group in found.groups() if group)
    own |= {name for group in given for name in re.findall(_NAME, group)}
    # What is exported is named in the plan as well, so both share one numbering.
    numbers: dict[str, str] = {}
    text = "\n".join(_told(part, own - _WORDS, numbers) for part in (code, steps))
    return sha256(text.encode()).hexdigest()


def _told(text: str, own: set[str], numbers: dict[str, str]) -> str:
    """The tokens, with a draft's own names by the place of their first use."""
    return " ".join(_token(found, own, numbers) for found in _TOKEN.finditer(text))


def _token(found: re.Match[str], own: set[str], numbers: dict[str, str]) -> str:
    text = found.group()
    if found.lastgroup == "whole":
        return "0"
    bare = text.strip("\"'")
    if found.lastgroup in ("name", "text") and bare in own:
        return numbers.setdefault(bare, f"n{len(numbers)}")
    return text
