"""A candidate that claims any shape is tried on others; what fails there is for its own only."""

from collections.abc import Callable

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.verify.holdout import _shape
from kernelwright.tools.tasks.inputs.variations import changeable, odd, variants
from kernelwright.tools.types import Candidate, InputSpec, Task, TensorSpec, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")
certified = pytest.mark.usefixtures("beside_eager_alone")

Make = Callable[..., Candidate]

FIXED = """
def forward(x):
    y = empty_like(x)
    launch("rows_softmax", args=(x, y, 37, 129))
    return y
"""


async def test_one_number_among_the_inputs_has_no_size_to_be_named(rows: Task) -> None:
    number = InputSpec(name="step", tensor=TensorSpec(shape=(), dtype="int64"))
    assert _shape(rows.model_copy(update={"inputs": (*rows.inputs, number)})) == "37x129"


@pytest.mark.exhaustive
@certified
async def test_what_reads_its_sizes_is_verified_on_other_shapes(
    executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    found = await executor.evaluate(rows, kernel(), "certify")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    words = found.verification.shapes
    assert words.startswith("shape-generic, verified on odd sizes (23x81)")
    assert "one row (1x129)" in words
    assert "one column (37x1)" in words


@pytest.mark.exhaustive
@certified
async def test_what_holds_for_its_own_shape_alone_stays_correct_and_says_so(
    executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    found = await executor.evaluate(rows, kernel(plan=FIXED), "certify")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.shapes.startswith("this shape only: on")
    assert found.verification.shapes.endswith("; --shapes asks for more sizes")


@pytest.mark.exhaustive
@certified
async def test_a_worker_that_dies_of_another_shape_costs_no_verdict(
    executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    dies = kernel(before="if (columns != 129) *(volatile int*)8 = 1;")
    found = await executor.evaluate(rows, dies, "certify")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.shapes.startswith("this shape only: on another one it")
    again = await executor.evaluate(rows, kernel(), "screen")
    assert again.verdict is Verdict.CORRECT


@pytest.mark.exhaustive
@certified
async def test_a_kernel_that_needs_whole_vectors_is_found_out(
    executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    skips = kernel(before="if (columns % 2 == 0) columns -= 1;")
    found = await executor.evaluate(rows, skips, "certify")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert "unaligned sizes" in found.verification.shapes


async def test_sizes_that_the_reference_insists_on_stay(rows: Task) -> None:
    two = rows.model_copy(update={"inputs": (_spec("x", (8, 64)), _spec("y", (64, 5)))})
    assert changeable(two, lambda task: task.inputs[0].tensor.shape[1] == 64) == (8, 5)  # type: ignore[union-attr]
    made = variants(two, (8, 5))
    shapes = {name: [s.tensor.shape for s in t.inputs if s.tensor] for name, t in made.items()}
    assert shapes["odd sizes"] == [(5, 64), (64, 3)]
    assert shapes["one row"] == [(1, 64), (64, 5)]
    assert shapes["one column"] == [(8, 64), (64, 1)]
    assert variants(two, ()) == {}
    assert all(odd(size) % 2 == 1 and odd(size) < size for size in range(2, 100))


def _spec(name: str, shape: tuple[int, ...]) -> InputSpec:
    return InputSpec(name=name, tensor=TensorSpec(shape=shape, dtype="float32"))
