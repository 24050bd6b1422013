"""Keeps Python code of a user's, in a worker, from starting processes.

Set up before any other code runs there. This is order, not a sandbox: what keeps native code in
is the wall around the process (`tools.evaluate.sandbox.walls`).
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator

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
