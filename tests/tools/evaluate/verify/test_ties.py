"""An honest tie within float32's rounding is no rejection; few wrong elements are one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.memory import GuardedMemory, scores_bytes
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

ROWS, KEYS, WIDTH = 256, 48, 16
TIED, CLOSE = 3, 9  # rows whose two best are within a rounding, and a thousandth, of each other
SOURCE = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return {{answer}}

def get_inputs():
    return [torch.randn({ROWS}, {WIDTH}), torch.randn({KEYS}, {WIDTH}), torch.randn({KEYS}, 32)]
"""
IN_STEPS = "torch.softmax(q @ k.T * 0.3, -1) @ v"
IN_ONE = "torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], scale=0.3)[0]"
Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def scores(q: Tensor, k: Tensor) -> Tensor:
    """As the reference has them, but scaled before and added up from the other end."""
    return (q * 0.3).flip(1) @ k.flip(1).T


def honest(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores(q, k), -1) @ v


def wrong_in_one_row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    y = honest(q, k, v)
    y[7] = y[8]
    return y


def wrong_in_the_tied_row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Neither of the values that a tie may give."""
    y = honest(q, k, v)
    y[TIED] = -3 * y[TIED]
    return y


def wrong_for_rare_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Takes huge scores for equal that are a thousandth apart."""
    s = scores(q, k)
    top = s.amax(-1, keepdim=True)
    return torch.softmax(torch.where((top > 1e6) & (s > top * 0.998), top, s), -1) @ v


def wrong_in_many_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    y = honest(q, k, v)
    y[::4] = y[1::4]
    return y


class Runner:
    """Calls a function in PyTorch."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        q, k, v = (argument for argument in arguments if isinstance(argument, Tensor))
        return (self._kernel(q, k, v),)


def tied_inputs(answer: Kernel) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs on which PyTorch answers a tied row as float64 does, and another order does not.

    The tied row and its two keys have a part of the width to themselves, and so have the close one.
    """
    source = torch.Generator().manual_seed(4)
    q, k = (torch.randn(count, WIDTH, generator=source) for count in (ROWS, KEYS))
    v = torch.randn(KEYS, 32, generator=source)
    q[:, :8] = k[:, :8] = 0
    q[CLOSE, 4:8] = k[2, 4:8] = k[3, 4:8] = 3e4
    k[2] *= 1 - 1e-3
    for _ in range(400):
        q[TIED, :4] = 3e4 * (1 + torch.rand(4, generator=source))
        k[0, :4] = 3e4 * (1 + torch.rand(4, generator=source))
        k[1, :4] = k[0, torch.randperm(4, generator=source)]
        k[1, :4] *= (q[TIED] @ k[0]) / (q[TIED] @ k[1])
        right = answer(q.double(), k.double(), v.double())
        own, other = ((f(q, k, v) - right).abs() for f in (answer, honest))
        if own.max() < 1e-4 and other[TIED].max() > 0.1:
            return q, k, v
    raise AssertionError("no such inputs were met")


@pytest.fixture(scope="module", params=[IN_STEPS, IN_ONE], ids=["in steps", "in one"])
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cpu: Hardware
) -> Callable[..., ResultComparator]:
    """Judges a kernel on tied inputs, or on values as the task draws them."""
    text = SOURCE.format(answer=request.param)
    task = trace(text, str(tmp_path_factory.mktemp("task") / "model.py"), TracePolicy())
    assert isinstance(task, Task), task
    runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)
    space: dict[str, object] = {"torch": torch}
    tied = tied_inputs(eval(f"lambda q, k, v: {request.param}", space))

    def judge(kernel: Kernel, draw: str = "heavy_tail") -> ResultComparator:
        comparator = ResultComparator(runtime)
        memory = GuardedMemory("cpu", runtime.rules.guard_bytes)
        Trials(runtime, memory, Runner(kernel), lambda _: None).run(
            Draw(draw, 5),
            comparator,
            twice=False,
            settle=lambda: None,
            instead=tied if draw == "heavy_tail" else None,
        )
        return comparator

    return judge


def test_an_honest_tie_is_left_out_and_said(judged: Callable[..., ResultComparator]) -> None:
    found = judged(honest)
    assert 0 < found.undecided <= 32
    assert found.error_ratio is not None
    assert found.error_ratio <= Rules().error_bound
    assert f"as roundings decide what they are: {found.undecided}" in found.beside


def test_nothing_is_left_out_where_nothing_ties(judged: Callable[..., ResultComparator]) -> None:
    found = judged(honest, "task")
    assert found.undecided == 0
    assert found.beside == ""


@pytest.mark.parametrize(
    ("kernel", "draw"),
    [
        (wrong_in_one_row, "task"),
        (wrong_in_one_row, "heavy_tail"),
        (wrong_in_the_tied_row, "heavy_tail"),
        (wrong_for_rare_values, "heavy_tail"),
        (wrong_in_many_rows, "heavy_tail"),
    ],
)
def test_few_wrong_elements_are_a_rejection_beside_a_tie_too(
    judged: Callable[..., ResultComparator], kernel: Kernel, draw: str
) -> None:
    with pytest.raises(RejectedError, match="elements"):
        judged(kernel, draw)


def test_scores_of_attention_are_foreseen_in_float64(tmp_path: Path) -> None:
    task = trace(SOURCE.format(answer=IN_ONE), str(tmp_path / "model.py"), TracePolicy())
    assert isinstance(task, Task)
    assert scores_bytes(task) == ROWS * KEYS * 8
    task = trace(SOURCE.format(answer="q @ k.T"), str(tmp_path / "model.py"), TracePolicy())
    assert isinstance(task, Task)
    assert scores_bytes(task) == 0
