"""Where results go: tables to stdout, JSON to a file or to stdout, remarks to stderr."""

import sys
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console

from kernelwright.ui.complaints import Complaint, writable_file

STDOUT = "-"


def console() -> Console:
    """The terminal for results; wide enough for tables when it is none."""
    return _console(error=False)


def remarks() -> Console:
    """The terminal for everything that is no result."""
    return _console(error=True)


def _console(*, error: bool) -> Console:
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else 120
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def check_json(target: str | None) -> None:
    """Say before any work is done that JSON could not be written there."""
    if target not in (None, STDOUT):
        writable_file(Path(str(target)))


def write_json(value: BaseModel, target: str) -> None:
    """Write a value as JSON; Complaint when that is impossible after all."""
    text = value.model_dump_json(indent=2) + "\n"
    if target == STDOUT:
        sys.stdout.write(text)
        return
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Complaint(f"cannot write {target}: {error.strerror}") from None
