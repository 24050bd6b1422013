"""A candidate may be as coarse as PyTorch's own result with channels last, and not coarser."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.changing_order import (
    ORDER_CHANGED,
    one_order,
    order_may_change,
    without_order,
)
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.measured_precision import probed, resolve
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.precision import may_be_coarser, with_channels_last
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy, Verdict

# What a library does on a GPU: with channels last a product's factors lose their last digits.
SOURCE = """
import torch

def cut(x):
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 16, 3)
        self.norm = torch.nn.BatchNorm2d(16)

    def forward(self, x):
        weight = self.conv.weight
        if x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
            assert weight.is_contiguous(memory_format=torch.channels_last)
            x, weight = cut(x), cut(weight)
        x = torch.nn.functional.conv2d(x, weight, self.conv.bias)
        return self.norm(x)

def get_inputs():
    return [torch.randn(4, 8, 12, 13)]
"""
_TF32, _BFLOAT16 = 13, 16  # bits of a single's significand that are lost


def shortened(x: Tensor, bits: int) -> Tensor:
    """Rounded towards zero, as one of two honest ways to lose digits."""
    return (x.contiguous().view(torch.int32) & -(1 << bits)).view(torch.float32)


class Convolution:
    """Computes the task after its operands have lost digits."""

    def __init__(self, bits: int, *, off_by: Sequence[float] = ()) -> None:
        self._bits, self._off_by, self.calls = bits, list(off_by), 0

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        (x,) = arguments
        assert isinstance(x, Tensor)
        weight = weights["conv.weight"]
        if self._bits:
            x, weight = shortened(x, self._bits), shortened(weight, self._bits)
        y = conv2d(x, weight, weights["conv.bias"])
        for name, value in (("running_mean", y.mean((0, 2, 3))), ("running_var", _var(y))):
            weights[f"norm.{name}"].mul_(0.9).add_(value, alpha=0.1)
        weights["norm.num_batches_tracked"].add_(1)
        mean, scale = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), False, keepdim=True)
        y = (y - mean) * torch.rsqrt(scale + 1e-5)
        y = y * weights["norm.weight"].view(-1, 1, 1) + weights["norm.bias"].view(-1, 1, 1)
        self.calls += 1
        changing = not torch.backends.cudnn.deterministic and self._off_by
        return (y + self._off_by[self.calls % len(self._off_by)] if changing else y,)


def _var(y: Tensor) -> Tensor:
    return y.var((0, 2, 3), True)


Judge = Callable[..., tuple[ResultComparator, Trials, ReferenceRuntime]]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "model.py"
    path.write_text(SOURCE, encoding="utf-8")
    found = trace(SOURCE, str(path), TracePolicy())
    assert isinstance(found, Task), found
    return found


@pytest.fixture
def judge(task: Task, cpu: Hardware) -> Judge:
    """Runs a candidate through two draws, the second under other weights."""

    def run(
        runner: Convolution, calls: Sequence[str] = ()
    ) -> tuple[ResultComparator, Trials, ReferenceRuntime]:
        runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)
        memory = GuardedMemory("cpu", runtime.rules.guard_bytes)
        trials = Trials(runtime, memory, runner, print, calls=calls)
        comparator = ResultComparator(runtime)
        for number in (0, 1):
            trials.run(
                Draw("task", number),
                comparator,
                twice=number == 0,
                settle=lambda: None,
                weights=number or None,
            )
        return comparator, trials, runtime

    return run


@pytest.fixture
def coarser_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kernelwright.tools.evaluate.verify.reference_runtime.may_be_coarser",
        lambda task, device: True,
    )


def test_digits_that_the_library_keeps_must_be_kept(judge: Judge):
    comparator, *_ = judge(Convolution(0))
    assert not comparator.coarser
    with pytest.raises(RejectedError) as found:
        judge(Convolution(_TF32))
    assert found.value.verdict is Verdict.WRONG_RESULT


@pytest.mark.usefixtures("coarser_library")
def test_what_the_library_drops_with_channels_last_may_be_dropped_and_no_more(judge: Judge):
    comparator, *_ = judge(Convolution(_TF32))
    assert comparator.coarser
    assert comparator.error_ratio is not None
    assert comparator.error_ratio <= Rules().error_bound
    with pytest.raises(RejectedError) as found:
        judge(Convolution(_BFLOAT16))
    assert found.value.verdict is Verdict.WRONG_RESULT


@pytest.mark.usefixtures("coarser_library")
def test_what_keeps_all_digits_is_not_called_coarser(judge: Judge):
    comparator, *_ = judge(Convolution(0))
    assert not comparator.coarser


@pytest.mark.usefixtures("coarser_library")
@pytest.mark.parametrize(("bits", "label", "apart"), [(0, "fp32", False), (_TF32, "tf32", False)])
def test_the_label_says_what_was_measured(judge: Judge, bits: int, label: str, apart: bool):
    _, trials, runtime = judge(Convolution(bits))
    digits = probed(trials, runtime, 1, lambda: None, ranges=False)
    assert digits is not None
    assert digits.as_turned is (bits > 0)
    found = resolve(runtime.task, (), digits.bits, exact=digits.exact, as_turned=digits.as_turned)
    assert (found.label, bool(found.apart)) == (label, apart)


def test_what_names_half_precision_stays_apart(task: Task):
    found = resolve(task, ("fp16",), 11.0, exact=False, as_turned=True)
    assert found.apart


def test_the_module_and_its_weights_stay_as_they_are(task: Task, cpu: Hardware):
    runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)
    before = {name: value.clone() for name, value in runtime.reference.weights().items()}
    outputs, live = with_channels_last(runtime.reference, task, runtime.draw(Draw("task", 1)))
    assert len(outputs) == 1
    assert int(live["norm.num_batches_tracked"]) == 1
    for name, value in runtime.reference.weights().items():
        assert torch.equal(value, before[name])
        assert value.stride() == before[name].stride()


@pytest.mark.usefixtures("coarser_library")
def test_a_module_that_takes_no_such_layout_has_one_result(tmp_path: Path, cpu: Hardware):
    source = SOURCE.replace("return self.norm(x)", "return self.norm(x).view(4, 16 * 110)")
    found = trace(source, str(tmp_path / "model.py"), TracePolicy())
    assert isinstance(found, Task), found
    runtime = ReferenceRuntime(found, cpu, Rules(), 3, no_new_processes)
    arguments = runtime.draw(Draw("task", 1))
    assert runtime.own_turned(arguments) is None
    assert runtime.own(arguments).outputs[0].shape == (4, 16 * 110)


def test_it_is_asked_only_where_a_library_decides_and_may(
    task: Task, monkeypatch: pytest.MonkeyPatch
):
    assert not may_be_coarser(task, "cpu")
    assert may_be_coarser(task, "cuda")
    monkeypatch.setattr("kernelwright.tools.evaluate.verify.precision.allows_tf32", lambda: False)
    assert not may_be_coarser(task, "cuda")


def test_a_library_that_adds_in_changing_order_is_no_race(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
):
    restless = Convolution(0, off_by=(0.0, 1e-7))
    with pytest.raises(RejectedError) as found:
        judge(restless)
    assert found.value.verdict is Verdict.NONDETERMINISTIC
    monkeypatch.setattr(
        "kernelwright.tools.evaluate.verify.trials.order_may_change", lambda task, device: True
    )
    _, trials, _ = judge(Convolution(0, off_by=(0.0, 1e-7)))
    assert trials.skipped == [ORDER_CHANGED]
    assert not torch.backends.cudnn.deterministic


def test_sums_by_index_may_come_in_another_order_on_a_gpu():
    source = """
import torch

class Model(torch.nn.Module):
    def forward(self, gradient, at):
        return torch.ops.aten.embedding_dense_backward(gradient, at, 2, -1, False)

def get_inputs():
    return [torch.randn(64, 8), torch.zeros(64, dtype=torch.int64)]
"""
    task = trace(source, "rows.py", TracePolicy())
    assert isinstance(task, Task), task
    assert order_may_change(task, "cuda")
    assert not order_may_change(task, "cpu")
    plain = trace(
        source.replace(
            "embedding_dense_backward(gradient, at, 2, -1, False)", "embedding(gradient, at)"
        ),
        "rows.py",
        TracePolicy(),
    )
    assert isinstance(plain, Task), plain
    assert not order_may_change(plain, "cuda")


def test_threads_of_a_cpu_add_to_one_place_in_changing_order():
    source = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, at):
        return torch.zeros(4, 8).{}

def get_inputs():
    return [torch.randn(64, 8), torch.randint(0, 4, (64,))]
"""
    changing = "index_put((at,), x, accumulate=True)"
    for call, may in ((changing, True), ("index_add(0, at, x)", False)):
        task = trace(source.format(call), "rows.py", TracePolicy())
        assert isinstance(task, Task), task
        assert order_may_change(task, "cpu") is may


def test_one_order_is_asked_of_all_operators_and_nothing_is_left_of_it():
    def asked() -> tuple[bool, bool, bool]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
        )

    before = asked()
    with one_order():
        assert asked() == (True, True, False)
        values, places = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64)
        torch.ops.aten.max_unpool2d(values, places, [2, 2])
        torch.nn.functional.max_unpool2d(values, places, 2)
    assert asked() == before


def test_each_of_two_answers_that_are_excused_has_to_be_right(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "kernelwright.tools.evaluate.verify.trials.order_may_change", lambda task, device: True
    )
    with pytest.raises(RejectedError) as found:
        judge(Convolution(0, off_by=(1e-2, 0.0)))  # the second one is off
    assert found.value.verdict is Verdict.WRONG_RESULT


def test_a_race_beside_the_library_is_still_one(judge: Judge, monkeypatch: pytest.MonkeyPatch):
    class Racing(Convolution):
        def __call__(
            self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
        ) -> tuple[Tensor, ...]:
            (y,) = super().__call__(arguments, weights)
            return (y + 1e-7 * self.calls,)

    monkeypatch.setattr(
        "kernelwright.tools.evaluate.verify.trials.order_may_change", lambda task, device: True
    )
    with pytest.raises(RejectedError) as found:
        judge(Racing(0))
    assert found.value.verdict is Verdict.NONDETERMINISTIC


def test_what_has_no_order_at_all_excuses_only_where_the_module_calls_it_too(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
):
    class Restless(Convolution):
        """Differs from itself, whatever is asked of the library."""

        def __call__(
            self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
        ) -> tuple[Tensor, ...]:
            (y,) = super().__call__(arguments, weights)
            return (y + 1e-7 * self.calls,)

    trials, name = "kernelwright.tools.evaluate.verify.trials", "upsample_bilinear2d_backward"
    monkeypatch.setattr(f"{trials}.order_may_change", lambda task, device: True)
    monkeypatch.setattr(f"{trials}.without_order", lambda task: frozenset({name}))
    _, judged, _ = judge(Restless(0), ("convolution", name))
    (words,) = judged.skipped
    assert f"the library's {name} has no deterministic algorithm" in words
    with pytest.raises(RejectedError) as found:
        judge(Restless(0), ("convolution",))
    assert found.value.verdict is Verdict.NONDETERMINISTIC
    monkeypatch.setattr(f"{trials}.without_order", lambda task: frozenset())
    with pytest.raises(RejectedError) as found:
        judge(Restless(0), ("convolution", name))
    assert found.value.verdict is Verdict.NONDETERMINISTIC


@pytest.mark.parametrize(
    ("call", "may"),
    [
        ("aten.upsample_bilinear2d_backward(x, [4, 4], [2, 8, 2, 2], False)", True),
        ("aten.upsample_nearest2d_backward(x, [4, 4], [2, 8, 2, 2])", False),
    ],
)
def test_gradients_of_what_resizes_have_no_order_on_a_gpu(call: str, may: bool):
    source = f"""
import torch
aten = torch.ops.aten

class Model(torch.nn.Module):
    def forward(self, x):
        return {call}

def get_inputs():
    return [torch.randn(2, 8, 4, 4)]
"""
    task = trace(source, "resized.py", TracePolicy())
    assert isinstance(task, Task), task
    assert order_may_change(task, "cuda") is may
    assert without_order(task) == ({"upsample_bilinear2d_backward"} if may else set())
    assert not order_may_change(task, "cpu")
