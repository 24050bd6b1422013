"""A row of the catalogue, a case of it, and what the judge made of the case."""

from typing import Literal

from pydantic import Field

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.types import Value, Verdict

Kind = Literal["plan", "foreign"]
Device = Literal["cpu", "cuda"]
Edit = tuple[str, str]


class Base(Value):
    """A small task and honest candidates for it, as texts.

    `cpp` and `cuda` are kernels, each with its plan; `foreign_cpu` and `foreign_cuda` are files
    with a `ModelNew`. An empty text means that there is none.
    """

    name: str
    task: str
    cpp: str = ""
    cpp_plan: str = ""
    cuda: str = ""
    cuda_plan: str = ""
    foreign_cpu: str = ""
    foreign_cuda: str = ""


class Case(Value):
    """One evil candidate as edits of an honest one, and how it must be found out.

    Attributes:
        name: what it does, in a word or two.
        kind: a plan with a kernel, or a foreign file.
        on: the devices on which it can be tried.
        base: the honest candidate that it is made from.
        evil: replacements that make it evil; each text occurs once.
        twin: replacements of its honest twin, where the base itself is not it.
        defence: what stops it, and must be missed when it is switched off.
        verdicts: the verdict must be one of these.
        words: all of these stand in the reason, the labels or what was not verified.
        twin_base: where the twin is of another base altogether.
        certified: whether it takes a finalist's trials to tell, such as other shapes.
        timed: whether it is timed as well; what verifying finds needs no clock.
        tries: how often it is tried until it is found out, where it is evil only if the host
            recycles memory, or a busy machine leaves it without a time; such a try shows nothing.
    """

    name: str
    kind: Kind
    on: tuple[Device, ...] = ("cpu", "cuda")
    base: str
    evil: tuple[Edit, ...] = Field(min_length=1)
    twin: tuple[Edit, ...] = ()
    defence: Defence
    verdicts: tuple[Verdict, ...] = Field(min_length=1)
    words: tuple[str, ...] = Field(min_length=1)
    timed: bool = True
    certified: bool = False
    tries: int = Field(default=1, ge=1)
    twin_base: str = ""


class Row(Value):
    """One cheat of the catalogue with its cases."""

    row: int = Field(ge=1)
    cheat: str
    stopped_by: str
    case: tuple[Case, ...] = Field(min_length=1)


class Finding(Value):
    """What the judge said about one candidate."""

    verdict: Verdict
    said: str  # reason, labels and what was not verified, as one text
    seconds: float


class Outcome(Value):
    """One case on one device: how the evil and its twin fared."""

    row: int
    cheat: str
    case: str
    kind: Kind
    device: Device
    expected: tuple[Verdict, ...]
    words: tuple[str, ...]
    evil: Finding
    twin: Finding

    @property
    def caught(self) -> bool:
        """Whether the evil got its verdict for its reason."""
        return self.evil.verdict in self.expected and all(w in self.evil.said for w in self.words)

    @property
    def twin_accepted(self) -> bool:
        """Whether the twin is correct and carries none of what marks the evil."""
        marked = Verdict.CORRECT in self.expected and all(w in self.twin.said for w in self.words)
        return self.twin.verdict is Verdict.CORRECT and not marked

    @property
    def holds(self) -> bool:
        """Whether both are as they must be."""
        return self.caught and self.twin_accepted
