"""Commands about runs that are there: list, show, tell, replay, take home."""

from pathlib import Path
from typing import Annotated

import typer

from ui.options import Force, Format, Run, RunDir

app = typer.Typer()


@app.command()
def runs(run_dir: RunDir = None) -> None:
    """List the runs there are."""
    from ui.commands.reading import runs

    runs(run_dir)


@app.command()
def show(run: Run, run_dir: RunDir = None) -> None:
    """Show a run: the task, the result, the leaderboard, the ideas."""
    from ui.commands.reading import show

    show(run, run_dir)


@app.command()
def trace(run: Run, run_dir: RunDir = None) -> None:
    """Tell a run: who said what, when, on which evidence."""
    from ui.commands.reading import trace

    trace(run, run_dir)


@app.command()
def prompts(
    run: Run,
    key: Annotated[
        str | None, typer.Argument(help="A question, as the list names it; all in a list if none.")
    ] = None,
    run_dir: RunDir = None,
) -> None:
    """List what models were asked in a run, or show one question and its answer in full."""
    from ui.commands.talks import prompts

    prompts(run, key, run_dir)


@app.command()
def questions(run_dir: RunDir = None) -> None:
    """List the questions that wait for a person's answer, with --model manual."""
    from ui.commands.questions import questions

    questions(run_dir)


@app.command()
def replay(run: Run, run_dir: RunDir = None) -> None:
    """Run a recorded search again, without model or device, and compare every decision."""
    from ui.commands.replaying import replay

    raise typer.Exit(replay(run, run_dir))


@app.command()
def report(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; the run's folder by default.")
    ] = None,
    run_dir: RunDir = None,
) -> None:
    """Write a run as one HTML file."""
    from ui.commands.reading import report

    report(run, output, run_dir)


@app.command()
def export(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder, a .zip or a file.")],
    format: Annotated[Format, typer.Option(help="A drop-in module, or a ModelNew file.")] = (
        Format.MODULE
    ),
    candidate: Annotated[
        str | None, typer.Option(help="Another candidate than the best, by its id.")
    ] = None,
    force: Force = False,
    run_dir: RunDir = None,
) -> None:
    """Take the result of a run home."""
    from ui.commands.taking import export

    export(run, output, format.value, candidate, force, run_dir)
