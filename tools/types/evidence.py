"""Profiler readings, each with how much it can be trusted."""

from enum import StrEnum

from kernelwright.tools.types.value import Value


class Rank(StrEnum):
    """How a reading was come by, from best to worst."""

    MEASURED = "measured"
    DERIVED = "derived"
    STATIC = "static"
    ESTIMATED = "estimated"
    UNAVAILABLE = "unavailable"


class Evidence(Value):
    """One reading. `value` is None when unavailable; then `source` says why and what would help."""

    name: str
    rank: Rank
    value: float | None
    unit: str
    source: str


class Symptom(Value):
    """A named pattern computed from evidence before any model reads numbers.

    `points_to` holds idea categories that usually help.
    """

    name: str
    words: str
    evidence: tuple[Evidence, ...]
    points_to: tuple[str, ...] = ()
