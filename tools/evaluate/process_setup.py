"""What is set up in every judging process before any other code runs in it.

`resolve_vector_math`: PyTorch takes `exp`, `sqrt` or `sin` of contiguous floats on a CPU from MKL,
a piece a thread. MKL 2024.2, which its wheels bring, looks up the code for a function in the first
call of it. Threads that make this call together can find the lookup half done, and one computes its
piece at a lower precision, this once (PyTorch's issue 188792; `benchmarks/judge/first_calls.py`
counts how often). Truth would be wrong by it, or an honest candidate's first answer not the same
bits as its second. So each function is called once by a single thread.

`watch_processes` and `no_new_processes` keep Python code of a user's from starting processes. This
is order, not a sandbox: what keeps native code in is the wall around the process
(`tools.evaluate.sandbox.walls`).

`Meter` is a worker's own account of where its time goes: one phase at a time, from begin to begin.
Processor seconds include compilers that were waited for. Not covered: what runs on a GPU after a
phase has ended is counted in the phase that waits for it.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator

import torch

from kernelwright.tools.types.measurement import Phase, together

# What ATen's cpu/vml.h hands to MKL, in float32 and float64.
FUNCTIONS = (
    "abs", "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "expm1", "log", "log10",
    "log1p", "log2", "sin", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


def resolve_vector_math() -> None:
    """Call each function once with a single element, which no second thread shares; 20 ms."""
    for dtype in (torch.float32, torch.float64):
        one = torch.full((1,), 0.5, dtype=dtype)
        for name in FUNCTIONS:
            getattr(torch, name)(one)


_PR_SET_PDEATHSIG = 1
_STARTS = {
    "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "subprocess.Popen",
}  # fmt: skip
_forbidden = False


def watch_processes() -> None:
    """Let `no_new_processes` mean something in this process from now on."""
    sys.addaudithook(_refuse_processes)


def on_fork(close: Callable[[], None]) -> None:
    """A fork of the worker must not speak for it, and must not outlive it."""

    def child() -> None:
        close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    os.register_at_fork(after_in_child=child)


@contextlib.contextmanager
def no_new_processes() -> Iterator[None]:
    """While a user's code runs, starting a process raises PermissionError."""
    global _forbidden
    before, _forbidden = _forbidden, True
    try:
        yield
    finally:
        _forbidden = before


def _refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    if _forbidden and event in _STARTS:
        raise PermissionError(f"a task's file must not start processes ({event})")


class Meter:
    """Counts the present phase until the next one begins."""

    def __init__(self) -> None:
        self._name = ""
        self._since = (0.0, 0.0)
        self._done: list[Phase] = []

    def begin(self, name: str) -> None:
        """End the present phase, and begin another; "" begins none."""
        now = (time.perf_counter(), _cpu_s())
        if self._name:
            seconds, cpu_s = (now[0] - self._since[0], now[1] - self._since[1])
            self._done.append(Phase(name=self._name, seconds=seconds, cpu_s=cpu_s))
        self._name, self._since = name, now

    def taken(self) -> tuple[Phase, ...]:
        """End the present phase, and hand over all there were since the last time."""
        self.begin("")
        done, self._done = self._done, []
        return together(done)


def _cpu_s() -> float:
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited.ru_utime + waited.ru_stime
