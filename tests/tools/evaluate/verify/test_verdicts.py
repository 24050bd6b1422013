"""Every way to be wrong gets its own verdict and a reason to repair by; honest twins pass."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.walls import wall
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Evaluation, Refusal, Task, TracePolicy, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

Make = Callable[..., Candidate]
Screen = Callable[[Candidate], Awaitable[Evaluation]]


async def test_an_honest_kernel_is_correct_and_timed(kernel: Make, verdict_of: Screen) -> None:
    found = await verdict_of(kernel())
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.screen is not None
    assert found.screen.median_ms > 0
    assert found.prepare_ms is not None
    checked = found.verification
    assert checked.error_ratio is not None
    assert checked.error_ratio <= 4
    assert checked.allclose_1e4
    assert checked.coverage == 1.0
    assert [shape.launches for shape in found.launches] == [1]
    assert checked.method == "own kernels"
    assert checked.precision == "fp32"
    assert set(checked.distributions) == {"task", "large_offset"}
    assert checked.not_verified
    assert checked.isolation == wall().isolation


# By what is wrong with the kernel.
BAD = {
    "zeros": ({"value": "0.0f"}, Verdict.WRONG_RESULT, "all zeros"),
    "last-row-missing": ({"before": "rows -= 1;"}, Verdict.NOT_WRITTEN, "the last 129 elements"),
    "past-the-end": ({"after": "y[rows * columns] = 1.0f;"}, Verdict.OUT_OF_BOUNDS, "after"),
    "mutates": ({"after": "((float*)x)[5] += 1.0f;"}, Verdict.INPUT_MUTATED, "input 0"),
    "counts-calls": (
        {"head": "static int calls;", "after": "calls++; y[7] += 1e-9f * calls;"},
        Verdict.COMPILE_ERROR,
        "keep state between calls",
    ),
    "depends-on-its-address": (
        {"after": "y[7] += 1e-6f * (uintptr_t(x) >> 12 & 1023);"},
        Verdict.NONDETERMINISTIC,
        "the same inputs in new memory",
    ),
}
# The same in other ways, as a sweep.
OTHERWISE_BAD = {
    "constant": ({"value": "1.0f / columns"}, Verdict.WRONG_RESULT, "all the same value"),
    "factor": (
        {"value": "2.0f * float(std::exp(a[c] * 0.5 - top) / sum)"},
        Verdict.WRONG_RESULT,
        "2 times too large",
    ),
    "last-column": (
        {"value": "c + 1 < columns ? float(std::exp(a[c] * 0.5 - top) / sum) : 0.0f"},
        Verdict.WRONG_RESULT,
        "only where index 1 is 128 (the last)",
    ),
    "lower-precision": (
        # Half precision in between: right to three digits, wrong all the same.
        {"value": "float(_Float16(std::exp(a[c] * 0.5 - top) / sum))"},
        Verdict.WRONG_RESULT,
        "allowed 4x",
    ),
    "nothing-written": (
        {"before": "rows = 0;"},
        Verdict.NOT_WRITTEN,
        "the whole output was never written",
    ),
    "before-the-start": ({"after": "y[-3] = 1.0f;"}, Verdict.OUT_OF_BOUNDS, "12 bytes outside"),
    "one-row-too-many": ({"before": "rows += 1;"}, Verdict.OUT_OF_BOUNDS, "516 bytes"),
}
BAD_KERNELS = [
    *(pytest.param(*of, id=name) for name, of in BAD.items()),
    *(
        pytest.param(*of, id=name, marks=pytest.mark.exhaustive)
        for name, of in OTHERWISE_BAD.items()
    ),
]


@pytest.mark.parametrize(("parts", "verdict", "words"), BAD_KERNELS)
async def test_a_bad_kernel_gets_its_verdict_and_a_reason(
    kernel: Make, verdict_of: Screen, parts: dict[str, str], verdict: Verdict, words: str
) -> None:
    found = await verdict_of(kernel(**parts))
    assert (found.verdict, words in found.verification.reason) == (verdict, True), (
        found.verification.reason
    )
    assert found.screen is None


async def test_a_stabiliser_that_was_dropped_shows_on_harsher_inputs(
    kernel: Make, verdict_of: Screen
) -> None:
    found = await verdict_of(
        kernel(value="std::exp(a[c] * 0.5f) / s", head="").model_copy(
            update={
                "kernel": kernel(value="expf(a[c] * 0.5f) / float(sum)").kernel.replace(
                    "std::exp(a[c] * 0.5 - top)", "expf(a[c] * 0.5f)"
                )
            }
        )
    )
    assert found.verdict is Verdict.WRONG_RESULT
    assert "large_offset" in found.verification.reason


@pytest.mark.exhaustive
async def test_what_ends_the_process_is_a_verdict_and_the_next_candidate_is_judged(
    kernel: Make, verdict_of: Screen, executor: LocalExecutor, short_rules: Rules
) -> None:
    crash = await verdict_of(kernel(before="*(volatile int*)8 = 1;"))
    assert crash.verdict is Verdict.ILLEGAL_ACCESS
    assert "segmentation fault" in crash.verification.reason
    # A loop that does nothing may be left out by the compiler.
    executor.rules = short_rules.model_copy(update={"candidate_s": 3.0})
    hang = await verdict_of(kernel(before="volatile int on = 1; while (on) {}"))
    executor.rules = short_rules
    assert hang.verdict is Verdict.TIMED_OUT
    assert "3 s" in hang.verification.reason
    assert (await verdict_of(kernel())).verdict is Verdict.CORRECT


async def test_a_wrong_shape_says_both_shapes(kernel: Make, verdict_of: Screen) -> None:
    plan = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("rows_softmax", args=(x, y, rows, columns))
    return y.view(columns, rows)
"""
    found = await verdict_of(kernel(plan=plan))
    assert found.verdict is Verdict.WRONG_SHAPE
    assert "float32[129, 37], expected float32[37, 129]" in found.verification.reason


async def test_a_plan_and_a_source_that_break_the_contract_are_named(
    kernel: Make, verdict_of: Screen
) -> None:
    plan = "import os\ndef forward(x):\n    return x\n"
    assert (await verdict_of(kernel(plan=plan))).verdict is Verdict.INVALID_PLAN
    broken = await verdict_of(kernel(value="no_such_thing(a[c])"))
    assert broken.verdict is Verdict.COMPILE_ERROR
    assert "no_such_thing" in broken.verification.reason + broken.compiler_log
    wrong_call = await verdict_of(kernel(plan="def forward(x):\n    return x.shape\n"))
    assert wrong_call.verdict is Verdict.LAUNCH_ERROR


async def test_the_library_in_a_plan_is_covered_and_labelled(
    kernel: Make, verdict_of: Screen
) -> None:
    plan = "def forward(x):\n    return aten._softmax(aten.mul(x, 0.5), -1, False)\n"
    found = await verdict_of(kernel(plan=plan))
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.coverage is not None
    assert found.verification.coverage < 0.95
    assert "_softmax" in found.verification.method


EXPONENTIALS = """import torch

def grow(x):
    return torch.exp(x)

def get_inputs():
    return [torch.randn(37, 129)]
"""


async def test_a_candidate_is_not_tried_where_pytorch_has_no_answer(
    executor: LocalExecutor, kernel: Make, tmp_path: Path
) -> None:
    path = tmp_path / "grow.py"
    path.write_text(EXPONENTIALS, encoding="utf-8")
    task = trace(EXPONENTIALS, str(path), TracePolicy(entry="grow"))
    assert isinstance(task, Task), task
    # Anything beyond what exp makes a number of would take it longer than it has.
    waits = "volatile float far = x[0]; while (far > 500.0f) {}"
    found = await executor.evaluate(task, kernel(before=waits, value="std::exp(a[c])"), "screen")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert set(found.verification.distributions) == {"task", "constant_rows"}
    overflown = {"large_offset", "heavy_tail", "outliers", "extremes"}
    assert set(found.verification.overflown) == overflown


@pytest.mark.exhaustive  # torch.compile starts from nothing
async def test_precise_timing_compares_with_every_baseline_that_runs(
    executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    baselines = await executor.baselines(rows)
    assert not isinstance(baselines, Refusal)
    eager = baselines.named("eager")
    assert eager is not None
    assert eager.measurement is not None
    assert any("A/A" in note for note in eager.measurement.conditions.notes)
    compiled = baselines.named("compile")
    assert compiled is not None
    assert (compiled.measurement is None) == bool(compiled.failure)
    found = await executor.evaluate(rows, kernel(), "precise")
    ran = [item.name for item in baselines.items if item.measurement]
    assert [item.baseline for item in found.comparisons] == ran
    for item in found.comparisons:
        assert item.ci95_low <= item.ratio <= item.ci95_high
        assert item.pairs == len(item.candidate_samples_ms) == len(item.baseline_samples_ms)
        assert item.conditions.threads is not None


@pytest.mark.exhaustive
@pytest.mark.usefixtures("beside_eager_alone")
async def test_certifying_uses_a_fresh_worker_and_every_distribution(
    executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    found = await executor.evaluate(rows, kernel(), "certify")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert len(found.verification.distributions) >= 6
    assert not any("distributions" in words for words in found.verification.not_verified)
    assert [item.baseline for item in found.comparisons] == ["eager"]
