"""The command about suites: run one, sum one up, hold two against each other."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ui.options import BaseUrl, Device, MaxTokens, MaxUsd, Model, ModelFor, RunDir, Target

app = typer.Typer()


class Evidence(StrEnum):
    """How closely finalists are looked at."""

    FULL = "full"
    TIMING = "timing"


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
    seed: Annotated[int, typer.Option(help="Of everything drawn by chance.")] = 0,
    run_dir: RunDir = None,
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
) -> None:
    """Search a folder of files one after the other, and sum up what came of it."""
    from ui.commands.bench import Suite, bench
    from ui.commands.models import Choice

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
        models=Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd),
    )
    bench(tuple(what), suite)
