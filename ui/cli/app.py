"""The commands that search, judge and serve. What is done about them stands beside.

Nothing heavy is imported before a command runs. Results go to stdout, all else to stderr. Exit
status: 0 it ran, 2 the input is unusable, 3 the machine lacks something.
"""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.tools.evaluate.executors.registry import DEFAULT
from kernelwright.ui.cli.data.commands import app as data_app
from kernelwright.ui.cli.gemm.commands import app as gemm_app
from kernelwright.ui.cli.groups import clusters, people
from kernelwright.ui.cli.learn.commands import app as learn_app
from kernelwright.ui.cli.options import (
    Allow,
    BaseUrl,
    Build,
    Bundles,
    ByEvidence,
    ByExecutor,
    ByRegion,
    ByRegions,
    Device,
    Entry,
    Evaluation,
    Evidence,
    Export,
    File,
    Force,
    Fresh,
    Gpu,
    Inputs,
    JoinedCluster,
    Json,
    LoadSeconds,
    MaxTokens,
    MaxUsd,
    Model,
    ModelFor,
    Rounds,
    Run,
    RunDir,
    Seconds,
    Seed,
    Shapes,
    StartFrom,
    Target,
    Train,
    Wait,
    depth_help,
)
from kernelwright.ui.complaints import complaint_of, led_to

DEPTH_HELP = depth_help()
# What a shell expects of a program that Ctrl-C ended.
INTERRUPTED = 130

app = typer.Typer(
    name="kernelwright",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        from kernelwright.tools.runtime import kernelwright_version

        sys.stdout.write(f"kernelwright {kernelwright_version()}\n")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[  # its callback has told it
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which it is."),
    ] = False,
) -> None:
    """Makes a PyTorch module faster by writing kernels for it, and proves it."""


@app.command()
def optimize(
    file: File = None,
    build: Build = None,
    entry: Entry = None,
    inputs: Inputs = None,
    shapes: Shapes = "",
    target: Device = Target.AUTO,
    search: Annotated[str, typer.Option(help=DEPTH_HELP)] = "standard",
    rounds: Rounds = None,
    seconds: Seconds = None,
    run_dir: RunDir = None,
    seed: Seed = 0,
    allow: Allow = None,
    export: Export = None,
    force: Force = False,
    json: Json = None,
    wait: Wait = None,
    executor: ByExecutor = DEFAULT,
    bundles: Bundles = None,
    gpu: Gpu = None,
    cluster: JoinedCluster = None,
    start_from: StartFrom = None,
    load_seconds: LoadSeconds = 60.0,
    regions: ByRegions = ByRegion.AUTO,
    fresh: Fresh = False,
    evaluation: Evaluation = False,
    train: Train = False,
    evidence: ByEvidence = Evidence.FULL,
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
) -> None:
    """Search for a faster implementation of a module."""
    from kernelwright.ui.cli.optimize import SearchOptions, optimize
    from kernelwright.ui.cli.work import wished
    from kernelwright.ui.complaints import asked_for
    from kernelwright.ui.model_choice import Choice

    options = SearchOptions(
        export=export,
        force=force,
        json=json,
        rounds=rounds,
        seconds=seconds,
        wait=wait,
        executor=wished(executor, bundles, gpu, target.value, cluster),
        start_from=start_from,
        allow=allow,
        load_seconds=load_seconds,
        regions=regions.value,
        fresh=fresh,
        evaluation=evaluation,
        shapes=shapes,
        train=train,
        evidence=evidence.value,
        models=Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd),
        makes=build is not None,
    )
    optimize(
        asked_for(file, build, "FILE"),
        entry,
        tuple(inputs or ()),
        target.value,
        search,
        run_dir,
        seed,
        options,
    )


@app.command()
def resume(
    run: Run,
    rounds: Rounds = None,
    seconds: Seconds = None,
    run_dir: RunDir = None,
    export: Export = None,
    force: Force = False,
    json: Json = None,
    wait: Wait = None,
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
) -> None:
    """Go on with a run that was stopped or killed; limits count all its sessions."""
    from kernelwright.ui.cli.optimize import SearchOptions, resume
    from kernelwright.ui.model_choice import Choice

    options = SearchOptions(
        export=export,
        force=force,
        json=json,
        rounds=rounds,
        seconds=seconds,
        wait=wait,
        models=Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd),
    )
    resume(run, run_dir, options)


@app.command()
def check(
    candidate: Annotated[
        Path,
        typer.Argument(
            help="A kernel with its plan (a folder, a kernel, a fenced file), an export's folder, "
            "or foreign code: a ModelNew file, a folder with src.py, or CUDA-L1 records."
        ),
    ],
    task: Annotated[
        Path | None,
        typer.Option(
            help="What it implements: a file or else, as for optimize; by default an export's "
            "own reference."
        ),
    ] = None,
    build: Build = None,
    entry: Entry = None,
    inputs: Inputs = None,
    shapes: Shapes = "",
    target: Device = Target.AUTO,
    allow: Allow = None,
    record: Annotated[
        str | None, typer.Option(help="Which record of a file: its line, or level/task.")
    ] = None,
    load_seconds: LoadSeconds = 60.0,
    evaluation: Evaluation = False,
    json: Json = None,
) -> None:
    """Verify and time one candidate against a task."""
    from kernelwright.ui.cli.check import check, task_of
    from kernelwright.ui.complaints import asked_for

    own = task_of(candidate) if task is None and build is None else None
    check(
        candidate,
        own.file if own else asked_for(task, build, "--task"),
        entry or (own.entry if own else None),
        tuple(inputs or ()) or (own.inputs if own else ()),
        target.value,
        json,
        allow,
        record,
        load_seconds=load_seconds,
        makes=build is not None,
        eval_mode=evaluation,
        shapes=shapes,
    )


@app.command()
def audit(
    file: File = None,
    build: Build = None,
    entry: Entry = None,
    inputs: Inputs = None,
    target: Device = Target.AUTO,
    load_seconds: LoadSeconds = 60.0,
    evaluation: Evaluation = False,
    json: Json = None,
) -> None:
    """Say what a task is, what its floor is here, and whether beating it would prove anything."""
    from kernelwright.ui.cli.audit import audit
    from kernelwright.ui.complaints import asked_for

    audit(
        asked_for(file, build, "FILE"),
        entry,
        tuple(inputs or ()),
        target.value,
        json,
        load_seconds=load_seconds,
        makes=build is not None,
        evaluation=evaluation,
    )


@app.command()
def selftest(
    rows: Annotated[str, typer.Option(help="Rows of the catalogue, as in 1,4,19.")] = "",
    target: Device = Target.AUTO,
    kind: Annotated[str, typer.Option(help="Only `plan` or only `foreign` evils.")] = "",
    json: Json = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
) -> None:
    """Prove the judge here: every known cheat must be found out, every honest twin accepted."""
    from kernelwright.ui.cli.selftest import selftest

    selftest(rows, target.value, kind, json, markdown)


app.add_typer(data_app)
app.add_typer(gemm_app)
app.add_typer(learn_app, name="learn")


@app.command()
def work(
    bundles: Annotated[list[Path], typer.Argument(help="Bundles: folders that a run wrote.")],
    target: Device = Target.AUTO,
) -> None:
    """Fill in bundles on this machine's device; needs no network and no run."""
    from kernelwright.ui.cli.work import work

    raise typer.Exit(work(bundles, target.value))


@app.command()
def ablate(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Python files, as for optimize.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="A part to switch off: ideas, contrast, archive, prompts or tuning; all of them, "
            "one at a time, when none is given."
        ),
    ] = None,
    search: Annotated[str, typer.Option(help="quick, standard, deep or careful.")] = "quick",
    seeds: Annotated[int, typer.Option(min=1, help="How often, each with another seed.")] = 1,
    rounds: Rounds = None,
    seconds: Seconds = None,
    target: Device = Target.AUTO,
    out: Annotated[
        Path | None, typer.Option(help="Keep outcomes here, a line each; what is there is kept.")
    ] = None,
    recorded: Annotated[
        Path | None,
        typer.Option(help="Replay on the settings spaces recorded in this folder; no device."),
    ] = None,
    loop: Annotated[
        list[str] | None, typer.Option(help="Of a recording, only this loop; several times.")
    ] = None,
    run_dir: RunDir = None,
    model: Annotated[
        str | None, typer.Option(help="A model, a profile of one, or manual; else the playbook.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="Where the model is.")] = None,
    model_for: Annotated[
        list[str] | None, typer.Option(help="Another model for one role, as ROLE=NAME.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of models, a search.")] = None,
    max_usd: Annotated[float | None, typer.Option(min=0.001, help="Of models, a search.")] = None,
) -> None:
    """Search the same files with parts of the search switched off, and say what each is worth."""
    from kernelwright.ui.cli.ablate.recorded import replay
    from kernelwright.ui.cli.ablate.trials import compare
    from kernelwright.ui.cli.optimize import SearchOptions, chosen_profile
    from kernelwright.ui.complaints import Complaint
    from kernelwright.ui.model_choice import Choice, chosen_models

    choice = Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd)
    models = chosen_models(choice)
    profile = chosen_profile(search, SearchOptions(rounds=rounds, seconds=seconds, models=choice))
    if recorded is not None:
        if files or models is not None:
            raise Complaint("a replay of recorded loops takes no files and no model")
        replay(recorded, without or (), profile, seeds, loop or (), out)
        return
    if not files:
        raise Complaint("name files to search, or a recording with --recorded")
    compare(files, without or (), profile, seeds, target.value, run_dir, out, models)


@app.command()
def doctor(model: Model = None, base_url: BaseUrl = None) -> None:
    """Say what works here: device, compilers, profilers, the model."""
    from kernelwright.ui.doctor import doctor
    from kernelwright.ui.model_choice import Choice

    raise typer.Exit(doctor(Choice(model, base_url)))


@app.command()
def chat(
    host: Annotated[
        str, typer.Option(help="The address to listen at; people must log in for any but this.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    headless: Annotated[bool, typer.Option("--headless", help="Open no browser.")] = False,
    run_dir: RunDir = None,
    database: Annotated[
        str | None,
        typer.Option(help="Keep conversations there, as postgresql://...; a file by default."),
    ] = None,
    target: Device = Target.AUTO,
    search: Annotated[str, typer.Option(help="quick, standard, deep or careful.")] = "quick",
    ready: Annotated[
        int,
        typer.Option(min=0, max=64, help="Workers that stand ready, of some 400 MB each."),
    ] = 4,
    load_seconds: LoadSeconds = 60.0,
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
) -> None:
    """Open the chat: a page to watch a search, steer it, ask why, and take the result home."""
    from kernelwright.ui.cli.chat import chat
    from kernelwright.ui.model_choice import Choice

    choice = Choice(model, base_url, tuple(model_for or ()))
    chat(
        host,
        port,
        headless,
        run_dir,
        database,
        target.value,
        search,
        ready,
        choice,
        load_seconds=load_seconds,
    )


app.add_typer(clusters, name="cluster")
app.add_typer(people, name="user")


def main() -> None:
    """The command `kernelwright`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # where a name's letters are not to be had
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Carry out a command line and return the exit status."""
    try:
        status = int(app(args=arguments or ["--help"], standalone_mode=False) or 0)
        return _interrupted() if status == INTERRUPTED else status  # the parser's own, unsaid
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone
        return 0
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            if _holds_an_interrupt(error):
                return _interrupted()
            raise
        sys.stderr.write(f"kernelwright: {complaint}\n")
        return complaint.status


def _interrupted() -> int:
    sys.stderr.write("kernelwright: interrupted\n")
    return INTERRUPTED


def _holds_an_interrupt(error: Exception) -> bool:
    """Whether an interrupt led to it, or a library (pydantic) took one for an error of its own."""
    interrupts = (isinstance(one, KeyboardInterrupt) for one in led_to(error))
    return any(interrupts) or any("KeyboardInterrupt" in str(one) for one in led_to(error))
