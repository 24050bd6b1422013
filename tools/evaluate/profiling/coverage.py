"""Who does a candidate's work, its own kernels or the library's operators; and a label for it.

Every launch of the candidate's and every torch operator that its plan causes is timed by itself,
in a run of its own. On a GPU only the device's time counts: each span waits behind a pause, so
that the host's time to issue it is not taken for work. Allocations and views are free, and
filling memory is counted for nobody.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_FREE = ("aten.empty", "aten.new_empty", "aten.detach", "aten.lift_fresh", "aten.alias")
_FILLS = ("aten.zero", "aten.fill", "aten.full", "aten.ones", "aten.new_zeros")
_OWN, _SOME = 0.95, 0.05
_RUNS = 3
_PAUSE_CYCLES = 400_000  # some 200 us, longer than the host takes to issue anything


class Watched(Protocol):
    """A runner whose launches can be watched."""

    def watch(self, around: Callable[[Callable[[], None]], None]) -> None:
        """Have every launch made by `around`."""
        ...


class LibraryClock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the time of library operators while it is active.

    Args:
        drain: waits until the device has nothing left to do.
    """

    def __init__(self, drain: Callable[[], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drain = drain
        self.spent_ms = 0.0
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator, timed unless it does no work."""
        name = str(func)
        if func.is_view or name.startswith((*_FREE, *_FILLS)):
            return func(*args, **(kwargs or {}))
        results: list[object] = []
        self.spent_ms += self._span(lambda: results.append(func(*args, **(kwargs or {}))))
        self.names.add(name.removeprefix("aten.").split(".")[0])
        return results[0]

    def _span(self, call: Callable[[], object]) -> float:
        self._drain()
        start = time.perf_counter_ns()
        call()
        self._drain()
        return max(1, time.perf_counter_ns() - start) / 1e6


class Shares(LibraryClock):
    """The time of a candidate's launches as well, each given to `launch`."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device.startswith("cuda")
        super().__init__(torch.cuda.synchronize if self._on_gpu else lambda: None)
        self.own_ms = 0.0

    @property
    def share(self) -> float:
        """The candidate's own part of all the work; 0 when there was none."""
        total = self.own_ms + self.spent_ms
        return self.own_ms / total if total else 0.0

    def launch(self, call: Callable[[], None]) -> None:
        """Carry out a launch of the candidate's, timed."""
        self.own_ms += self._span(call)

    def _span(self, call: Callable[[], object]) -> float:
        if not self._on_gpu:
            return super()._span(call)
        first, last = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_PAUSE_CYCLES)  # type: ignore[no-untyped-call]
        first.record()
        call()
        last.record()
        torch.cuda.synchronize()
        return max(float(first.elapsed_time(last)), 1e-6)


def coverage(call: Callable[[], object], runner: Watched, device: str) -> tuple[float, str]:
    """The share of a call's work that the candidate's own kernels do, and a method label.

    The middle one of a few runs: a single one may be interrupted at the wrong moment.

    Args:
        call: one forward of the runner.
        runner: watched from now on.
        device: as torch names it.
    """
    runs: list[Shares] = []
    runner.watch(lambda launch: runs[-1].launch(launch))
    for _ in range(_RUNS):
        runs.append(Shares(device))
        with runs[-1]:
            call()
    share = sorted(run.share for run in runs)[_RUNS // 2]
    return share, label(share, runs[0].names)


def label(share: float, operators: set[str]) -> str:
    """How a result came about, in a few words."""
    listed = ", ".join(sorted(operators)[:4])
    if share >= _OWN or not operators:
        return "own kernels" if share else "no work at all"
    if share >= _SOME:
        return f"own kernels with library operators ({listed})"
    return f"library rearrangement ({listed})"
