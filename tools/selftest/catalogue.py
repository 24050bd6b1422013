"""Reads the catalogue of evils and twins: its rows, their cases, and what the judge made of each.

Rows and bases are data, and an error names file and rule.
"""

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError

from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.languages import default_language, new_candidate
from kernelwright.tools.types import Candidate, Value, Verdict

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


class CaseFinding(Value):
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
    evil: CaseFinding
    twin: CaseFinding

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


_HERE = Path(__file__).parent
Data = TypeVar("Data", Row, Base)


@cache
def rows() -> tuple[Row, ...]:
    """Every row, in the catalogue's order."""
    found = [_read(path, Row) for path in sorted((_HERE / "rows").glob("*.toml"))]
    return tuple(sorted(found, key=lambda row: row.row))


@cache
def base(name: str) -> Base:
    """The base of that name.

    Raises:
        ValueError: there is none, or its file is not in order.
    """
    path = _HERE / "bases" / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"{path.name}: there is no such base")
    return _read(path, Base)


def cases(device: Device, wanted: Sequence[int] = ()) -> Iterator[tuple[Row, Case]]:
    """The cases of a device; of these rows only, where any are named."""
    for row in rows():
        if not wanted or row.row in wanted:
            yield from ((row, case) for case in row.case if device in case.on)


def evil_of(case: Case, device: Device) -> Candidate | Foreign:
    """The evil of a case; ValueError as for `candidate_of`."""
    return _made(case, base(case.base), device, case.evil, case.name)


def twin_of(case: Case, device: Device) -> Candidate | Foreign:
    """The honest twin of a case; ValueError as for `candidate_of`."""
    origin = base(case.twin_base or case.base)
    return _made(case, origin, device, case.twin, f"twin of {case.name}")


def _made(
    case: Case, origin: Base, device: Device, edits: Sequence[Edit], what: str
) -> Candidate | Foreign:
    if case.kind == "plan":
        return candidate_of(origin, device, edits, what)
    own = origin.foreign_cuda if device == "cuda" else ""
    (source,) = edited((own or origin.foreign_cpu,), edits, what)
    return Foreign(name=what, source=source)


def candidate_of(origin: Base, device: Device, edits: Sequence[Edit], what: str) -> Candidate:
    """The base's kernel and plan with some edits made.

    Raises:
        ValueError: an edit's text does not occur exactly once, or the base has no such kernel.
    """
    kernel, plan = (
        (origin.cuda, origin.cuda_plan) if device == "cuda" else (origin.cpp, origin.cpp_plan)
    )
    kernel, plan = edited((kernel, plan), edits, what)
    return new_candidate(default_language(device).spec.name, kernel, plan)


def edited(texts: tuple[str, ...], edits: Sequence[Edit], what: str) -> tuple[str, ...]:
    """The texts after every replacement, each of which hits one place in one of them."""
    for old, new in edits:
        hits = [text.count(old) for text in texts]
        if sum(hits) != 1:
            raise ValueError(f"{what}: {old!r} stands in its base {sum(hits)} times, not once")
        texts = tuple(text.replace(old, new) for text in texts)
    return texts


def _read(path: Path, kind: type[Data]) -> Data:
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ValueError(f"{path.parent.name}/{path.name}: {error}") from None
