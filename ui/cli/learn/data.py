"""`learn dataset`: the runs of a data folder, and examples of our own, as rows to learn from."""

import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from kernelwright.graphs.run_view.events import count
from kernelwright.tools.archive import default_home
from kernelwright.tools.learning.data.dataset import Summary, write
from kernelwright.tools.learning.data.records import Attempt, Problem
from kernelwright.tools.learning.data.runs import from_runs
from kernelwright.tools.learning.writing.drafts import problems_of, processes_beside
from kernelwright.tools.learning.writing.examples import ANSWERS, written
from kernelwright.tools.learning.writing.families import HELD_OUT, LEARNT, modules
from kernelwright.ui.cli.learn.judges import done, judging
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.terminal.output import console, remarks

_TOLD_EVERY = 20


@dataclass(frozen=True)
class DatasetOptions:
    """What was asked of a data set.

    Attributes:
        out: The folder to write.
        home: The data folder with the runs; None for the user's own.
        write: How many modules of our own to answer.
        held_out: How many of held-out families to write as tasks to evaluate on.
        share: Of the families of runs, how many are held out.
        seed: Of everything that is drawn.
        target: Which kind of device judges.
        executor: Who judges.
        small: Whether modules are of sizes for a test.
        seconds: How long modules may be answered; None for as long as it takes.
        answers: To each module of our own, at most.
        breaks: Whether right answers are broken too, for repairs.
    """

    out: Path
    home: Path | None
    write: int
    held_out: int
    share: float
    seed: int
    target: str
    executor: str
    small: bool
    seconds: float | None = None
    answers: int = ANSWERS
    breaks: bool = True


def dataset(options: DatasetOptions) -> None:
    """Write a data set and say what is in it."""
    if not 0.0 <= options.share < 1.0:
        raise Complaint(f"--held-out-share {options.share} is not from 0 to below 1")
    if options.out.exists() and not options.out.is_dir():
        raise Complaint(f"cannot write {options.out}: it is no folder")
    recorded = from_runs(options.home or default_home())
    attempts, problems = [*recorded.attempts], [*recorded.problems]
    if options.write:
        made = done(_written(options))
        attempts += [one for item in made for one in item[1]]
        problems += [problem for problem, _ in made]
    problems += done(_held_out(options))
    summary = write(
        options.out,
        attempts,
        problems,
        share=options.share,
        always=HELD_OUT,
        never=LEARNT,
        seed=options.seed,
        left_out=recorded.left_out,
    )
    _tell(summary, options.out)


async def _written(options: DatasetOptions) -> list[tuple[Problem, tuple[Attempt, ...]]]:
    """Examples of our own; verdicts that an earlier call reached are taken as they are."""
    found = []
    verdicts, begin = options.out / "verdicts.jsonl", time.monotonic()
    async with judging(
        options.executor, options.target, verdicts, options.out, options.seed
    ) as seat:
        drawn = modules(options.write, options.seed, small=options.small)
        items = written(
            drawn, seat.judge, seat.device, seed=options.seed, answers=options.answers,
            breaks=options.breaks, processes=seat.beside and processes_beside(),
        )  # fmt: skip
        async with aclosing(items):
            async for item in items:
                found.append((item.problem, item.attempts))
                passed_s = time.monotonic() - begin
                if len(found) % _TOLD_EVERY == 0:
                    words = f"{count(len(found), 'module')} answered, {passed_s:.0f} s"
                    remarks().print(words, style="dim")
                if options.seconds is not None and passed_s > options.seconds:
                    break
    return found


async def _held_out(options: DatasetOptions) -> list[Problem]:
    """The tasks to evaluate on; nobody is judged meanwhile, whatever the device."""
    drawn = modules(options.held_out, options.seed, held_out=True, small=options.small)
    return await problems_of(drawn, options.seed)


def _families(names: tuple[str, ...]) -> str:
    return "one family" if len(names) == 1 else f"{len(names)} families"


def _tell(summary: Summary, folder: Path) -> None:
    out = console()
    for words in (
        f"{count(summary.instructions, 'instruction')}, {count(summary.repairs, 'repair')}, "
        f"{count(summary.preferences, 'preference pair')}, "
        f"{count(summary.contrastive, 'contrastive prompt')}",
        f"{count(summary.problems, 'task')} to learn on, of {_families(summary.families)}",
        f"{count(summary.held_out, 'task')} held out, of {_families(summary.held_out_families)}",
        f"{count(summary.removed, 'attempt')} removed: cheats, repetitions, held-out families",
    ):
        out.print(words, markup=False, soft_wrap=True)
    for run, why in summary.left_out:
        remarks().print(f"left out {run}: {why}", style="dim", markup=False)
    out.print(str(folder), markup=False, soft_wrap=True)
