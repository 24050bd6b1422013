"""What a candidate is, as `name=value` words that roles can compare, prefer and avoid.

The coder declares how it spread each loop (`row_softmax=warp_per_row`) and what the dominant
loop does to memory, arithmetic and the machine (`memory=on chip`); settings and the compiler's
report add what was chosen and what it cost. A role that learns something says it in these words,
so another can act on it.
"""

from collections.abc import Iterable

from kernelwright.tools.archive.behaviour import declared, outcomes
from kernelwright.tools.types import Candidate, CompileReport, LaunchShape

LABELS = ("memory", "compute", "parallel")
# What a compiler reports is an outcome: it can explain a gap, but nobody can choose it.
OUTCOMES = ("registers", "spills", "shared")


def attributes(
    candidate: Candidate,
    reports: tuple[CompileReport, ...] = (),
    launches: tuple[LaunchShape, ...] = (),
) -> dict[str, str]:
    """Everything that sets a candidate apart, by name."""
    found = declared(candidate)
    found |= {setting.name: str(setting.value) for setting in candidate.settings}
    return found | outcomes(reports, launches)


def choices(candidate: Candidate) -> dict[str, str]:
    """Which strategy each loop was given, by the loop's name."""
    return {name: value for name, value in declared(candidate).items() if name not in LABELS}


def is_actionable(name: str) -> bool:
    """Whether somebody can choose this attribute."""
    return name not in OUTCOMES


def agreement(found: dict[str, str], words: Iterable[str]) -> int:
    """How many of the `name=value` words hold for these attributes."""
    return sum(f"{name}={value}" in set(words) for name, value in found.items())
