"""The commands of `kernelwright learn`, each with what it may be asked."""

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.tools.evaluate.executors.registry import DEFAULT, EXECUTORS
from kernelwright.ui.cli.options import Device, Json, RunDir, Target

app = typer.Typer(rich_markup_mode=None, help="Small models that learn from verified kernels.")

Out = Annotated[Path, typer.Option("--out", help="The folder to write.")]
Seed = Annotated[int, typer.Option(help="Of everything drawn by chance.")]
By = Annotated[str, typer.Option(metavar=f"<{'|'.join(EXECUTORS)}>", help="Who judges.")]


@app.command()
def dataset(
    out: Out,
    run_dir: RunDir = None,
    write: Annotated[
        int, typer.Option(min=0, help="Modules of our own that the playbook answers.")
    ] = 0,
    held_out: Annotated[
        int, typer.Option(min=0, help="Tasks of held-out families to evaluate on.")
    ] = 60,
    held_out_share: Annotated[
        float, typer.Option(help="The share of your runs' families that is held out.")
    ] = 0.2,
    small: Annotated[bool, typer.Option("--small", help="Modules of sizes for a test.")] = False,
    seed: Seed = 0,
    target: Device = Target.AUTO,
    executor: By = DEFAULT,
) -> None:
    """Turn the verified candidates of your runs into training data, split by family."""
    from kernelwright.ui.cli.learn.data import DatasetOptions, dataset

    dataset(
        DatasetOptions(
            out=out,
            home=run_dir,
            write=write,
            held_out=held_out,
            share=held_out_share,
            seed=seed,
            target=target.value,
            executor=executor,
            small=small,
        )
    )


Data = Annotated[Path, typer.Option(help="A data set of `learn dataset`.")]
Student = Annotated[str, typer.Option("--model", help="A model's folder, or playbook.")]
Adapter = Annotated[Path | None, typer.Option(help="An adapter that was trained for the model.")]
Tokens = Annotated[int, typer.Option(min=1, help="At most this many tokens an answer.")]
Batch = Annotated[int, typer.Option(min=1, help="Sequences that are sampled together.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Of sampling; 0 takes the likeliest.")]
EagerOnly = Annotated[
    bool, typer.Option("--eager-only", help="Leave torch.compile out of the baselines.")
]


@app.command()
def evaluate(
    data: Data,
    out: Out,
    model: Student,
    adapter: Adapter = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers a task.")] = 8,
    tasks: Annotated[int | None, typer.Option(min=1, help="At most this many tasks.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="An earlier evaluation's folder, to compare with.")
    ] = None,
    eager_only: EagerOnly = False,
    batch: Batch = 64,
    tokens: Tokens = 768,
    temperature: Temperature = 0.8,
    seed: Seed = 0,
    target: Device = Target.AUTO,
    executor: By = DEFAULT,
    json: Json = None,
) -> None:
    """Sample answers to held-out tasks, judge them, and say how many are right and fast."""
    from kernelwright.ui.cli.learn.evaluate import EvaluateOptions, evaluate

    evaluate(
        EvaluateOptions(
            data=data,
            model=model,
            adapter=adapter,
            out=out,
            samples=samples,
            tasks=tasks,
            against=against,
            eager_only=eager_only,
            batch=batch,
            tokens=tokens,
            temperature=temperature,
            seed=seed,
            target=target.value,
            executor=executor,
            json=json,
        )
    )
