"""What every role reads: a candidate's attributes, the person's own kernel, the person's steering.

Attributes are `name=value` words that roles can compare, prefer and avoid. The coder declares how
it spread each loop (`row_softmax=warp_per_row`) and what the dominant loop does to memory,
arithmetic and the machine (`memory=on chip`); settings and the compiler's report add what was
chosen and what it cost. A role that learns something says it in these words, so another can act
on it.

A search may begin with a kernel of the person's. With its plan it is a candidate and is judged as
it is, before anything else; without one (a bare `.cu`) a language model is asked to wrap it. Either
way it is an idea of the person's in the first round. Reading the file is the command line's
business.

Steering is what the person said about where to look, typed, so that every role reads the same.
Turning a sentence into these values belongs to the conversation, not here.
"""

from collections.abc import Iterable

from kernelwright.tools.archive.behaviour import declared, outcomes
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Idea,
    LanguageName,
    LaunchShape,
    Value,
)

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


PERSON = "person"


class Start(Value):
    """A kernel and its plan; the plan is "" for a bare kernel. `name` is the file's."""

    language: LanguageName
    kernel: str
    plan: str = ""
    name: str = ""

    @property
    def idea(self) -> Idea:
        """The idea of the first round under which it is judged."""
        words = "as it is" if self.plan else "given a plan that launches it"
        return Idea(
            id="r1i0",
            title=f"Your own kernel, {words}",
            mechanism=f"the kernel of {self.name or 'the person'}, {words}",
            reason="the person gave it to start from",
            category="given",
            metric="time",
            round=1,
            origin=PERSON,
        )


class Steering(Value):
    """Steering that holds until the person takes it back.

    Each text names a strategy, a category, an attribute (`memory=on chip`) or simply words
    that may occur in an idea. Pins come first, bans never come, hints tip the balance.
    """

    hints: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    bans: tuple[str, ...] = ()


def speaks_of(name: str, texts: tuple[str, ...]) -> bool:
    """Whether a hint, pin or ban names one of these texts or has all its words among them."""
    wanted = name.strip().lower()
    described = [text.lower() for text in texts]
    words = set(" ".join(described).replace("=", " ").replace("_", " ").split())
    return bool(wanted) and (wanted in described or set(wanted.replace("_", " ").split()) <= words)
