"""`learn evaluate`: how much of the held-out tasks a model solves, and what that gained."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.table import Table

from kernelwright.graphs.run_view.events import count
from kernelwright.tools.learning.data.dataset import HELD_OUT
from kernelwright.tools.learning.data.records import Problem, read_lines, write_lines
from kernelwright.tools.learning.evaluation import (
    GAIN,
    REPORT,
    RESULTS,
    Answerer,
    Report,
    Result,
    Scores,
    by_family,
    change,
    in_short_contract,
    results,
    sampled,
    scores,
)
from kernelwright.tools.learning.training.policy import ModelAnswerer, Sampling
from kernelwright.tools.learning.writing.answers import PlaybookAnswerer
from kernelwright.tools.types import LanguageName, Value
from kernelwright.ui.cli.learn.judges import Seat, done, judging
from kernelwright.ui.cli.learn.models import model_of
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.terminal.output import console, remarks, write_json

PLAYBOOK = "playbook"
_TOLD_EVERY = 10
ValueT = TypeVar("ValueT", bound=Value)


@dataclass(frozen=True)
class EvaluateOptions:
    """What was asked of an evaluation.

    Attributes:
        data: The data set.
        model: A model's folder, or `playbook`.
        adapter: A trained adapter.
        out: The folder to write.
        samples: Answers a task.
        tasks: At most so many tasks; None for all.
        against: The folder of an earlier evaluation to compare with.
        eager_only: Whether eager alone is the baseline.
        batch: Sequences that are sampled together.
        tokens: At most, of an answer.
        temperature: Of sampling.
        seed: Of sampling.
        target: Which kind of device judges.
        executor: Who judges.
        json: Where the report goes as JSON, if anywhere.
    """

    data: Path
    model: str
    adapter: Path | None
    out: Path
    samples: int
    tasks: int | None
    against: Path | None
    eager_only: bool
    batch: int
    tokens: int
    temperature: float
    seed: int
    target: str
    executor: str
    json: str | None


def evaluate(options: EvaluateOptions) -> None:
    """Sample, judge and report."""
    problems = held_out(options.data)[: options.tasks]
    earlier = None if options.against is None else _results(options.against)
    report, found = done(_evaluated(options, problems))
    write_lines(options.out / RESULTS, found)
    _tell(report)
    if earlier is not None:
        gained = change(earlier, found, report.k)
        (options.out / GAIN).write_text(gained.model_dump_json(indent=1), encoding="utf-8")
        for name, words in (
            ("correct@1", gained.correct_at_1.words),
            (f"correct@{report.k}", gained.correct_at_k.words),
            ("fast@1", gained.fast_at_1.words),
        ):
            console().print(
                f"gain of {name} over {count(gained.tasks, 'task')}: {words}", markup=False
            )
    # The report comes last, so that where it is all else is.
    (options.out / REPORT).write_text(report.model_dump_json(indent=1), encoding="utf-8")
    if options.json is not None:
        write_json(report, options.json)


def held_out(data: Path) -> list[Problem]:
    """The held-out tasks of a data set; Complaint where there are none."""
    path = data / HELD_OUT
    if not path.is_file():
        raise Complaint(
            f"there is no {HELD_OUT} in {data}; write one: kernelwright learn dataset --out {data}"
        )
    return askable(readable(path, Problem), path)


def askable(problems: list[Problem], path: Path) -> list[Problem]:
    """Those that a small model can be asked; Complaint where there are none."""
    found = in_short_contract(problems)
    if len(found) < len(problems):
        left = count(len(problems) - len(found), "task")
        remarks().print(f"{left} left out, which the short contract does not cover", style="dim")
    if not found:
        raise Complaint(f"{path} holds no task that a small model can be asked")
    return found


def readable(path: Path, kind: type[ValueT]) -> list[ValueT]:
    """The values of a file; Complaint where it holds something else."""
    try:
        return read_lines(path, kind)
    except OSError as error:
        raise Complaint(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Complaint(str(error)) from None


def answerer_of(options: EvaluateOptions, language: LanguageName) -> Answerer:
    """The model that was named, or the playbook."""
    if options.model == PLAYBOOK:
        return PlaybookAnswerer(language)
    sampling = Sampling(options.tokens, options.temperature, options.batch)
    return ModelAnswerer(model_of(Path(options.model), options.adapter), sampling, language)


async def _evaluated(
    options: EvaluateOptions, problems: list[Problem]
) -> tuple[Report, list[Result]]:
    verdicts = options.out / "verdicts.jsonl"
    async with judging(
        options.executor, options.target, verdicts, options.data, options.seed
    ) as seat:
        answerer = answerer_of(options, seat.judge.language)
        _say(f"asking {answerer.name}")
        answers = await sampled(
            problems,
            answerer,
            seat.judge,
            options.out,
            count=options.samples,
            seed=options.seed,
            batch=max(1, options.batch // options.samples),
            tell=lambda done: _say(f"{done} of {count(len(problems), 'task')} answered"),
        )
        _say("judging")
        found = await results(
            problems, answers, seat.judge, eager_only=options.eager_only, tell=_tell_judged
        )
    return _report(options, seat, answerer.name, found), found


def _say(words: str) -> None:
    remarks().print(words, style="dim", markup=False)


def _tell_judged(found: Sequence[Result]) -> None:
    if len(found) % _TOLD_EVERY == 0:
        right, of = sum(one.correct for one in found), sum(one.samples for one in found)
        _say(f"{count(len(found), 'task')} judged, {right} of {count(of, 'answer')} right")


def _report(options: EvaluateOptions, seat: Seat, name: str, found: list[Result]) -> Report:
    return Report(
        model=name,
        device=seat.device,
        samples=options.samples,
        k=options.samples,
        baselines="eager" if options.eager_only else "eager and torch.compile",
        seed=options.seed,
        scores=scores(found, options.samples),
        families=by_family(found, options.samples),
    )


def _tell(report: Report) -> None:
    table = Table(box=None, header_style="dim")
    for name in ("family", "tasks", "correct@1", f"correct@{report.k}", "fast@1"):
        table.add_column(name)
    for name, of in (*report.families, ("all", report.scores)):
        table.add_row(name, str(of.tasks), *_cells(of))
    console().print(table)
    words = f"{report.model} on {report.device}, fast beside {report.baselines}"
    console().print(words, markup=False, soft_wrap=True)


def _cells(of: Scores) -> tuple[str, str, str]:
    return of.correct_at_1.words, of.correct_at_k.words, of.fast_at_1.words


def _results(folder: Path) -> list[Result]:
    path = folder / RESULTS
    if not path.is_file():
        raise Complaint(f"there is no evaluation in {folder}")
    return readable(path, Result)
