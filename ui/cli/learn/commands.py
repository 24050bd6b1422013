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
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Write modules for at most this long.")
    ] = None,
    answers: Annotated[int, typer.Option(min=1, help="Answers to each of them, at most.")] = 3,
    breaks: Annotated[
        bool, typer.Option("--breaks/--no-breaks", help="Break right answers too, for repairs.")
    ] = True,
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
            seconds=seconds,
            answers=answers,
            breaks=breaks,
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


Folder = Annotated[Path, typer.Option("--model", help="A model's folder.")]
Rank = Annotated[int, typer.Option(min=1, help="Of a new adapter.")]
Micro = Annotated[int, typer.Option(min=1, help="Sequences that are trained on together.")]
SomeTasks = Annotated[int | None, typer.Option(min=1, help="At most this many tasks.")]


@app.command()
def sft(
    data: Data,
    model: Folder,
    out: Out,
    adapter: Adapter = None,
    steps: Annotated[int, typer.Option(min=0, help="Updates; 0 takes all epochs.")] = 0,
    epochs: Annotated[float, typer.Option(min=0.01, help="How often a row is seen.")] = 2.0,
    batch: Annotated[int, typer.Option(min=1, help="Rows of an update.")] = 32,
    micro: Micro = 8,
    rate: Annotated[float, typer.Option(min=0.0, help="The highest learning rate.")] = 2e-4,
    rank: Rank = 16,
    longest: Annotated[int, typer.Option(min=1, help="Tokens of a row, at most.")] = 2048,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 20,
    seed: Seed = 0,
) -> None:
    """Fine-tune a model on a data set's answers; the same command goes on where one stopped."""
    from kernelwright.tools.learning.training.sft import SftSettings
    from kernelwright.ui.cli.learn.train import Place, sft

    settings = SftSettings(
        data=str(data),
        model=_named(model, adapter),
        rank=rank,
        steps=steps,
        epochs=epochs,
        batch=batch,
        micro=micro,
        rate=rate,
        longest=longest,
        save_every=save_every,
        seed=seed,
    )
    sft(Place(data, model, adapter, out, "auto", DEFAULT), settings)


@app.command()
def sample(
    data: Data,
    model: Folder,
    out: Out,
    adapter: Adapter = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers a task.")] = 8,
    tasks: SomeTasks = None,
    batch: Batch = 64,
    tokens: Tokens = 768,
    temperature: Temperature = 0.8,
    seed: Seed = 0,
    target: Device = Target.AUTO,
    executor: By = DEFAULT,
) -> None:
    """Sample answers to the tasks of training; what is right joins the data set, written anew."""
    from kernelwright.tools.learning.training.policy import Sampling
    from kernelwright.ui.cli.learn.train import Place, sample

    place = Place(data, model, adapter, out, target.value, executor)
    sampling = Sampling(tokens, temperature, batch)
    sample(place, sampling, samples=samples, tasks=tasks, seed=seed)


@app.command()
def rl(
    data: Data,
    model: Folder,
    out: Out,
    adapter: Adapter = None,
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 12,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of a step.")] = 8,
    group: Annotated[int, typer.Option(min=2, help="Answers to each.")] = 16,
    of: SomeTasks = None,
    write: Annotated[
        int, typer.Option(min=0, help="Draw so many tasks of its own instead of the data set's.")
    ] = 0,
    contrast: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Prompts that show verified answers.")
    ] = 0.5,
    batch: Batch = 128,
    micro: Micro = 8,
    tokens: Tokens = 768,
    temperature: Temperature = 1.0,
    rate: Annotated[float, typer.Option(min=0.0, help="The highest learning rate.")] = 3e-5,
    rank: Rank = 16,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Tell speed beside torch.compile as well as eager.")
    ] = False,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 1,
    seed: Seed = 0,
    target: Device = Target.AUTO,
    executor: By = DEFAULT,
) -> None:
    """Reinforce a model by the judge; the same command goes on where one stopped."""
    from kernelwright.tools.learning.training.rl import RlSettings
    from kernelwright.ui.cli.learn.train import Place, rl

    settings = RlSettings(
        data=str(data),
        model=_named(model, adapter),
        rank=rank,
        steps=steps,
        tasks=tasks,
        group=group,
        tokens=tokens,
        temperature=temperature,
        batch=batch,
        micro=micro,
        rate=rate,
        contrast=contrast,
        eager_only=not compiled,
        written=write,
        save_every=save_every,
        seed=seed,
    )
    rl(Place(data, model, adapter, out, target.value, executor), settings, of)


def _named(model: Path, adapter: Path | None) -> str:
    return str(model) if adapter is None else f"{model} with {adapter}"


@app.command()
def serve(
    model: Folder,
    out: Out,
    adapter: Adapter = None,
    adapter_only: Annotated[
        bool, typer.Option("--adapter-only", help="Write the adapter alone, in half its size.")
    ] = False,
) -> None:
    """Merge an adapter into its model and say which servers take it, and how."""
    from kernelwright.ui.cli.learn.serving import serve

    serve(model, adapter, out, adapter_only=adapter_only)


@app.command()
def unpack(
    file: Annotated[Path, typer.Argument(help="A .gguf file.")],
    out: Out,
) -> None:
    """Turn a GGUF file into a model's folder that can be trained."""
    from kernelwright.ui.cli.learn.serving import unpack

    unpack(file, out)


@app.command()
def answer(
    file: Annotated[Path, typer.Argument(help="A Python file with a module.")],
    model: Folder,
    out: Out,
    adapter: Adapter = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers to judge.")] = 8,
    batch: Batch = 64,
    tokens: Tokens = 768,
    temperature: Temperature = 0.8,
    seed: Seed = 0,
    target: Device = Target.AUTO,
    executor: By = DEFAULT,
) -> None:
    """Ask a trained model for a module's kernel; the fastest right answer can start a search."""
    from kernelwright.tools.learning.training.policy import Sampling
    from kernelwright.ui.cli.learn.serving import answer

    answer(
        file,
        model,
        adapter,
        out,
        samples=samples,
        sampling=Sampling(tokens, temperature, batch),
        seed=seed,
        target=target.value,
        executor=executor,
    )
