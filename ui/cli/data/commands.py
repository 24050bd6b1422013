"""Commands about runs that are there, about suites, and about the library of kernels."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.ui.cli.options import (
    BaseUrl,
    ByRegion,
    ByRegions,
    Device,
    Force,
    Format,
    JoinedCluster,
    Json,
    LoadSeconds,
    MaxTokens,
    MaxUsd,
    Model,
    ModelFor,
    Run,
    RunDir,
    Target,
)

app = typer.Typer()


@app.command()
def runs(run_dir: RunDir = None) -> None:
    """List the runs there are."""
    from kernelwright.ui.cli.data.runs import runs

    runs(run_dir)


@app.command()
def show(
    run: Run,
    ids: Annotated[bool, typer.Option("--ids", help="Candidates' ids beside their numbers.")] = (
        False
    ),
    run_dir: RunDir = None,
) -> None:
    """Show a run: the task, the result, the leaderboard, the ideas."""
    from kernelwright.ui.cli.data.runs import show

    show(run, run_dir, ids=ids)


@app.command()
def trace(run: Run, run_dir: RunDir = None) -> None:
    """Tell a run: who said what, when, on which evidence."""
    from kernelwright.ui.cli.data.runs import trace

    trace(run, run_dir)


@app.command()
def measure(run: Run, run_dir: RunDir = None, json: Json = None) -> None:
    """Certify a run's result again, where its figures settled nothing."""
    from kernelwright.ui.cli.optimize import measure

    measure(run, run_dir, json)


@app.command()
def prompts(
    run: Run,
    key: Annotated[
        str | None, typer.Argument(help="A question, as the list names it; all in a list if none.")
    ] = None,
    run_dir: RunDir = None,
) -> None:
    """List what models were asked in a run, or show one question and its answer in full."""
    from kernelwright.ui.cli.data.runs import prompts

    prompts(run, key, run_dir)


@app.command()
def questions(run_dir: RunDir = None) -> None:
    """List the questions that wait for a person's answer, with --model manual."""
    from kernelwright.ui.cli.data.runs import questions

    questions(run_dir)


@app.command()
def replay(run: Run, run_dir: RunDir = None) -> None:
    """Run a recorded search again, without model or device, and compare every decision."""
    from kernelwright.ui.cli.data.runs import replay

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
    from kernelwright.ui.cli.data.runs import report

    report(run, output, run_dir)


@app.command()
def export(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder, a .zip or a file.")],
    format: Annotated[Format, typer.Option(help="A drop-in module, or a ModelNew file.")] = (
        Format.MODULE
    ),
    candidate: Annotated[
        str | None, typer.Option(help="Another candidate than the best, such as v7.")
    ] = None,
    force: Force = False,
    run_dir: RunDir = None,
) -> None:
    """Take the result of a run home."""
    from kernelwright.ui.cli.optimize import export

    export(run, output, format.value, candidate, force, run_dir)


class Evidence(StrEnum):
    """How closely finalists are looked at."""

    FULL = "full"
    TIMING = "timing"
    AUTOTUNE = "autotune"
    COUNTERS = "counters"


@app.command()
def bench(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER | summary RESULTS | compare RESULTS RESULTS",
            help="A folder of KernelBench-style files to search one after the other; or result "
            "files to sum up or hold against each other.",
        ),
    ],
    match: Annotated[
        list[str] | None,
        typer.Option(help="Only these files: a number, a range 20-29, *norm*, part of a name."),
    ] = None,
    search: Annotated[str, typer.Option(help="quick, standard, deep or careful.")] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Keep outcomes here, a JSON line for each file.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep what --out has already, and do the rest.")
    ] = False,
    seconds_per_task: Annotated[
        float | None, typer.Option(min=1, help="At most this many seconds of search for a file.")
    ] = None,
    only_baselines: Annotated[
        bool, typer.Option("--only-baselines", help="Measure what PyTorch does; search nothing.")
    ] = False,
    evidence: Annotated[
        Evidence,
        typer.Option(help="full as optimize does; timing leaves sanitizer and profilers out."),
    ] = Evidence.FULL,
    target: Device = Target.AUTO,
    gpus: Annotated[
        str, typer.Option(help="Spread the files over these GPUs: all, or numbers as in 0,1.")
    ] = "",
    executor: Annotated[
        str, typer.Option(metavar="<local|ray>", help="Here, or on a Ray cluster.")
    ] = "local",
    gpu: Annotated[
        str | None,
        typer.Option(help="Which GPUs of the cluster, as H200, or L40S,H200 for results of each."),
    ] = None,
    cluster: JoinedCluster = None,
    seed: Annotated[int, typer.Option(help="Of everything drawn by chance.")] = 0,
    run_dir: RunDir = None,
    load_seconds: LoadSeconds = 60.0,
    regions: ByRegions = ByRegion.AUTO,
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
) -> None:
    """Search a folder of files one after the other, and sum up what came of it."""
    from kernelwright.ui.cli.bench import Suite, bench
    from kernelwright.ui.cli.cluster import chosen_cluster
    from kernelwright.ui.model_choice import Choice

    suite = Suite(
        match=tuple(match or ()),
        search="" if only_baselines else search,
        out=out,
        resume=resume,
        seconds=seconds_per_task,
        target=target.value,
        seed=seed,
        evidence=evidence.value,
        home=run_dir,
        gpus=gpus,
        on=chosen_cluster(executor, gpu, cluster, target.value),
        load_seconds=load_seconds,
        regions=regions.value,
        models=Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd),
    )
    bench(tuple(what), suite)


@app.command("serve-mcp")
def serve_mcp(
    root: Annotated[
        Path, typer.Option(help="The folder that agents may reach; files are named from there.")
    ] = Path(),
    run_dir: RunDir = None,
    target: Device = Target.AUTO,
    max_seconds: Annotated[float, typer.Option(min=1, help="At most, for one search.")] = 600.0,
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
) -> None:
    """Give coding agents audit, optimize, check, explain and export, over standard input."""
    from kernelwright.ui.cli.serve_mcp import Grant, serve
    from kernelwright.ui.model_choice import Choice

    choice = Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd)
    serve(Grant(root, run_dir, target.value, max_seconds, choice))


memory = typer.Typer(
    rich_markup_mode=None, help="The library of kernels that were verified for you."
)
app.add_typer(memory, name="memory")

OutFile = Annotated[Path, typer.Argument(help="The file to write.")]
InFile = Annotated[Path, typer.Argument(help="A file that `memory export` wrote.")]


@memory.command("show")
def show_memory(run_dir: RunDir = None) -> None:
    """List the kernels with their devices and speed-ups, the latest used first."""
    from kernelwright.ui.cli.data.memory import show

    show(run_dir)


@memory.command("export")
def export_memory(file: OutFile, run_dir: RunDir = None) -> None:
    """Write all kernels to a file that others can merge; without names, runs or your source."""
    from kernelwright.ui.cli.data.memory import export

    export(file, run_dir)


@memory.command("merge")
def merge_memory(file: InFile, run_dir: RunDir = None) -> None:
    """Take in the kernels of such a file; a search tries them, and the judge decides."""
    from kernelwright.ui.cli.data.memory import merge

    merge(file, run_dir)


@memory.command("clear")
def clear_memory(
    run_dir: RunDir = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
) -> None:
    """Delete the library; runs stay. At a terminal you are asked first."""
    from kernelwright.ui.cli.data.memory import clear

    clear(run_dir, sure=yes)
