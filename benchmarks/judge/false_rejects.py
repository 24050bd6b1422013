"""How often an honest candidate is rejected: the same candidates judged again and again.

Candidates are the suite's honest twins and the playbook's own for some of the examples, or with
`--foreign` files in the forms that others publish (`tasks/foreign`: plain torch, a function of
autograd, a script, extensions by `load_inline` and `load`, a pair, a record), each timed beside
eager in guests of its own. Every check has fresh seeds, so fresh inputs, weights and timed values.
The result is the share that was rejected, with each rejection's reason, and of foreign files what
each was timed at and how many were right but could not be timed. It is written after every check,
so Ctrl-C ends a run and keeps what was measured.

    python benchmarks/judge/false_rejects.py --target cpu --checks 500 --out false_rejects.json
    python benchmarks/judge/false_rejects.py --target cpu --foreign --checks 60 --out foreign.json
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

from honest_candidates import Pairs, foreign_files, own

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.selftest.suite import RULES
from kernelwright.tools.types import Candidate, Comparison, Evaluation, Task, Value, Verdict

INTERRUPTED = 130


class Rejection(Value):
    """One honest candidate that was turned away."""

    task: str
    candidate: str
    verdict: str
    reason: str


class Timed(Value):
    """What one foreign file was timed at beside eager; the ratio is eager over candidate."""

    candidate: str
    candidate_ms: float
    eager_ms: float
    ratio: float
    ci95: tuple[float, float]


class Result(Value):
    """What the script writes."""

    device: str
    date: str
    candidates: int
    seconds: float = 0.0
    checks: int = 0
    rejected: int = 0
    share: float = 0.0
    rejections: tuple[Rejection, ...] = ()
    untimed: int = 0  # foreign ones that are right, without a time
    why_untimed: tuple[str, ...] = ()
    timed: tuple[Timed, ...] = ()
    loads: tuple[float, ...] = ()  # of the machine's last minute, before every check


class Book:
    """Keeps the result where it was asked for.

    Attributes:
        result: None until the first check has ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.result: Result | None = None

    def keep(self, result: Result) -> None:
        """This is what is known by now."""
        self.result = result
        self.path.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")


async def run(options: argparse.Namespace, rules: Rules, book: Book) -> None:
    """Judge round and round until there were enough checks; what is known by then is kept."""
    with tempfile.TemporaryDirectory(prefix="false-rejects-") as scratch:
        executor = LocalExecutor.create(
            options.target, Path(scratch), seed=int(time.time()), rules=rules
        )
        try:
            await _checks(executor, options, book)
        finally:
            await executor.aclose()


async def _checks(executor: LocalExecutor, options: argparse.Namespace, book: Book) -> None:
    start = time.monotonic()
    honest = await _honest(executor, options)
    result = Result(
        device=(await executor.hardware()).name,
        date=datetime.now(UTC).date().isoformat(),
        candidates=len(honest),
    )
    for number, index in enumerate(order(len(honest), options.checks, options.foreign)):
        task, made = honest[index]
        load = round(os.getloadavg()[0], 1)
        found = await judged(executor, task, made)
        result = counted(result, task, made, found, load)
        result = result.model_copy(update={"seconds": time.monotonic() - start})
        book.keep(result)
        if number % (5 if options.foreign else 25) == 0:
            print(f"{number} of {options.checks}, {result.rejected} rejected", flush=True)


async def _honest(executor: LocalExecutor, options: argparse.Namespace) -> Pairs:
    hardware = await executor.hardware()
    if options.foreign:
        return await foreign_files(executor, hardware.kind, without=options.without)
    return await own(executor, hardware, options.examples)


async def judged(executor: LocalExecutor, task: Task, made: Candidate | Foreign) -> Evaluation:
    """One check; foreign code is timed as well, which is where clocks could accuse it."""
    if isinstance(made, Foreign):
        return await executor.check_foreign(task, made, against=("eager",))
    return await executor.evaluate(task, made, "screen")


def order(candidates: int, checks: int, foreign: bool) -> list[int]:
    """Which candidate when: ours one after the other, as a worker keeps the last task's reference.

    Foreign ones take long and may be stopped, so they come in turns.
    """
    rounds = -(-checks // candidates)
    turns = list(islice(cycle(range(candidates)), rounds * candidates))
    return (turns if foreign else sorted(turns))[:checks]


def counted(
    result: Result, task: Task, made: Candidate | Foreign, found: Evaluation, load: float
) -> Result:
    """The result with one more check."""
    checks = result.checks + 1
    update: dict[str, object] = {"checks": checks, "share": result.rejected / checks}
    if isinstance(made, Foreign):
        update["loads"] = (*result.loads, load)
    if found.verdict is not Verdict.CORRECT:
        rejections = (*result.rejections, rejection(task, made, found))
        update |= {"rejections": rejections, "rejected": len(rejections)}
        update["share"] = len(rejections) / checks
        print(f"rejected: {rejections[-1]}", flush=True)
    elif isinstance(made, Foreign):
        update |= _times(result, made, found)
    return result.model_copy(update=update)


def _times(result: Result, made: Foreign, found: Evaluation) -> dict[str, object]:
    """What a right one was timed at, or why it was not."""
    if found.comparisons:
        return {"timed": (*result.timed, *(timed(made, c) for c in found.comparisons))}
    words = f"{made.name}: {' '.join(found.verification.not_verified)}"
    print(f"not timed: {words}", flush=True)
    return {"untimed": result.untimed + 1, "why_untimed": (*result.why_untimed, words)}


def timed(made: Foreign, found: Comparison) -> Timed:
    """One comparison, as it stands in the result."""
    return Timed(
        candidate=made.name,
        candidate_ms=found.candidate_ms,
        eager_ms=found.baseline_ms,
        ratio=found.ratio,
        ci95=(found.ci95_low, found.ci95_high),
    )


def rejection(task: Task, made: Candidate | Foreign, found: Evaluation) -> Rejection:
    """A verdict other than correct, as it stands in the result."""
    return Rejection(
        task=task.path.rsplit("/", 1)[-1],
        candidate=made.name if isinstance(made, Foreign) else made.id,
        verdict=found.verdict.value,
        reason=found.verification.reason,
    )


def main() -> int:
    """Read the options, write the result, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--checks", type=int, default=500)
    parser.add_argument("--examples", nargs="*", default=[])
    parser.add_argument("--foreign", action="store_true", help="published forms instead of ours")
    parser.add_argument("--without", default="", help="leaves out files with this in their name")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    book = Book(options.out)
    try:
        asyncio.run(run(options, RULES, book))
    except KeyboardInterrupt:
        print(interrupted(book, options.checks), file=sys.stderr)
        return INTERRUPTED
    if book.result is not None:
        print(
            f"{book.result.rejected} of {book.result.checks} rejected "
            f"({100 * book.result.share:.2g} %)"
        )
    return 0


def interrupted(book: Book, checks: int) -> str:
    """What a person who pressed Ctrl-C has."""
    if book.result is None:
        return "interrupted before the first check had ended; nothing was written"
    done = f"interrupted after {book.result.checks} of {checks} checks"
    return f"{done}, {book.result.rejected} rejected; they are kept in {book.path}"


if __name__ == "__main__":
    sys.exit(main())
