"""Modules that draw random numbers: honest candidates draw in their order, others are found out."""

from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_asyncio

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Candidate, Refusal, RefusedError, Task, TracePolicy, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOISY = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        scale = torch.rand(37, 129)
        return torch.tanh(x * scale + torch.randn_like(x))

def get_inputs():
    return [torch.randn(37, 129)]
"""
KERNEL = """
#include <cmath>
#include <cstdint>
extern "C" void noisy(const float* x, const float* scale, const float* noise, float* y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = std::tanh(x[i] * scale[i] + noise[i]);
}
"""
PLAN = """
%(before)s
def forward(x):
    %(draws)s
    y = empty_like(x)
    launch("noisy", args=(x, scale, noise, y, x.numel()))
    return y
"""
SCALE, NOISE = "scale = aten.rand([37, 129])", "noise = aten.randn([37, 129])"
LSTM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 16, 2, batch_first=True)
        self.out = torch.nn.Linear(16, 4)
    def forward(self, x):
        h = torch.randn(2, x.size(0), 16, device=x.device)
        c = torch.randn(2, x.size(0), 16, device=x.device)
        out, _ = self.lstm(x, (h, c))
        return torch.softmax(self.out(out[:, -1]), dim=-1)

def get_inputs():
    return [torch.randn(3, 5, 8)]
"""
LSTM_PLAN = """
def forward(x):
    h = aten.randn([2, 3, 16])
    c = aten.randn([2, 3, 16])
    out, hn, cn = aten.lstm(x, [%(states)s], [%(weights)s], True, 2, 0.0, False, False, True)
    z = aten.linear(out[:, -1], weights["out.weight"], weights["out.bias"])
    y = empty_like(z)
    launch("rows", args=(z, y, 3, 4))
    return y
"""
LSTM_KERNEL = """
#include <cmath>
#include <cstdint>
extern "C" void rows(const float* z, float* y, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t c = 0; c < columns; c++) sum += std::exp(z[r * columns + c]);
        for (int64_t c = 0; c < columns; c++)
            y[r * columns + c] = std::exp(z[r * columns + c]) / sum;
    }
}
"""
LAYERS = ("weight_ih_l{}", "weight_hh_l{}", "bias_ih_l{}", "bias_hh_l{}")


def noisy(*draws: str, before: str = "") -> Candidate:
    plan = PLAN % {"draws": "\n    ".join(draws), "before": before}
    return new_candidate("cpp", KERNEL, plan)


async def read(executor: LocalExecutor, folder: Path, text: str) -> Task | Refusal:
    path = folder / "model.py"
    path.write_text(text, encoding="utf-8")
    return await executor.trace(path, TracePolicy())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def task(executor: LocalExecutor, tmp_path_factory: pytest.TempPathFactory) -> Task:
    found = await read(executor, tmp_path_factory.mktemp("noisy"), NOISY)
    assert isinstance(found, Task), found
    return found


async def test_an_honest_candidate_that_draws_in_order_is_correct_and_timed(
    executor: LocalExecutor, task: Task
) -> None:
    found = await executor.evaluate(task, noisy(SCALE, NOISE), "screen")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.screen is not None
    assert (found.verification.error_ratio or 99) <= 4


WRONG = {
    "another order": (NOISE, SCALE),
    "fewer draws": (SCALE, "noise = scale"),
    "one draw more": (SCALE, NOISE, "z = aten.rand([4])"),
    "the number of the elements is right, and their shape not": (
        "scale = aten.rand([129, 37]).view([37, 129])",
        "noise = aten.rand([37, 129])",
    ),
}


@pytest.mark.parametrize("draws", WRONG.values(), ids=WRONG.keys())
async def test_who_draws_otherwise_is_wrong(
    executor: LocalExecutor, task: Task, draws: tuple[str, ...]
) -> None:
    found = await executor.evaluate(task, noisy(*draws), "screen")
    assert found.verdict is Verdict.WRONG_RESULT, found.verification.reason


async def test_what_is_drawn_after_all_that_counts_is_seen_by_the_generators_state(
    executor: LocalExecutor, task: Task
) -> None:
    found = await executor.evaluate(task, noisy(SCALE, NOISE, "z = aten.rand([4])"), "screen")
    assert "more or fewer random numbers" in found.verification.reason


async def test_nothing_is_drawn_beforehand(executor: LocalExecutor, task: Task) -> None:
    kept = 'def prepare(weights):\n    return {"scale": aten.rand([37, 129])}\n'
    cheat = noisy('scale = prepared["scale"]', NOISE, before=kept)
    found = await executor.evaluate(task, cheat, "screen")
    assert found.verdict is Verdict.INVALID_PLAN
    assert "which only forward does" in found.verification.reason


async def test_a_module_that_draws_nothing_wants_no_draws(
    executor: LocalExecutor, rows: Task, kernel: Callable[..., Candidate]
) -> None:
    plan = kernel().plan.replace("    return y", "    z = aten.rand([4])\n    return y")
    found = await executor.evaluate(rows, kernel(plan=plan), "screen")
    assert found.verdict is Verdict.WRONG_RESULT
    assert "which the module does not" in found.verification.reason


@pytest.mark.parametrize(
    ("states", "right"),
    [("h, c", True), pytest.param("c, h", False, marks=pytest.mark.exhaustive)],
)
async def test_an_initial_state_that_is_drawn_is_the_references(
    executor: LocalExecutor, tmp_path: Path, states: str, right: bool
) -> None:
    task = await read(executor, tmp_path, LSTM)
    assert isinstance(task, Task), task
    names = [name.format(layer) for layer in range(2) for name in LAYERS]
    weights = ", ".join(f'weights["lstm.{name}"]' for name in names)
    plan = LSTM_PLAN % {"states": states, "weights": weights}
    found = await executor.evaluate(task, new_candidate("cpp", LSTM_KERNEL, plan), "screen")
    wanted = Verdict.CORRECT if right else Verdict.WRONG_RESULT
    assert found.verdict is wanted, found.verification.reason


async def test_dropout_in_training_is_refused_with_the_way_out(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    found = await read(
        executor,
        tmp_path,
        NOISY.replace("torch.tanh(", "torch.dropout(0.5 * (").replace(
            "randn_like(x))", "randn_like(x)), 0.5, self.training)"
        ),
    )
    assert isinstance(found, Refusal)
    assert "draws random numbers in native_dropout" in found.sentence
    assert "--eval" in found.sentence


async def test_foreign_code_is_not_compared_where_it_could_set_the_generator(
    executor: LocalExecutor, task: Task
) -> None:
    foreign = Foreign.model_construct(name="new", source="")
    with pytest.raises(RefusedError, match="set the generator's state"):
        await executor.check_foreign(task, foreign)
