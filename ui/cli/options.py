"""The options and arguments of the command line, each said once for all commands that take it."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.tools.evaluate.executors.registry import EXECUTORS


class Target(StrEnum):
    """Which kind of device."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class ByRegion(StrEnum):
    """Whether a model is searched region by region."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Evidence(StrEnum):
    """How much a certification adds."""

    FULL = "full"
    TIMING = "timing"


class Format(StrEnum):
    """What an export is."""

    MODULE = "module"
    KERNELBENCH = "kernelbench"


def depth_help() -> str:
    """How deep a search can be; when help is asked for, with what each depth takes here."""
    words = "quick, standard, deep or careful."
    if "--help" not in sys.argv:
        return words
    from kernelwright.graphs.search.pace import Pace, latest, promised_words
    from kernelwright.tools.runtime import home

    pace = latest(home()) or Pace(device="", kind="cpu")
    return f"{words} To the end: {promised_words(pace)}."


File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="A Python file with a module and get_inputs(), a notebook, a folder, a .zip, or a "
        "name for an import, as package.layers:Block.",
    ),
]
Build = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Instead of a file: a function without arguments that returns the model.",
    ),
]
Run = Annotated[str, typer.Argument(help="A run: its id, the beginning of it, or its folder.")]
Entry = Annotated[
    str | None, typer.Option(help="The module or function; as pkg/layers.py:Block in a folder.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        help="An input instead of get_inputs(), as 64x128:float32, one option each; or a .pt file."
    ),
]
Shapes = Annotated[
    str,
    typer.Option(
        metavar="SIZES",
        help="Serve these sizes too, as batch=1..64,x[1]=128|512; others call the reference.",
    ),
]
Device = Annotated[Target, typer.Option(help="Which kind of device.")]
Json = Annotated[str | None, typer.Option(help="Write the result as JSON here; - for stdout.")]
RunDir = Annotated[
    Path | None, typer.Option(help="Where runs live, instead of the user's data folder.")
]
LoadSeconds = Annotated[
    float,
    typer.Option(min=1, help="Give a file up that neither computes nor reads for this long."),
]
Rounds = Annotated[int | None, typer.Option(min=1, help="At most this many rounds.")]
Seconds = Annotated[
    float | None,
    typer.Option(
        min=1,
        max=365 * 86_400,
        help="At most this many seconds from when the file was read to the result, and a quarter "
        "more for a certification: what is ahead and not certified by then is not settled. Reading "
        "and auditing the file comes on top, and exporting.",
    ),
]
Seed = Annotated[
    int, typer.Option(min=-(2**63), max=2**63 - 1, help="Of everything drawn by chance.")
]
Export = Annotated[
    Path | None, typer.Option(help="Export the result here: a folder, or a .zip file.")
]
Allow = Annotated[
    str | None,
    typer.Option(help="Precisions below the task's own that count too, as tf32,fp16,bf16,fp8."),
]
ByExecutor = Annotated[
    str,
    typer.Option(
        metavar=f"<{'|'.join(EXECUTORS)}>",
        help="Here, by bundles carried to a GPU, or on a Ray cluster.",
    ),
]
Bundles = Annotated[
    Path | None, typer.Option(help="Where bundles go, instead of the run's folder.")
]
Gpu = Annotated[
    str | None, typer.Option(help="The GPU that bundles are for, or of the cluster, as H200.")
]
JoinedCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="HOST:PORT",
        help="The Ray cluster to join, with its token; without it this machine's GPUs are one.",
    ),
]
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
Evaluation = Annotated[
    bool,
    typer.Option("--eval", help="In evaluation mode, whatever mode the constructor leaves it in."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Begin with nothing out of your library of kernels.")
]
Train = Annotated[
    bool,
    typer.Option("--train", help="Search kernels for gradients too, in two thirds of the time."),
]
ByRegions = Annotated[
    ByRegion,
    typer.Option(help="Search region by region: a model of many layers, always, or never."),
]
ByEvidence = Annotated[
    Evidence,
    typer.Option(
        help="timing: certify in a third of the time, without max-autotune, other loads and the "
        "sanitizer, which the result then says."
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
Force = Annotated[
    bool, typer.Option("--force", help="Export although it is not shown to be faster.")
]
