"""Attempts as rows: to imitate, to repair by, to prefer by, to contrast.

Cheats are left out wherever they stand, and so are answers of tasks that prove nothing; equal code
counts once a task. Of a task the fastest few answers are imitated. A pair says which of two answers
is better where that is more than noise: measured more than 1.1 times faster, or right beside wrong.
A contrastive prompt shows verified answers from distinct buckets of speed, drawn with more weight
on the faster ones, and what the critic said of them; its answer is faster than all it shows.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import exp, floor, log2
from statistics import fmean

from kernelwright.tools.learning.contract.prompts import Question, Shot, Turn, size_of, tokens
from kernelwright.tools.learning.data.records import Attempt, Row
from kernelwright.tools.learning.judging import CHEATS

# How often faster a chosen answer must be.
MARGIN = 1.1
# Answers to imitate of a task, none of them slower than so many times the fastest; and pairs.
_KEPT, _SLOWER, _PAIRS = 2, 2.0, 8
# Buckets of speed are half a doubling wide.
_BUCKETS_A_DOUBLING = 2


def honest(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Without cheats, and without repetitions of one code for one task: the first stays."""
    kept: dict[tuple[str, ...], Attempt] = {}
    for one in attempts:
        if one.verdict not in CHEATS:
            kept.setdefault((one.task, one.contract, one.code, one.repairs), one)
    return [*kept.values()]


def right(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Those that are correct and were timed, the fastest first."""
    found = [one for one in attempts if one.speedup is not None]
    return sorted(found, key=lambda one: (-(one.speedup or 0.0), one.id))


def by_question(attempts: Iterable[Attempt]) -> dict[tuple[str, str, str], list[Attempt]]:
    """Attempts by task, contract and language."""
    found: dict[tuple[str, str, str], list[Attempt]] = defaultdict(list)
    for one in attempts:
        found[one.task, one.contract, one.language].append(one)
    return found


def instructions(attempts: Iterable[Attempt], kept: int = _KEPT) -> list[Row]:
    """The fastest answers of every task, to imitate."""
    rows: list[Row] = []
    for group in by_question(one for one in attempts if not one.repairs).values():
        good = right(group)[:kept]
        rows += [
            _row("instruction", one.question, one)
            for one in good
            if (one.speedup or 0.0) * _SLOWER >= (good[0].speedup or 0.0)
        ]
    return rows


def repairs(attempts: Iterable[Attempt]) -> list[Row]:
    """Corrections of what failed, with the judge's words between them."""
    return [
        _row("repair", one.question, one, also=(one.repairs,))
        for one in right(attempts)
        if one.repairs
    ]


def preferences(attempts: Iterable[Attempt], most: int = _PAIRS) -> list[Row]:
    """Pairs of answers to one question, the better one chosen."""
    rows: list[Row] = []
    for group in by_question(one for one in attempts if not one.repairs).values():
        good = right(group)
        pairs = [(a, b) for a in good for b in group if _is_better(a, b)]
        # Those far apart teach the most, and right beside wrong comes after the fast and the slow.
        pairs.sort(key=lambda pair: -(_ratio(*pair) or 0.0))
        rows += [_pair(a, b) for a, b in pairs[:most]]
    return rows


def _is_better(a: Attempt, b: Attempt) -> bool:
    if b.verdict.value == "correct" and b.speedup is None:
        return False
    return (a.speedup or 0.0) > MARGIN * (b.speedup or 0.0)


def _ratio(a: Attempt, b: Attempt) -> float | None:
    return a.speedup / b.speedup if a.speedup and b.speedup else None


def _pair(a: Attempt, b: Attempt) -> Row:
    chosen, rejected = (Turn(role="assistant", content=one.answer) for one in (a, b))
    return Row(
        kind="preference",
        prompt=a.question,
        chosen=(chosen,),
        rejected=(rejected,),
        task=a.task,
        family=a.family,
        contract=a.contract,
        ratio=_ratio(a, b),
        attempts=(a.id, b.id),
        tokens=a.tokens + tokens(b.answer),
        provenance=a.provenance,
    )


def exemplars(
    attempts: Iterable[Attempt], draw: random.Random, count: int = 2, spread: float = 1.0
) -> list[Attempt]:
    """Verified answers from distinct buckets of speed, the slowest first.

    Args:
        attempts: Of one question.
        draw: Chance.
        count: How many; fewer come back where there are fewer buckets.
        spread: Of the weights: buckets are drawn by exp((mean - mean of all) / spread).
    """
    good = right(attempts)
    buckets: dict[int, list[Attempt]] = defaultdict(list)
    for one in good:
        buckets[floor(_BUCKETS_A_DOUBLING * log2(one.speedup or 1.0))].append(one)
    mean = fmean(one.speedup or 0.0 for one in good) if good else 0.0
    chosen: list[Attempt] = []
    while buckets and len(chosen) < count:
        names = sorted(buckets)
        means = [fmean(one.speedup or 0.0 for one in buckets[name]) for name in names]
        weights = [exp(min(50.0, (value - mean) / spread)) for value in means]
        (name,) = draw.choices(names, weights)
        chosen.append(draw.choice(buckets.pop(name)))
    return sorted(chosen, key=lambda one: one.speedup or 0.0)


def shots(attempts: Sequence[Attempt]) -> tuple[Shot, ...]:
    """Attempts as a prompt shows them."""
    return tuple(Shot(answer=one.answer, speedup=one.speedup or 0.0) for one in attempts)


def contrastive_row(shown: Sequence[Attempt], asked: Question, better: Attempt) -> Row:
    """The row of a contrastive prompt and an answer that beats what it shows."""
    return _row("contrastive", asked, better, also=tuple(one.id for one in shown))


def _row(kind: str, asked: Question, one: Attempt, also: tuple[str, ...] = ()) -> Row:
    return Row.model_validate(
        {
            "kind": kind,
            "prompt": asked,
            "completion": (Turn(role="assistant", content=one.answer),),
            "task": one.task,
            "family": one.family,
            "contract": one.contract,
            "attempts": (one.id, *also),
            "tokens": size_of(asked) + tokens(one.answer),
            "provenance": one.provenance,
        }
    )
