"""An answer without work that comes near to passing tightens the bound; honest ones still pass."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

# So little of x survives next to 4096 that PyTorch's own answer is off by a tenth of it.
SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return (x * 8e-4 + 4096.0) - 4096.0

def get_inputs():
    return [torch.randn(64, 300)]
"""
Answer = Callable[[Tensor], Tensor]


class Plain:
    """A runner that answers so."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        (x,) = arguments
        assert isinstance(x, Tensor)
        return (self._answer(x),)


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory, cpu: Hardware) -> Callable[..., str]:
    """Why an answer is rejected on the task's own values; "" where it passes on all draws."""
    path = tmp_path_factory.mktemp("task") / "model.py"
    task = trace(SOURCE, str(path), TracePolicy())
    assert isinstance(task, Task), task
    runtimes: dict[Rules, ReferenceRuntime] = {}

    def run(answer: Answer, rules: Rules) -> str:
        runtime = runtimes.setdefault(
            rules, ReferenceRuntime(task, cpu, rules, 3, no_new_processes)
        )
        try:
            for seed in range(6):
                memory = GuardedMemory("cpu", rules.guard_bytes)
                trials = Trials(runtime, memory, Plain(answer), lambda _: None)
                draw, comparator = Draw("task", seed), ResultComparator(runtime)
                trials.run(draw, comparator, twice=False, settle=lambda: None)
        except RejectedError as found:
            return found.reason
        return ""

    return run


WITHOUT = Rules(switched_off=(Defence.NULLS,))
LAZY = {
    "zeros": torch.zeros_like,
    "hardly more than zeros": lambda x: x * 4e-5,
    "the mean of a row": lambda x: (x * 8e-4).mean(1, keepdim=True).expand_as(x).contiguous(),
}
HONEST = {
    "as PyTorch": lambda x: (x * 8e-4 + 4096.0) - 4096.0,
    "by algebra": lambda x: x * 8e-4,
    "in double": lambda x: ((x.double() * 8e-4 + 4096.0) - 4096.0).float(),
    "in another order": lambda x: (4096.0 + x * 8e-4) - 4096.0,
}


@pytest.mark.parametrize("answer", LAZY.values(), ids=LAZY)
def test_an_answer_near_a_null_passed_the_usual_bound_and_fails_the_tightened_one(rejected, answer):
    assert rejected(answer, WITHOUT) == ""
    assert "an answer without work comes near" in rejected(answer, Rules())


@pytest.mark.parametrize("answer", HONEST.values(), ids=HONEST)
def test_honest_answers_pass_the_tightened_bound(rejected, answer):
    assert rejected(answer, Rules()) == ""
