"""Commands about the library of kernels that were verified for the user."""

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.ui.cli.options import RunDir

app = typer.Typer(rich_markup_mode=None, help="The library of kernels that were verified for you.")

OutFile = Annotated[Path, typer.Argument(help="The file to write.")]
InFile = Annotated[Path, typer.Argument(help="A file that `memory export` wrote.")]


@app.command()
def show(run_dir: RunDir = None) -> None:
    """List the kernels with their devices and speed-ups, the latest used first."""
    from kernelwright.ui.cli.data.memory import show

    show(run_dir)


@app.command()
def export(file: OutFile, run_dir: RunDir = None) -> None:
    """Write all kernels to a file that others can merge; without names, runs or your source."""
    from kernelwright.ui.cli.data.memory import export

    export(file, run_dir)


@app.command()
def merge(file: InFile, run_dir: RunDir = None) -> None:
    """Take in the kernels of such a file; a search tries them, and the judge decides."""
    from kernelwright.ui.cli.data.memory import merge

    merge(file, run_dir)


@app.command()
def clear(run_dir: RunDir = None) -> None:
    """Delete the library; runs stay."""
    from kernelwright.ui.cli.data.memory import clear

    clear(run_dir)
