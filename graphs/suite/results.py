"""Result files: one outcome a line, kept as soon as it is known."""

import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from kernelwright.graphs.suite.outcome import Outcome


class ResultsError(Exception):
    """A file that is no result file; the message names the line."""


def read(path: Path) -> tuple[Outcome, ...]:
    """The outcomes of a result file, each file's last one; a torn last line is left out.

    Raises:
        ResultsError: When another line is no outcome, or the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {error}") from None
    lines = text.splitlines()
    found: dict[str, Outcome] = {}
    for number, line in enumerate(lines, start=1):
        try:
            outcome = Outcome.model_validate_json(line)
        except ValidationError:
            if number == len(lines) and torn(text):
                break
            raise ResultsError(f"line {number} of {path} is no outcome of a suite") from None
        found.pop(outcome.file, None)
        found[outcome.file] = outcome
    return tuple(found.values())


def torn(text: str) -> bool:
    """Whether a kill cut the last line off."""
    return bool(text) and not text.endswith("\n")


def append(path: Path, outcome: Outcome) -> None:
    """Keep an outcome, on disk before this returns: the next task may take the machine with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(outcome.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def begin(path: Path, kept: Iterable[Outcome]) -> None:
    """Write a result file anew with what is kept of it, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text("".join(f"{item.model_dump_json()}\n" for item in kept), encoding="utf-8")
    beside.replace(path)
