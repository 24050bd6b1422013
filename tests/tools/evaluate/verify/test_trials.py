"""What trials see that no honest plan can do: runners here are Python, and do it."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.verify.bits import Fingerprints
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.runners import Runner
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy, Verdict

SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(65))

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.scale

def get_inputs():
    return [torch.randn(33, 65)]
"""

Forward = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


class Python:
    """A runner that does what a function says."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        self.prepared = True

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        (x,) = arguments
        assert isinstance(x, Tensor)
        return (self._forward(x, weights),)


def honest(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    return torch.softmax(x, dim=-1) * weights["scale"]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "model.py"
    path.write_text(SOURCE, encoding="utf-8")
    found = trace(SOURCE, str(path), TracePolicy())
    assert isinstance(found, Task), found
    return found


Judge = Callable[..., None]


@pytest.fixture
def judge(task: Task, cpu: Hardware) -> Judge:
    """Runs a runner through two draws, the second under other weights."""

    def run(
        forward: Forward, *, off: tuple[Defence, ...] = (), runtime: ReferenceRuntime | None = None
    ) -> None:
        runtime = runtime or ReferenceRuntime(
            task, cpu, Rules(switched_off=off), 3, no_new_processes
        )
        runner: Runner = Python(forward)
        memory = GuardedMemory("cpu", runtime.rules.guard_bytes)
        trials, comparator = (
            Trials(runtime, memory, runner, lambda _: None),
            ResultComparator(runtime),
        )
        trials.prepare()
        for number in range(2):
            trials.run(
                Draw("task", number),
                comparator,
                twice=number == 0,
                settle=lambda: None,
                weights=number if number and runtime.rules.has(Defence.SETUP_TIMED) else None,
            )

    return run


def test_an_honest_runner_passes(judge: Judge) -> None:
    judge(honest)


def test_a_change_after_the_return_is_named(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Tensor] = []

    def remembered(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        kept.append(honest(x, weights))
        return kept[-1]

    # Something works on while the judge waits for things to come to rest.
    monkeypatch.setattr(
        "kernelwright.tools.evaluate.verify.trials.time.sleep", lambda _: kept[-1][0].zero_()
    )
    with pytest.raises(RejectedError, match="changed after it was returned") as found:
        judge(remembered)
    assert found.value.verdict is Verdict.CHEATING
    judge(remembered, off=(Defence.LATE_CHANGES,))


def test_what_is_finished_late_is_judged_as_it_was_returned(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished: list[tuple[Tensor, Tensor]] = []

    def early(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        unfinished.append((torch.zeros_like(x), honest(x, weights)))
        return unfinished[-1][0]

    def finish(_: float) -> None:
        unfinished[-1][0].copy_(unfinished[-1][1])

    monkeypatch.setattr("kernelwright.tools.evaluate.verify.trials.time.sleep", finish)
    with pytest.raises(RejectedError):
        judge(early)


def test_weights_that_are_ones_at_first_must_be_used_all_the_same(judge: Judge) -> None:
    def forgetful(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return torch.softmax(x, dim=-1)

    with pytest.raises(RejectedError) as found:
        judge(forgetful)
    assert found.value.verdict is Verdict.WRONG_RESULT
    judge(forgetful, off=(Defence.SETUP_TIMED,))


def test_writing_to_what_the_judge_keeps_for_itself_is_seen(task: Task, cpu: Hardware) -> None:
    runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)

    def reaches_far(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        # Both copies of the weight become zero, and with them the reference's answer.
        runtime.reference.weights()["scale"].zero_()
        weights["scale"].zero_()
        return torch.zeros_like(x)

    memory = GuardedMemory("cpu", runtime.rules.guard_bytes)
    trials = Trials(runtime, memory, Python(reaches_far), lambda _: None)
    with pytest.raises(RejectedError, match="far outside") as found:
        trials.run(Draw("task", 1), ResultComparator(runtime), twice=False, settle=lambda: None)
    assert found.value.verdict is Verdict.CHEATING


def test_other_weights_are_gone_afterwards(task: Task, cpu: Hardware) -> None:
    runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)
    x = runtime.draw(Draw("task", 5))
    usual = runtime.own(x).outputs[0]
    with runtime.other_weights(9):
        other = runtime.own(x)
        right = runtime.right(x, other).outputs[0]
        assert not torch.allclose(other.outputs[0], usual)
        assert torch.allclose(other.outputs[0].double(), right, atol=1e-5)
    assert torch.equal(runtime.own(x).outputs[0], usual)
    assert torch.allclose(runtime.right(x, runtime.own(x)).outputs[0], usual.double(), atol=1e-5)


def test_weights_come_back_where_changing_them_failed(task: Task, cpu: Hardware) -> None:
    """As where a device has no room for what changes them."""
    runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)
    x = runtime.draw(Draw("task", 5))
    usual = runtime.own(x).outputs[0]

    def halved(module: torch.nn.Module, generator: torch.Generator) -> None:
        with torch.no_grad():
            next(module.parameters()).mul_(0.5)
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError), runtime.other_weights(9, halved):
        pass
    assert torch.equal(runtime.own(x).outputs[0], usual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_a_fingerprint_sees_one_bit_and_an_exchange(dtype: torch.dtype) -> None:
    tensor = (torch.arange(5000) % 2).to(dtype).view(50, 100).t()
    prints = Fingerprints({"it": tensor})
    assert prints.changed() == []
    tensor[3, 4], tensor[4, 3] = tensor[4, 3].clone(), tensor[3, 4].clone()
    different = bool(tensor[3, 4] != tensor[4, 3])
    assert prints.changed() == (["it"] if different else [])
    tensor[7, 7] = ~tensor[7, 7] if dtype is torch.bool else tensor[7, 7] + 1
    assert prints.changed() == ["it"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.float32])
def test_a_fingerprint_sees_two_highest_bits_that_change_together(dtype: torch.dtype) -> None:
    tensor = torch.ones(300_000, dtype=dtype)
    prints = Fingerprints({"it": tensor})
    whole = tensor.view(torch.int64 if tensor.element_size() == 8 else torch.int32)
    for place in (17, 170_000):
        whole[place] ^= torch.iinfo(whole.dtype).min
    assert prints.changed() == ["it"]


def test_a_fingerprint_sees_parts_that_changed_places() -> None:
    tensor = torch.randn(1 << 19, generator=torch.Generator().manual_seed(1))
    prints = Fingerprints({"it": tensor})
    tensor.copy_(tensor.view(4, -1)[[0, 2, 1, 3]].reshape(-1))  # whole tiles
    assert prints.changed() == ["it"]
    tensor.copy_(tensor.view(4, -1)[[0, 2, 1, 3]].reshape(-1))
    assert prints.changed() == []
