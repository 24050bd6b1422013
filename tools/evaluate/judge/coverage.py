"""How much of a candidate's time is spent in its own kernels, and a label that says how.

Every torch operator that a plan causes is timed by itself (allocations and views are free); the
rest of the call is the candidate's. On a CPU that rest includes the plan's interpretation.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_FREE = ("aten.empty", "aten.new_empty", "aten.detach", "aten.lift_fresh", "aten.alias")
_FILLS = ("aten.zero", "aten.fill", "aten.full", "aten.ones", "aten.new_zeros")
_OWN, _SOME = 0.95, 0.05
_RUNS = 3


class LibraryClock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the time of library operators while it is active."""

    def __init__(self, drain: Callable[[], None]) -> None:
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
        if func.is_view or name.startswith(_FREE):
            return func(*args, **(kwargs or {}))
        self._drain()
        start = time.perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        self._drain()
        self.spent_ms += (time.perf_counter_ns() - start) / 1e6
        if not name.startswith(_FILLS):
            self.names.add(name.removeprefix("aten.").split(".")[0])
        return result


def coverage(call: Callable[[], object], drain: Callable[[], None]) -> tuple[float, str]:
    """The share of a call's time outside library operators, and a method label.

    The middle one of a few runs: a single one may be interrupted at the wrong moment.
    """
    runs = [_once(call, drain) for _ in range(_RUNS)]
    share = sorted(share for share, _ in runs)[_RUNS // 2]
    return share, label(share, runs[0][1])


def _once(call: Callable[[], object], drain: Callable[[], None]) -> tuple[float, set[str]]:
    drain()
    clock = LibraryClock(drain)
    start = time.perf_counter_ns()
    with clock:
        call()
        drain()
    total_ms = max((time.perf_counter_ns() - start) / 1e6, 1e-6)
    return min(1.0, max(0.0, 1.0 - clock.spent_ms / total_ms)), clock.names


def label(share: float, operators: set[str]) -> str:
    """How a result came about, in a few words."""
    listed = ", ".join(sorted(operators)[:4])
    if share >= _OWN or not operators:
        return "own kernels"
    if share >= _SOME:
        return f"own kernels with library operators ({listed})"
    return f"library rearrangement ({listed})"
