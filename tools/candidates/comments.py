"""Reads `// tune:` and `// require:` lines.

Only real comments count (the parser says which they are), so a string that looks like a
declaration declares nothing.
"""

import re
from collections.abc import Iterable

from kernelwright.tools.candidates.arithmetic import Expression
from kernelwright.tools.candidates.errors import ContractError
from kernelwright.tools.candidates.source import Requirement, Tunable

_TUNE = re.compile(r"([A-Za-z]\w*)\s+in\s+(.+)")
_MAX_TUNABLES = 64
_MAX_VALUES = 64


def declarations(
    comments: Iterable[tuple[int, str]],
) -> tuple[tuple[Tunable, ...], tuple[Requirement, ...]]:
    """The tunables and requirements that comments declare.

    Args:
        comments: (line, text with its `//`) in order.

    Raises:
        ContractError: When a declaration is malformed, doubled, or names the unknown.
    """
    tunables: dict[str, Tunable] = {}
    requires: list[Requirement] = []
    for line, comment in comments:
        word, _, rest = comment.lstrip("/").strip().partition(":")
        if not comment.startswith("//"):
            continue
        if word == "tune":
            tunable = _tunable(line, rest.strip())
            if tunable.name in tunables:
                raise ContractError(line, "tune", f"{tunable.name} is declared twice")
            tunables[tunable.name] = tunable
        elif word == "require":
            requires.append(Requirement(text=rest.strip(), line=line))
    if len(tunables) > _MAX_TUNABLES:
        raise ContractError(0, "tune", f"more than {_MAX_TUNABLES} tunables")
    for requirement in requires:
        Expression(requirement.text, frozenset(tunables), requirement.line)
    return tuple(tunables.values()), tuple(requires)


def _tunable(line: int, text: str) -> Tunable:
    match = _TUNE.fullmatch(text)
    if match is None or "__" in text:
        raise ContractError(line, "tune", f"{text!r} is not of the form NAME in 1, 2, 4")
    name, listed = match.groups()
    parts = [part.strip() for part in listed.split(",")]
    if not all(re.fullmatch(r"-?\d{1,9}", part) for part in parts):
        raise ContractError(line, "tune", f"the values of {name} must be integers, not {listed!r}")
    values = tuple(dict.fromkeys(int(part) for part in parts))
    if len(values) > _MAX_VALUES:
        raise ContractError(line, "tune", f"{name} has more than {_MAX_VALUES} values")
    return Tunable(name=name, values=values, line=line)
