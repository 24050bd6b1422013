"""The command line: what can be asked, and how. What is done about it stands in `ui.commands`.

Nothing heavy is imported before a command runs: `kernelwright --help` must not wait for torch.
Results go to stdout, everything else to stderr. Exit status: 0 it ran, 2 the input is unusable,
3 the machine lacks something. Not here yet: bench, selftest.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ui.complaints import complaint_of

# What a shell expects of a program that Ctrl-C ended.
INTERRUPTED = 130


class Target(StrEnum):
    """Which kind of device."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class Where(StrEnum):
    """Where candidates are evaluated."""

    LOCAL = "local"
    BATCH = "batch"


class Format(StrEnum):
    """What an export is."""

    MODULE = "module"
    KERNELBENCH = "kernelbench"


app = typer.Typer(
    name="kernelwright",
    help="Makes a PyTorch module faster by writing kernels for it, and proves it.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

File = Annotated[Path, typer.Argument(help="A Python file with a module and get_inputs().")]
Run = Annotated[str, typer.Argument(help="A run: its id, the beginning of it, or its folder.")]
Entry = Annotated[str | None, typer.Option(help="The module or function in the file.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option(help="An input instead of get_inputs(), as 64x128:float32; one option each."),
]
Device = Annotated[Target, typer.Option(help="Which kind of device.")]
Json = Annotated[str | None, typer.Option(help="Write the result as JSON here; - for stdout.")]
RunDir = Annotated[
    Path | None, typer.Option(help="Where runs live, instead of the user's data folder.")
]
Rounds = Annotated[int | None, typer.Option(min=1, help="At most this many rounds.")]
Seconds = Annotated[float | None, typer.Option(min=1, help="At most this many seconds.")]
Export = Annotated[
    Path | None, typer.Option(help="Export the result here: a folder, or a .zip file.")
]
Bundles = Annotated[
    Path | None, typer.Option(help="Where bundles go, instead of the run's folder.")
]
Gpu = Annotated[str | None, typer.Option(help="The GPU that bundles are for, such as H200.")]
Wait = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Wait for answers and results from outside, or end the session and resume later; "
        "by default wait at a terminal.",
    ),
]
StartFrom = Annotated[
    Path | None,
    typer.Option(
        help="A kernel of yours to begin with; without a plan beside it, a model's to wrap."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Who thinks: a model's name with --base-url, a profile (ollama:qwen3), the path of "
        "one, or manual; without it the playbook."
    ),
]
BaseUrl = Annotated[
    str | None, typer.Option(help="An OpenAI-compatible endpoint; nothing is sent without one.")
]
ModelFor = Annotated[
    list[str] | None,
    typer.Option(help="Another model for a role, as coder=NAME; one option each."),
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="At most this many tokens, in and out, of all models.")
]
MaxUsd = Annotated[
    float | None, typer.Option(min=0.001, help="At most this many US dollars for models.")
]
Person = Annotated[str, typer.Argument(help="A name: a-z, 0-9, _ and -.")]
Force = Annotated[bool, typer.Option("--force", help="Export although it is not faster.")]


@app.command()
def optimize(
    file: File,
    entry: Entry = None,
    inputs: Inputs = None,
    target: Device = Target.AUTO,
    search: Annotated[str, typer.Option(help="quick, standard or deep.")] = "standard",
    rounds: Rounds = None,
    seconds: Seconds = None,
    run_dir: RunDir = None,
    seed: Annotated[int, typer.Option(help="Of everything drawn by chance.")] = 0,
    export: Export = None,
    force: Force = False,
    json: Json = None,
    wait: Wait = None,
    executor: Annotated[Where, typer.Option(help="Here, or by bundles carried to a GPU.")] = (
        Where.LOCAL
    ),
    bundles: Bundles = None,
    gpu: Gpu = None,
    start_from: StartFrom = None,
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
) -> None:
    """Search for a faster implementation of a module."""
    from ui.commands.models import Choice
    from ui.commands.search import Wishes, optimize
    from ui.commands.work import wished

    wishes = Wishes(
        export=export,
        force=force,
        json=json,
        rounds=rounds,
        seconds=seconds,
        wait=wait,
        batch=wished(executor.value, bundles, gpu, target.value),
        start_from=start_from,
        models=Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd),
    )
    optimize(file, entry, tuple(inputs or ()), target.value, search, run_dir, seed, wishes)


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
    from ui.commands.models import Choice
    from ui.commands.search import Wishes, resume

    wishes = Wishes(
        export=export,
        force=force,
        json=json,
        rounds=rounds,
        seconds=seconds,
        wait=wait,
        models=Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd),
    )
    resume(run, run_dir, wishes)


@app.command()
def check(
    candidate: Annotated[
        Path, typer.Argument(help="A kernel with its plan: a folder, a kernel, or a fenced file.")
    ],
    task: Annotated[Path, typer.Option(help="The Python file that it implements.")],
    entry: Entry = None,
    inputs: Inputs = None,
    target: Device = Target.AUTO,
    json: Json = None,
) -> None:
    """Verify and time one candidate against a task."""
    from ui.commands.check import check

    check(candidate, task, entry, tuple(inputs or ()), target.value, json)


@app.command()
def audit(
    file: File,
    entry: Entry = None,
    inputs: Inputs = None,
    target: Device = Target.AUTO,
    json: Json = None,
) -> None:
    """Say what a task is, what its floor is here, and whether beating it would prove anything."""
    from ui.commands.audit import audit

    audit(file, entry, tuple(inputs or ()), target.value, json)


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


@app.command()
def work(
    bundles: Annotated[list[Path], typer.Argument(help="Bundles: folders that a run wrote.")],
    target: Device = Target.AUTO,
) -> None:
    """Fill in bundles on this machine's device; needs no network and no run."""
    from ui.commands.work import work

    raise typer.Exit(work(bundles, target.value))


@app.command()
def ablate(
    files: Annotated[list[Path], typer.Argument(help="Python files, as for optimize.")],
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="A part to switch off: ideas, contrast, archive, prompts or tuning; all of them, "
            "one at a time, when none is given."
        ),
    ] = None,
    search: Annotated[str, typer.Option(help="quick, standard or deep.")] = "quick",
    seeds: Annotated[int, typer.Option(min=1, help="How often, each with another seed.")] = 1,
    rounds: Rounds = None,
    seconds: Seconds = None,
    target: Device = Target.AUTO,
    out: Annotated[
        Path | None, typer.Option(help="Keep outcomes here, a line each; what is there is kept.")
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
    max_usd: Annotated[float | None, typer.Option(min=0, help="Of models, a search.")] = None,
) -> None:
    """Search the same files with parts of the search switched off, and say what each is worth."""
    from ui.commands.ablate import compare, limited
    from ui.commands.models import Choice, chosen_models

    choice = Choice(model, base_url, tuple(model_for or ()), max_tokens, max_usd)
    limits = {"rounds": rounds, "seconds": seconds, "tokens": max_tokens, "usd": max_usd}
    models, profile = chosen_models(choice), limited(search, limits)
    compare(files, without or (), profile, seeds, target.value, run_dir, out, models)


@app.command()
def doctor(model: Model = None, base_url: BaseUrl = None) -> None:
    """Say what works here: device, compilers, profilers, the model."""
    from ui.commands.models import Choice
    from ui.doctor import doctor

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
    search: Annotated[str, typer.Option(help="quick, standard or deep.")] = "quick",
    model: Model = None,
    base_url: BaseUrl = None,
    model_for: ModelFor = None,
) -> None:
    """Open the chat: a page to watch a search, steer it, ask why, and take the result home."""
    from ui.commands.chat import chat
    from ui.commands.models import Choice

    choice = Choice(model, base_url, tuple(model_for or ()))
    chat(host, port, headless, run_dir, database, target.value, search, choice)


user_app = typer.Typer(help="Who may log in to the chat.", rich_markup_mode=None)
app.add_typer(user_app, name="user")


@user_app.command("add")
def add_user(name: Person, run_dir: RunDir = None) -> None:
    """Let somebody log in, or change their password; it is asked for, or read from stdin."""
    from ui.commands.chat import add_person

    add_person(name, run_dir)


@user_app.command("remove")
def remove_user(name: Person, run_dir: RunDir = None) -> None:
    """Let somebody log in no longer; their conversations and runs stay."""
    from ui.commands.chat import remove_person

    remove_person(name, run_dir)


@user_app.command("list")
def list_users(run_dir: RunDir = None) -> None:
    """List who may log in."""
    from ui.commands.chat import list_people

    list_people(run_dir)


def main() -> None:
    """The command `kernelwright`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Carry out a command line and return the exit status."""
    try:
        return int(app(args=arguments or ["--help"], standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("kernelwright: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone
        return 0
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            raise
        sys.stderr.write(f"kernelwright: {complaint}\n")
        return complaint.status


if __name__ == "__main__":
    main()
