"""How much of the work a candidate's own kernels do."""

import threading
import time
from collections.abc import Callable

import torch

from kernelwright.tools.evaluate.profiling.coverage import coverage, in_every_thread


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


def test_operators_are_seen_in_other_threads_and_where_modes_are_off() -> None:
    x = torch.randn(512, 512)

    def in_a_thread() -> None:
        works = threading.Thread(target=lambda: torch.softmax(x @ x, -1))
        works.start()
        works.join()

    def unseen_by_modes() -> None:
        with torch._C._DisableTorchDispatch():
            torch.softmax(x @ x, -1)

    for forward in (in_a_thread, unseen_by_modes):
        share, names = in_every_thread(forward)
        assert share > 0.5
        assert {"mm", "_softmax"} <= set(names)
    share, names = in_every_thread(lambda: (time.sleep(0.01), torch.zeros_like(x)))
    assert share < 0.5
    assert names == ()
