"""Reads the catalogue: rows and bases are data, and an error names file and rule."""

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from kernelwright.tools.evaluate.messages.foreign import Foreign
from kernelwright.tools.languages import default_language, new_candidate
from kernelwright.tools.selftest.nouns import Base, Case, Device, Edit, Row
from kernelwright.tools.types import Candidate

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
