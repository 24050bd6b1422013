"""How much of the work a candidate's own kernels do."""

import time
from collections.abc import Callable

import torch

from kernelwright.tools.evaluate.profiling.coverage import coverage


class Plan:
    """What a runner is to coverage: something whose launches can be watched."""

    def watch(self, around: Callable[[Callable[[], None]], None]) -> None:
        self.around = around

    def launch(self, seconds: float) -> None:
        self.around(lambda: time.sleep(seconds))


def test_coverage_sees_library_operators_and_ignores_views() -> None:
    x, plan = torch.randn(512, 512), Plan()
    assert coverage(lambda: x.view(-1)[3:].unsqueeze(0), plan, "cpu") == (0.0, "no work at all")
    share, method = coverage(lambda: torch.mm(x, x), plan, "cpu")
    assert share < 0.05
    assert method == "library rearrangement (mm)"
    share, method = coverage(lambda: plan.launch(0.002), plan, "cpu")
    assert (share, method) == (1.0, "own kernels")


def test_coverage_counts_work_and_not_the_time_between() -> None:
    x, plan = torch.randn(64, 64), Plan()

    def mostly_waiting() -> None:
        plan.launch(1e-5)
        time.sleep(0.01)
        torch.linalg.matrix_power(x, 64)

    share, method = coverage(mostly_waiting, plan, "cpu")
    assert share < 0.95
    assert "mm" in method
