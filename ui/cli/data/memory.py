"""Shows the user's library of verified kernels, and carries kernels in and out of it."""

import sys
from pathlib import Path

from rich.table import Table

from kernelwright.graphs.run_view.events import amount, count, milliseconds, one_line, ratio
from kernelwright.tools.archive import default_home
from kernelwright.tools.memory import (
    BROKEN,
    Kept,
    KernelLibrary,
    file_lines,
    forget,
    library_path,
    read_lines,
)
from kernelwright.tools.types.speed_words import looked_words
from kernelwright.tools.whole_files import write_whole
from kernelwright.ui.complaints import Complaint, writable_file
from kernelwright.ui.terminal.output import console


def show(run_dir: Path | None) -> None:
    """List the kernels with their devices and speed-ups, the latest used first."""
    library, home = _library(run_dir)
    try:
        counts, every = library.counts(), library.every()
    except BROKEN as error:
        raise _broken(home, error) from None
    size = amount(counts.size_bytes, "B")
    words = f"{count(counts.kernels, 'kernel')} of {count(counts.tasks, 'task')}, {size}"
    if counts.searches:
        words += f", and how {count(counts.searches, 'search')} went"
    console().print(f"{words}, in {library_path(home)}", markup=False, soft_wrap=True)
    if every:
        console().print(_table(every))


def export(file: Path, run_dir: Path | None) -> None:
    """Write all kernels to a file that others can merge."""
    library, home = _library(run_dir)
    try:
        every = library.every()
    except BROKEN as error:
        raise _broken(home, error) from None
    text = "".join(f"{line}\n" for line in file_lines(every))
    write_whole(writable_file(file), text)
    console().print(f"{count(len(every), 'kernel')} written to {file}", markup=False)


def merge(file: Path, run_dir: Path | None) -> None:
    """Take in the kernels of such a file."""
    library, home = _library(run_dir)
    try:
        with file.open(encoding="utf-8") as lines:
            found = list(read_lines(lines))
    except (OSError, UnicodeDecodeError) as error:
        raise Complaint(f"{file} cannot be read: {getattr(error, 'strerror', error)}") from None
    except ValueError as error:
        raise Complaint(f"{file} is no library that was exported: {error}") from None
    try:
        taken = library.keep(found)
    except BROKEN as error:
        raise _broken(home, error) from None
    console().print(f"{count(taken, 'kernel')} merged", markup=False)


def clear(run_dir: Path | None, *, sure: bool) -> None:
    """Delete the library; at a terminal, somebody who has not said that they are sure is asked."""
    home = run_dir or default_home()
    held = _held(home)
    if not sure and held and sys.stdin.isatty():
        import typer

        if not typer.confirm(f"Delete {held} in {library_path(home)}?"):
            console().print("the library stays as it was", markup=False)
            return
    gone = forget(home)
    console().print("the library is empty now" if gone else "there is no library", markup=False)


def _held(home: Path) -> str:
    """What would be lost, in words; "" for nothing."""
    try:
        kernels = KernelLibrary(home).counts().kernels if library_path(home).exists() else 0
    except BROKEN:
        return "what cannot be read"
    return count(kernels, "kernel") if kernels else ""


def _library(run_dir: Path | None) -> tuple[KernelLibrary, Path]:
    home = run_dir or default_home()
    return KernelLibrary(home), home


def _broken(home: Path, error: Exception) -> Complaint:
    return Complaint(
        f"the library {library_path(home)} cannot be used ({one_line(str(error))}); "
        "`kernelwright memory clear` begins a new one"
    )


def _looked_at(item: Kept) -> str:
    """How closely, and what keeps its ratio from being a claim; a merged one's is not known."""
    if item.merged and not item.proof.certified:
        return "not yet here"
    return looked_words("certified" if item.proof.certified else "precise", item.outcome)


def _table(every: tuple[Kept, ...]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("kernel", "device", "time", "vs baseline", "looked at", "from"):
        table.add_column(name)
    for item in every:
        proof = item.proof
        table.add_row(
            one_line(item.what, 60),
            one_line(item.device, 32),
            milliseconds(proof.median_ms),
            f"{ratio(proof.ratio)} {proof.baseline}",
            _looked_at(item),
            one_line(item.where, 40),
        )
    return table
