"""What is learnt from is honest, said once, and of families that are not evaluated on."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.profiles.load import hardware_profile, search_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.base.executor import Capabilities, Executor
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.learning.contract.prompts import Turn
from kernelwright.tools.learning.data.dataset import Summary, is_held_out, split, write
from kernelwright.tools.learning.data.records import (
    Attempt,
    Problem,
    Provenance,
    Row,
    read_lines,
)
from kernelwright.tools.learning.data.rows import (
    exemplars,
    honest,
    instructions,
    preferences,
    repairs,
)
from kernelwright.tools.learning.data.runs import from_runs
from kernelwright.tools.learning.judging import Judge, Known
from kernelwright.tools.learning.writing.examples import breakages, written
from kernelwright.tools.learning.writing.families import HELD_OUT, LEARNT, Module, modules
from kernelwright.tools.types import (
    Badge,
    Baseline,
    Baselines,
    Evaluation,
    Measurement,
    TracePolicy,
    Verdict,
    Verification,
)

ASKED = (Turn(role="system", content="rules"), Turn(role="user", content="module"))


def attempt(number: int, speedup: float | None, **more: object) -> Attempt:
    verdict = Verdict.CORRECT if speedup else Verdict.WRONG_RESULT
    fields = {
        "id": f"a{number}", "task": "t", "family": "f", "contract": "short", "language": "cpp",
        "question": ASKED, "answer": f"code {number}", "verdict": verdict, "speedup": speedup,
        "provenance": Provenance(source="run"), **more,
    }  # fmt: skip
    return Attempt.model_validate(fields)


def test_cheats_and_repetitions_are_removed() -> None:
    cheat = attempt(1, None, verdict=Verdict.CHEATING)
    again = attempt(3, 1.0, answer="code  2 // the same")
    assert honest([cheat, attempt(2, 2.0), again]) == [attempt(2, 2.0)]


def test_the_fastest_are_imitated_but_not_what_is_far_behind() -> None:
    rows = instructions([attempt(1, 1.0), attempt(2, 3.0), attempt(3, None), attempt(4, 2.9)])
    assert [row.attempts for row in rows] == [("a2",), ("a4",)]
    assert [row.attempts for row in instructions([attempt(1, 1.0), attempt(2, 3.0)])] == [("a2",)]


def test_pairs_are_of_what_was_measured_apart_or_wrong() -> None:
    rows = preferences([attempt(1, 1.0), attempt(2, 1.05), attempt(3, 2.0), attempt(4, None)])
    found = [(row.attempts, row.ratio and round(row.ratio, 2)) for row in rows]
    assert (("a3", "a1"), 2.0) in found
    assert (("a2", "a1"), 1.05) not in found
    assert (("a1", "a4"), None) in found
    assert len(found) == 5


def test_exemplars_are_of_distinct_buckets_and_favour_the_fast() -> None:
    known = [attempt(n, speed) for n, speed in enumerate((0.5, 0.52, 1.0, 4.0))]
    first = []
    for seed in range(40):
        shown = exemplars(known, random.Random(seed))
        speeds = [one.speedup or 0.0 for one in shown]
        assert speeds == sorted(speeds)
        assert len({round(speed) for speed in speeds}) == 2
        first.append(speeds[-1])
    assert first.count(4.0) > 30


def test_a_family_is_on_one_side_and_what_it_shares_is_on_none(problem: Problem) -> None:
    other = problem.model_copy(update={"family": "g", "key": "u"})
    attempts = [
        attempt(1, 1.0, task="u", family="g", answer="shared"),
        attempt(2, 1.0, answer="shared"),
        attempt(3, 1.0, task="u"),
        attempt(4, 1.0),
    ]
    parts = split(attempts, [problem, other], share=0.0, always=("g",))
    assert [one.id for one in parts.attempts] == ["a4"]
    assert parts.held_out == (other,)
    assert parts.problems == (problem,)


def test_runs_split_the_same_way_each_time() -> None:
    held = [name for name in map(str, range(400)) if is_held_out(name, 0.2)]
    assert 50 < len(held) < 110
    assert all(is_held_out(name, 0.5) for name in held)


def test_modules_are_drawn_again_alike_and_families_stay_apart() -> None:
    assert modules(20, 3) == modules(20, 3)
    assert modules(20, 3) != modules(20, 4)
    assert {one.family for one in modules(len(LEARNT), 0)} == set(LEARNT)
    assert {one.family for one in modules(60, 0, held_out=True)} == set(HELD_OUT)
    assert len({one.source for one in modules(60, 0, held_out=True)}) == 60


CODE = """// launch: run grid=1 block=32 args=x,scale,out
extern "C" __global__ void run(const float* x, const float* s, float* out) {
    // ms=2
    for (int i = 0; i < 32; ++i) {
        const float v1 = x[i];
        out[i] = v1;
    }
}
"""


async def test_answers_of_our_own_are_judged_once(
    reading: Executor, toy: SimpleNamespace, tmp_path: Path
) -> None:
    module = Module(family="relu", name="scaled", source=toy.source, held_out=False)
    judge = Judge(reading, "cpp", Known(tmp_path / "verdicts.jsonl"))
    # The toy executor calls nothing right that does not say how long it takes.
    assert [item async for item in written([module], judge, "toy", seed=0)] == []
    assert len(reading.asked) == 2
    again = Judge(reading, "cpp", Known(tmp_path / "verdicts.jsonl"))
    assert [item async for item in written([module], again, "toy", seed=0)] == []
    assert len(reading.asked) == 2


def test_answers_break_in_the_ways_of_small_models() -> None:
    answer = f"```cuda\n{CODE}```"
    broken = breakages(answer, random.Random(0))
    assert len(broken) == 4
    assert answer not in broken


async def test_a_verdict_is_reached_once_and_equal_answers_share_it(
    reading: Executor, problem: Problem, tmp_path: Path
) -> None:
    judge = Judge(reading, "cuda", Known(tmp_path / "verdicts.jsonl"))
    first = await judge.judged(problem.task, [CODE, CODE, "no code"])
    assert [one.verdict for one in first] == ["correct", "correct", "invalid_plan"]
    assert first[0].speedup == 2.0
    with (tmp_path / "verdicts.jsonl").open("a") as file:
        file.write('["cut off')
    again = Judge(reading, "cuda", Known(tmp_path / "verdicts.jsonl"))
    assert await again.judged(problem.task, [CODE, CODE, "no code"]) == first
    assert len(reading.asked) == 1


async def test_a_device_elsewhere_is_asked_once_for_a_code_and_a_task(
    reading: Executor, problem: Problem
) -> None:
    reading.capabilities = Capabilities(remote=True)
    judge = Judge(reading, "cuda")
    found = await judge.judged(problem.task, [CODE, CODE, CODE.replace("ms=2", "ms=1")])
    assert [one.speedup for one in found] == [2.0, 2.0, 4.0]
    assert len(set(reading.asked)) == len(reading.asked) == 2
    other = problem.task.model_copy(update={"source_sha256": "another"})
    await judge.judged(other, [CODE])
    assert len(set(reading.asked)) == 3


def run_over(
    problem: Problem, home: Path, measured: Callable[[float], Measurement], *, little: bool = False
) -> None:
    """A finished run: one candidate that is wrong, its repair, and one that is told in full."""
    badges = (Badge(name="constant", reason="it is"),) if little else ()
    archive = Archive.create(
        home, problem.task.model_copy(update={"badges": badges}), policy=TracePolicy(),
        profile=search_profile("quick"), hardware=hardware_profile("cpu"),
    )  # fmt: skip
    archive.record_baselines(Baselines(items=(Baseline(name="eager", measurement=measured(4.0)),)))
    kernel = 'extern "C" void run(const float* a, float* b) { b[0] = a[0]; }\n'
    plan = (
        'def forward(x):\n    y = empty((4, 8), dtype="float32")\n'
        '    launch("run", args=(x, y))\n    return y\n'
    )
    wrong = new_candidate("cpp", kernel, plan)
    mended = new_candidate("cpp", kernel.replace("b[0]", "b[1]"), plan, parents=(wrong.id,))
    longer = new_candidate("cpp", kernel, plan.replace("return y", "return y.view(4, 8)"))
    archive.record_candidates([wrong, mended, longer], 1)
    for candidate, ms in ((wrong, None), (mended, 2.0), (longer, 1.0)):
        verdict = Verdict.CORRECT if ms else Verdict.WRONG_RESULT
        evaluation = Evaluation(
            candidate=candidate.id,
            verification=Verification(verdict=verdict, reason="" if ms else "off by 2"),
            screen=measured(ms) if ms else None,
        )
        archive.record_evaluation(evaluation, "screen", 1)
    archive.close()


def test_runs_become_a_data_set_with_provenance(
    problem: Problem, toy: SimpleNamespace, tmp_path: Path
) -> None:
    run_over(problem, tmp_path / "home", toy.measured)
    run_over(problem, tmp_path / "home", toy.measured, little=True)
    found = from_runs(tmp_path / "home")
    assert [why for _, why in found.left_out] == ["being right on its task proves little"]
    assert [one.contract for one in found.attempts] == ["short", "short", "short", "full"]
    assert {one.family for one in found.attempts} == {"mul+relu"}
    (repair,) = repairs(found.attempts)
    assert "wrong result: off by 2" in repair.prompt[1].content
    assert "b[0] = a[0]" in repair.prompt[1].content
    assert repair.provenance.run.startswith("scaled")
    out = tmp_path / "data"
    summary = write(out, found.attempts, found.problems, share=0.0, always=(), seed=0)
    assert (summary.instructions, summary.repairs, summary.preferences) == (2, 1, 1)
    assert Summary.model_validate_json((out / "summary.json").read_text()) == summary
    rows = read_lines(out / "instructions.jsonl", Row)
    assert {row.completion[0].role for row in rows} == {"assistant"}
    assert set(json.loads((out / "instructions.jsonl").read_text().splitlines()[0])) >= {
        "prompt", "completion", "provenance",
    }  # fmt: skip
    held = write(out, found.attempts, found.problems, share=0.99, always=("mul+relu",), seed=0)
    assert (held.instructions, held.held_out, held.problems) == (0, 1, 0)
    assert read_lines(out / "held_out.jsonl", Problem) == [*found.problems]


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="line 1: no row"):
        read_lines(path, Row)
