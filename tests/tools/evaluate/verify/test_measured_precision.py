"""A baseline whose answers are coarser than a candidate's may be says so beside its ratio."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.measured_precision import times_eager
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument, UnverifiableError
from kernelwright.tools.evaluate.worker.comparing import Comparing
from kernelwright.tools.evaluate.worker.task_runtime import TaskRuntime
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 16, 3)
        self.norm = torch.nn.BatchNorm2d(16)

    def forward(self, x):
        return self.norm(self.conv(x))

def get_inputs():
    return [torch.randn(4, 8, 12, 13)]
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    found = trace(SOURCE, str(tmp_path_factory.mktemp("task") / "model.py"), TracePolicy())
    assert isinstance(found, Task), found
    return found


@pytest.fixture
def runtime(task: Task, cpu: Hardware) -> ReferenceRuntime:
    return ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)


class Way:
    """Another way to do the task: eager on inputs that lost so many bits."""

    def __init__(self, runtime: ReferenceRuntime, bits: int) -> None:
        self.module, self.bits, self.calls = runtime.reference.module, bits, 0

    def __call__(self, arguments: Sequence[Argument]) -> object:
        (x,) = arguments
        assert isinstance(x, torch.Tensor)
        self.calls += 1
        with torch.no_grad():
            return self.module((x.view(torch.int32) & -(1 << self.bits)).view(torch.float32))


def test_what_is_as_exact_as_eager_is_once_as_far_and_coarser_answers_are_further(
    runtime: ReferenceRuntime,
):
    assert times_eager(runtime, Way(runtime, 0), 1) == pytest.approx(1.0, abs=0.5)
    coarser = times_eager(runtime, Way(runtime, 13), 1)
    assert coarser is not None
    assert coarser > 50


def test_buffers_that_it_updates_are_put_back(runtime: ReferenceRuntime):
    before = {name: value.clone() for name, value in runtime.reference.weights().items()}
    times_eager(runtime, Way(runtime, 13), 1)
    for name, value in runtime.reference.weights().items():
        assert torch.equal(value, before[name]), name


def test_without_room_for_the_truth_nothing_is_said(
    runtime: ReferenceRuntime, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> object:
        raise UnverifiableError("too large")

    monkeypatch.setattr(runtime, "right", full)
    assert times_eager(runtime, Way(runtime, 13), 1) is None


@pytest.mark.parametrize(
    ("bits", "may", "said"), [(13, True, True), (0, True, False), (13, False, False)]
)
def test_it_is_said_where_the_library_decides_and_the_answers_are_coarser(
    task: Task, cpu: Hardware, monkeypatch: pytest.MonkeyPatch, bits: int, may: bool, said: bool
):
    monkeypatch.setattr(
        "kernelwright.tools.evaluate.worker.task_runtime.may_be_coarser", lambda *_: may
    )
    task_runtime = TaskRuntime(task, cpu, Rules(), 3)
    way = Way(task_runtime.runtime, bits)
    task_runtime.__dict__["baselines"] = SimpleNamespace(get=lambda name: way)
    for _ in range(2):
        assert ("times as far from the truth as eager's" in task_runtime.remark("compile")) is said
    assert way.calls == int(may)
    assert task_runtime.remark("eager") == ""


@pytest.mark.parametrize(("effort", "expected"), [("certify", ("coarse",)), ("precise", ())])
def test_only_a_finalist_waits_for_it(effort: str, expected: tuple[str, ...]):
    task_runtime = SimpleNamespace(remark=lambda name: "coarse")
    request = SimpleNamespace(effort=effort, rules=Rules())
    steps = SimpleNamespace(say=lambda *_, **__: None, begin=lambda *_: None)
    comparing = Comparing(cast(Any, task_runtime), cast(Any, request), cast(Any, steps))
    assert comparing._remarks("compile") == expected
