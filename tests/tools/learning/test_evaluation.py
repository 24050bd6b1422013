"""Shares of solved tasks, their ranges, and what an evaluation gained over another."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.learning.data.records import Problem
from kernelwright.tools.learning.evaluation import (
    Result,
    asked,
    by_family,
    change,
    in_short_contract,
    interval,
    results,
    sampled,
    scores,
)
from kernelwright.tools.learning.judging import Judge
from kernelwright.tools.types import InputSpec

CODE = """// launch: run grid=1 block=32 args=x,scale,out
extern "C" __global__ void run(const float* x, const float* s, float* out) {{ // ms={ms}
}}
"""


class Scripted:
    """Answers as they stand in a list, and remembers how often it was asked."""

    name = "scripted"

    def __init__(self, answers: list[str]) -> None:
        self.given, self.asked = answers, 0

    def answers(self, problems: Sequence[Problem], count: int, seed: int) -> list[list[str]]:
        self.asked += len(problems)
        return [self.given[:count] for _ in problems]


def result(number: int, correct: int, fast: int = 0, family: str = "f") -> Result:
    return Result(
        name=f"t{number}", key=f"k{number}", family=family, samples=8, correct=correct, fast=fast
    )


def test_correct_at_k_is_the_chance_of_one_right_answer_among_k() -> None:
    assert result(0, 2).correct_at(1) == pytest.approx(0.25)
    assert result(0, 2).correct_at(8) == 1.0
    assert result(0, 1).correct_at(4) == pytest.approx(0.5)
    assert result(0, 0).correct_at(8) == 0.0


def test_the_range_narrows_with_tasks_and_holds_the_mean() -> None:
    few, many = interval([0.0, 1.0] * 5), interval([0.0, 1.0] * 100)
    assert few.low < many.low < 0.5 < many.high < few.high


def test_a_gain_is_told_task_by_task() -> None:
    before = [result(number, number % 3) for number in range(60)]
    after = [result(number, number % 3 + 2) for number in range(60)]
    gained = change(before, after, 8)
    assert gained.correct_at_1.value == pytest.approx(0.25)
    # Every task gained the same, so how hard a task is does not widen the range.
    assert gained.correct_at_1.low == pytest.approx(0.25)
    with pytest.raises(ValueError, match="no task in common"):
        change(before, [result(99, 1)], 8)


def test_families_are_told_apart() -> None:
    found = dict(by_family([result(0, 8), result(1, 0, family="g")], 8))
    assert (found["f"].correct_at_1.value, found["g"].correct_at_1.value) == (1.0, 0.0)


def test_a_task_beyond_the_short_contract_is_not_asked(problem: Problem) -> None:
    scalar = InputSpec(name="n", scalar=3)
    task = problem.task.model_copy(update={"inputs": (*problem.task.inputs, scalar)})
    other = problem.model_copy(update={"task": task})
    assert in_short_contract([problem, other]) == [problem]
    with pytest.raises(ValueError, match="no task of the short contract"):
        asked(other, "cuda")


async def test_samples_are_judged_and_not_drawn_twice(
    reading: Executor, problem: Problem, tmp_path: Path
) -> None:
    judge = Judge(reading, "cuda")
    who = Scripted([CODE.format(ms=2), CODE.format(ms=8), "nothing"])
    for _ in range(2):
        answers = await sampled([problem], who, judge, tmp_path, count=3, seed=0, batch=4)
    assert who.asked == 1
    (found,) = await results([problem], answers, judge, eager_only=True)
    assert (found.samples, found.correct, found.fast) == (3, 2, 1)
    assert found.speedups == (2.0, 0.5)
    assert found.verdicts == ("correct", "correct", "invalid_plan")
    assert scores([found], 3).fast_at_1.value == pytest.approx(1 / 3)
