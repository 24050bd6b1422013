"""Far from a task's own values a near tie is decided by roundings, which is no lost range."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.measured_precision import Digits, probed, resolve
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

# With weights 1e5 times as large the larger score takes it all. One word's keys are neighbours in
# float32, of such sizes that their products stay apart when they are rounded once.
SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        keys = torch.rand(100, 2) + torch.tensor([0.0, 2.0])
        keys[0] = 0.7
        keys[0, 1].nextafter_(torch.tensor(1.0))
        self.queries = torch.nn.Embedding.from_pretrained(
            torch.linspace(1.24, 1.28, 100).view(100, 1), freeze=False)
        self.keys = torch.nn.Embedding.from_pretrained(keys, freeze=False)
        self.values = torch.nn.Parameter(torch.randn(2, 33))

    def forward(self, tokens):
        scores = self.queries(tokens) * self.keys(tokens)
        return torch.softmax(scores, 1) @ self.values

def get_inputs():
    return [torch.randint(0, 100, (1000,))]
"""
_LARGEST_HALF = 65504.0


class Attention:
    """Computes the task with its scores rounded more often, or with factors in half's range."""

    def __init__(self, *, is_clamped: bool) -> None:
        self._is_clamped = is_clamped

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        (tokens,) = arguments
        assert isinstance(tokens, Tensor)
        names = ("queries.weight", "keys.weight", "values")
        queries, keys, values = (self._factor(weights[name]) for name in names)
        scores = (queries[tokens] * 3.0) * (keys[tokens] / 3.0)
        return (torch.softmax(scores, 1) @ values,)

    def _factor(self, weight: Tensor) -> Tensor:
        return weight.clamp(-_LARGEST_HALF, _LARGEST_HALF) if self._is_clamped else weight


@pytest.fixture
def task(tmp_path: Path) -> Task:
    path = tmp_path / "model.py"
    path.write_text(SOURCE, encoding="utf-8")
    found = trace(SOURCE, str(path), TracePolicy())
    assert isinstance(found, Task), found
    return found


def digits_of(runner: Attention, task: Task, cpu: Hardware) -> Digits:
    runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)
    trials = Trials(runtime, GuardedMemory("cpu", runtime.rules.guard_bytes), runner, print)
    trials.prepare()
    found = probed(trials, runtime, 1, lambda: None, ranges=True)
    assert found is not None
    return found


@pytest.mark.parametrize(("is_clamped", "label"), [(False, "fp32 via fp16"), (True, "fp16")])
def test_ties_that_go_the_other_way_are_no_lost_range(
    task: Task, cpu: Hardware, is_clamped: bool, label: str
) -> None:
    found = digits_of(Attention(is_clamped=is_clamped), task, cpu)
    assert found.in_range is not is_clamped
    exact = found.exact and found.in_range
    assert resolve(task, ("fp16",), found.bits, exact=exact).label == label
