"""A worker's own account of where its time goes: one phase at a time, from begin to begin.

Processor seconds include compilers that were waited for. Not covered: what runs on a GPU after a
phase has ended is counted in the phase that waits for it.
"""

import resource
import time

from kernelwright.tools.types.phase import Phase, together


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
