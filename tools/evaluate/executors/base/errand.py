"""What one trip to a judge far away shall bring back.

An errand says more than a list: what to do next with what turned out well, so that screening,
tuning and precise comparison take one trip and not three.
"""

import re
from collections.abc import Iterator

from pydantic import model_validator

from kernelwright.tools.types import Candidate, Value

# Ids become names of files on the far host.
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,80}")


class Variants(Value):
    """Other settings of the candidate `of`, worth a try only where that one is fast."""

    of: str
    candidates: tuple[Candidate, ...]


class Errand(Value):
    """What to measure, in this order.

    Attributes:
        probe: Describe the device, audit the task, measure every baseline.
        screen: Screen each of these.
        variants: Screen those of the `tuned` fastest correct candidates of `screen`.
        tuned: How many candidates have their variants screened.
        finalists: Judge at most so many of all that was screened precisely, by the rule of
            `selection.promising`; 0 for none.
        to_beat_ms: The screened time of the best candidate so far; None when there is none.
        precise: Judge each of these precisely, whatever they did before.
        certify: Certify these in order until one settles the rest (`selection.settles`).
        screened_ms: Of each of those, the screened time, where there is one.
        rivals: How many of the first are certified even after one is decided.
    """

    probe: bool = False
    screen: tuple[Candidate, ...] = ()
    variants: tuple[Variants, ...] = ()
    tuned: int = 0
    finalists: int = 0
    to_beat_ms: float | None = None
    precise: tuple[Candidate, ...] = ()
    certify: tuple[Candidate, ...] = ()
    screened_ms: tuple[float | None, ...] = ()
    rivals: int = 1

    @model_validator(mode="after")
    def _names(self) -> "Errand":
        if self.screened_ms and len(self.screened_ms) != len(self.certify):
            raise ValueError("a screened time, or none, for each candidate that is certified")
        for candidate in self.candidates():
            if not _PLAIN.fullmatch(candidate.id):
                raise ValueError(f"{candidate.id!r} is no candidate's id")
        return self

    def candidates(self) -> Iterator[Candidate]:
        """Every candidate that may be compiled for it; some come more than once."""
        yield from self.screen
        for group in self.variants:
            yield from group.candidates
        yield from self.precise
        yield from self.certify
