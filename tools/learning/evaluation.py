"""How good a model is on tasks that its training never saw, with intervals.

Of every task several answers are sampled and judged. correct@k is the chance that one of k answers
is correct, by the unbiased estimate over all samples; fast@1 that a first answer is correct and
faster than the best baseline that was measured. Intervals come from drawing the tasks again (a
bootstrap), so they say how another choice of tasks of these families would have come out, and
nothing of other families. Two evaluations over the same tasks are compared task by task.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import comb
from pathlib import Path
from statistics import fmean
from typing import Protocol

from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.contract.prompts import Question, question
from kernelwright.tools.learning.data.records import Problem, read_lines, write_lines
from kernelwright.tools.learning.judging import Judge, Worth
from kernelwright.tools.threads import in_thread
from kernelwright.tools.types import LanguageName, Value

_DRAWS = 4000
SAMPLES, RESULTS = "samples.jsonl", "results.jsonl"
REPORT, GAIN = "report.json", "gain.json"


class Answerer(Protocol):
    """Who is asked: a model here, or the playbook."""

    @property
    def name(self) -> str:
        """What a report calls it."""
        ...

    def answers(self, problems: Sequence[Problem], count: int, seed: int) -> list[list[str]]:
        """So many answers to each problem."""
        ...


class Interval(Value):
    """An estimate with the range that holds 95 of 100 draws of the tasks."""

    value: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """`41 % (35 to 48 %)`."""
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%})"


class Result(Value):
    """The samples of one task; `speedups` are those of the correct ones, None if untimed."""

    name: str
    key: str
    family: str
    samples: int
    correct: int
    fast: int
    speedups: tuple[float, ...] = ()
    verdicts: tuple[str, ...] = ()

    def correct_at(self, k: int) -> float:
        """The chance that one of k answers is correct."""
        k = min(k, self.samples)
        return 1.0 - comb(self.samples - self.correct, k) / comb(self.samples, k)

    @property
    def fast_at_1(self) -> float:
        """The share that is correct and faster than the best baseline."""
        return self.fast / self.samples


class Sampled(Value):
    """The answers that were sampled for one task, kept so that a resumed run samples no more."""

    key: str
    answers: tuple[str, ...]


class Scores(Value):
    """What the samples amount to."""

    tasks: int
    correct_at_1: Interval
    correct_at_k: Interval
    fast_at_1: Interval


class Report(Value):
    """One evaluation; `k` is that of correct@k, `baselines` names what fast@1 had to beat."""

    model: str
    device: str
    samples: int
    k: int
    baselines: str
    seed: int
    scores: Scores
    families: tuple[tuple[str, Scores], ...]


class Change(Value):
    """What another evaluation over the same tasks gained, in shares of 1."""

    tasks: int
    correct_at_1: Interval
    correct_at_k: Interval
    fast_at_1: Interval


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """The mean over tasks, and its range under drawing the tasks again."""
    draw = random.Random(seed)
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(_DRAWS))
    low, high = means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS) - 1]
    return Interval(value=fmean(values), low=low, high=high)


def scores(results: Sequence[Result], k: int) -> Scores:
    """What results amount to."""
    return Scores(
        tasks=len(results),
        correct_at_1=interval([one.correct_at(1) for one in results]),
        correct_at_k=interval([one.correct_at(k) for one in results]),
        fast_at_1=interval([one.fast_at_1 for one in results]),
    )


def change(before: Sequence[Result], after: Sequence[Result], k: int) -> Change:
    """The gain from one evaluation to another, over the tasks that both have.

    Raises:
        ValueError: They have none in common.
    """
    earlier = {one.key: one for one in before}
    pairs = [(earlier[one.key], one) for one in after if one.key in earlier]
    if not pairs:
        raise ValueError("the two evaluations have no task in common")

    def gained(of: Callable[[Result], float]) -> Interval:
        return interval([of(new) - of(old) for old, new in pairs])

    return Change(
        tasks=len(pairs),
        correct_at_1=gained(lambda one: one.correct_at(1)),
        correct_at_k=gained(lambda one: one.correct_at(k)),
        fast_at_1=gained(lambda one: one.fast_at_1),
    )


def by_family(results: Sequence[Result], k: int) -> tuple[tuple[str, Scores], ...]:
    """The scores of each family, by name."""
    found: dict[str, list[Result]] = defaultdict(list)
    for one in results:
        found[one.family].append(one)
    return tuple((name, scores(of, k)) for name, of in sorted(found.items()))


def result_of(problem: Problem, worth: Sequence[Worth]) -> Result:
    """What the judged samples of a task amount to."""
    speedups = [one.speedup for one in worth if one.speedup is not None]
    return Result(
        name=problem.name,
        key=problem.key,
        family=problem.family,
        samples=len(worth),
        correct=sum(one.is_correct for one in worth),
        fast=sum(speedup > 1.0 for speedup in speedups),
        speedups=tuple(speedups),
        verdicts=tuple(one.verdict.value for one in worth),
    )


def in_short_contract(problems: Sequence[Problem]) -> list[Problem]:
    """Those that can be asked in the short contract; tasks of runs may need more than it says."""
    return [problem for problem in problems if interface(problem.task) is not None]


def asked(problem: Problem, language: LanguageName) -> Question:
    """The plain question for a problem.

    Raises:
        ValueError: It has no short contract.
    """
    names = interface(problem.task)
    if names is None:
        raise ValueError(f"{problem.name} is no task of the short contract")
    return question(problem.task, names, language)


async def sampled(
    problems: Sequence[Problem],
    answerer: Answerer,
    judge: Judge,
    folder: Path,
    *,
    count: int,
    seed: int,
    batch: int,
    tell: Callable[[int], None] = lambda done: None,
) -> dict[str, tuple[str, ...]]:
    """Answers by key; those of an earlier call in that folder are taken as they are.

    Compiling begins as soon as answers are there. Nothing is timed while a model has the device.
    `tell` is told after each batch of tasks how many have answers.
    """
    path = folder / SAMPLES
    known = {one.key: one.answers for one in read_lines(path, Sampled)} if path.exists() else {}
    left = [one for one in problems if len(known.get(one.key, ())) < count]
    for first in range(0, len(left), batch):
        some = left[first : first + batch]
        found = await in_thread(answerer.answers, some, count, seed + first)
        for problem, answers in zip(some, found, strict=True):
            known[problem.key] = tuple(answers)
            judge.foresee(problem.task, answers)
        write_lines(path, (Sampled(key=key, answers=of) for key, of in known.items()))
        tell(len(known))
    return {problem.key: known[problem.key][:count] for problem in problems}


async def results(
    problems: Sequence[Problem],
    answers: Mapping[str, Sequence[str]],
    judge: Judge,
    *,
    eager_only: bool,
    tell: Callable[[Sequence[Result]], None] = lambda found: None,
) -> list[Result]:
    """Every problem's samples judged; PyTorch is timed only where one of them is right.

    `tell` is told after each problem what there is so far.
    """
    found = []
    for problem in problems:
        texts = answers[problem.key]
        worth = await judge.judged(problem.task, texts, eager_only=eager_only)
        found.append(result_of(problem, worth))
        tell(found)
    return found
