"""Device time is taken only with the host ahead; a real harness on a device that is made up."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.harness import Harness
from kernelwright.tools.evaluate.worker.task_runtime import TaskRuntime
from kernelwright.tools.types import Task

RULES = Rules(pairs_min=4, pairs_max=8, warm_up_s=0.0, cold_warm_up_s=0.0)
FLUSH_MS = 0.05


class Device:
    """Its caches take 50 us to flush; the host takes `host_ms` to issue a call of `work_ms`."""

    def __init__(self, host_ms: float, work_ms: float) -> None:
        self.host_ms, self.work_ms = host_ms, work_ms
        self.holds_ms: list[float] = []

    def __call__(self, hold_ms: float = 0.0) -> None:
        self.holds_ms.append(hold_ms)

    def queued_ms(self, call: Callable[[], object]) -> tuple[float, bool]:
        call()
        late_ms = max(0.0, self.host_ms - self.holds_ms[-1] - FLUSH_MS)
        return self.work_ms + late_ms, late_ms == 0.0

    def time_ms(self, call: Callable[[], object]) -> float:
        call()
        return self.work_ms + self.host_ms

    def drain(self) -> None: ...


def harness(task: Task, cpu: Hardware, device: Device, rules: Rules = RULES) -> Harness:
    made = TaskRuntime(task, cpu, rules, 0).harness
    made._stopwatch = cast(Any, device)
    made._flush = cast(Any, device)
    made._device = "cuda"
    made._conditions = cast(Any, lambda notes, seen=None: notes)  # no device to read them of
    return made


def test_the_device_is_held_for_as_long_as_the_host_takes(relu: Task, cpu: Hardware) -> None:
    device = Device(host_ms=7.0, work_ms=0.02)
    made = harness(relu, cpu, device)
    taken = [made._sample(lambda inputs: None) for _ in range(3)]
    assert taken == [0.02] * 3
    assert device.holds_ms == [0, 0.5, 1, 2, 4, 8, pytest.approx(7.84), pytest.approx(7.6832)]
    assert made._waits() == ()


def test_a_flush_alone_hides_what_the_host_issues_at_once(relu: Task, cpu: Hardware) -> None:
    device = Device(host_ms=0.04, work_ms=0.02)
    made = harness(relu, cpu, device)
    assert [made._sample(lambda inputs: None) for _ in range(3)] == [0.02] * 3
    assert device.holds_ms == [0, 0, 0]


def test_a_stall_of_the_host_is_forgotten(relu: Task, cpu: Hardware) -> None:
    device = Device(host_ms=20.0, work_ms=0.02)
    made = harness(relu, cpu, device)
    made._sample(lambda inputs: None)
    device.host_ms = 1.0
    taken = [made._sample(lambda inputs: None) for _ in range(300)]
    assert taken == [0.02] * 300
    assert max(device.holds_ms[-50:]) < 3
    device.host_ms = 0.01
    for _ in range(300):
        made._sample(lambda inputs: None)
    assert device.holds_ms[-1] == 0


def test_a_call_that_waits_for_the_device_is_timed_and_said(relu: Task, cpu: Hardware) -> None:
    device = Device(host_ms=99.0, work_ms=0.02)
    made = harness(relu, cpu, device)
    assert made._sample(lambda inputs: None) > 60
    assert max(device.holds_ms) == RULES.hold_max_ms
    (words,) = made._waits()
    assert "the device waited for the host" in words
    assert made._waits() == ()  # said once


def test_a_single_call_holds_the_hosts_time(relu: Task, cpu: Hardware) -> None:
    made = harness(relu, cpu, Device(host_ms=0.3, work_ms=0.02))
    assert made.alone_ms(lambda inputs: None, 3) == pytest.approx(0.32)
    assert made.clock == "device"


def test_on_a_cpu_there_is_one_clock(relu: Task, cpu: Hardware) -> None:
    made = TaskRuntime(relu, cpu, RULES, 0).harness
    assert (made.clock, made.on_gpu) == ("wall", False)
    compared = made.compare(
        "eager", lambda inputs: sum(range(2000)), lambda inputs: sum(range(1000)), seconds=0.0
    )
    assert compared.clock == "wall"
    assert compared.latency is None
    assert not compared.as_graph
