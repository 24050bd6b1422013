"""Predictions follow the roofline: bytes over bandwidth, launches, arithmetic."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import PlanLine, Strategy
from kernelwright.tools.codegen.ir.roofline import line_ms, loop_bytes, predict_ms

Check = Callable[..., Any]
r = torch.randn


def hardware(**rates: float) -> Hardware:
    values = {"bandwidth_gb_s": 1000.0, "fp32_tflops": 10.0, "launch_us": 2.0} | rates
    return Hardware.model_validate(
        {
            "name": "test",
            "kind": "cuda",
            "source": "none",
            "cache_mib": 1,
            "memory_gib": 1,
            **values,
        }
    )


def strategy(**changes: Any) -> Strategy:
    words = ["name", "title", "mechanism", "reason", "metric", "memory", "compute", "parallel"]
    plain = Strategy.model_validate(dict.fromkeys(words, "x") | {"category": "memory"})
    return plain.model_copy(update={"efficiency": 1.0} | changes)


def test_bytes_count_each_element_once(check: Check) -> None:
    (loop,) = check(lambda x, w: torch.softmax(x * w, 1), r(40, 70), r(70)).program.loops
    assert loop_bytes(loop) == (40 * 70 * 4 + 70 * 4, 40 * 70 * 4)


@pytest.mark.parametrize(
    ("pool", "elements"),
    [
        (torch.nn.MaxPool2d(2), 12 * 20),
        (torch.nn.MaxPool2d(3, 1), 12 * 20),
        (torch.nn.MaxPool2d((1, 2), (4, 2)), 3 * 20),
    ],
)
def test_a_window_reads_what_its_outputs_need_once(
    pool: torch.nn.Module, elements: int, check: Check
) -> None:
    (loop,) = check(pool, r(2, 3, 12, 20)).program.loops
    assert loop_bytes(loop)[0] == 2 * 3 * elements * 4


def test_half_types_move_half_the_bytes(check: Check) -> None:
    (loop,) = check(lambda x: torch.relu(x), r(40, 70).half()).program.loops
    assert loop_bytes(loop) == (40 * 70 * 2, 40 * 70 * 2)


def test_time_is_bytes_over_bandwidth_and_launches(check: Check) -> None:
    (loop,) = check(lambda x: torch.relu(x), r(1000, 1000)).program.loops
    assert predict_ms(loop, strategy(), hardware()) == pytest.approx(0.008 + 0.002)
    twice = strategy(bytes_read_factor=2.0, launches=3)
    assert predict_ms(loop, twice, hardware()) == pytest.approx(0.012 + 0.006)
    assert predict_ms(loop, strategy(efficiency=0.5), hardware()) == pytest.approx(0.018)


def test_slow_arithmetic_bounds_a_loop(check: Check) -> None:
    (loop,) = check(lambda x: torch.erf(x).exp(), r(100, 100)).program.loops
    quick, slow = hardware(), hardware(fp32_tflops=1e-6)
    assert predict_ms(loop, strategy(), slow) > 100 * predict_ms(loop, strategy(), quick)


def test_a_library_call_is_its_arithmetic_and_its_launch(check: Check) -> None:
    program = check(
        torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()), r(16, 64)
    ).program
    line = program.steps[0]
    assert isinstance(line, PlanLine)
    assert line.cost_flops == 2 * 16 * 32 * 64
    assert line_ms(line, hardware(launch_us=50.0)) == pytest.approx(0.05, rel=0.01)
    assert line_ms(line.model_copy(update={"cost_bytes": 0, "cost_flops": 0}), hardware()) == 0
