"""Whether the machine held still while it was timed: clocks, throttling, company.

On a GPU NVML is read between blocks of pairs, outside every timed span: a block in which a clock
moved or the device held itself back is taken again. On a CPU the kernel's own accounts tell what
share of the processors other processes used meanwhile; clocks are not read there.
Not covered: what another process does to the device's memory traffic between two readings.
"""

import os
import time
from pathlib import Path
from typing import Protocol

from kernelwright.tools.evaluate.timing.conditions import number, reasons
from kernelwright.tools.hardware.visible import visible_gpu_or_none
from kernelwright.tools.types.value import Value

_STAT = Path("/proc/stat")
_SHORTEST_S = 0.2  # the kernel counts in steps of 10 ms


class Reading(Value):
    """The device at one moment; None where it cannot be told."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttled_by: tuple[str, ...] = ()


class Telemetry(Protocol):
    """Reads the device between timings."""

    def read(self) -> Reading:
        """How it is now."""
        ...


class Nothing:
    """A device of which nothing can be read."""

    def read(self) -> Reading:
        """Nothing is known."""
        return Reading()


class Nvml:
    """A GPU by its management library; a reading takes about a millisecond."""

    def __init__(self) -> None:
        self._nvml, self._handle = visible_gpu_or_none()

    def read(self) -> Reading:
        """Clocks, and what slows them down."""
        nvml, handle = self._nvml, self._handle
        if nvml is None:
            return Reading()
        mask = number(nvml, handle, "nvmlDeviceGetCurrentClocksEventReasons")
        return Reading(
            sm_clock_mhz=number(nvml, handle, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_clock_mhz=number(nvml, handle, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            throttled_by=reasons(nvml, mask),
        )


def telemetry(device: str) -> Telemetry:
    """What can be read of `cuda` or `cpu`."""
    return Nvml() if device.startswith("cuda") else Nothing()


def unsteady(before: Reading, after: Reading, moved_share: float) -> str:
    """What happened between two readings that a timing between them suffers from; "" if nothing.

    Args:
        before: the device before a block of pairs.
        after: and after it.
        moved_share: by how much of itself a clock may move.
    """
    if after.throttled_by:
        return "throttled: " + ", ".join(after.throttled_by)
    for name in ("sm_clock_mhz", "memory_clock_mhz"):
        then, now = getattr(before, name), getattr(after, name)
        if then and now and abs(now - then) > moved_share * max(then, now):
            word = "SM" if name.startswith("sm") else "memory"
            return f"the {word} clock moved from {then} to {now} MHz"
    return ""


class Company:
    """How much of the machine's processors others use while this process is timed."""

    def __init__(self) -> None:
        self._busy, self._ours, self._at = _busy_s(), _ours_s(), time.monotonic()

    def share(self) -> float | None:
        """Others' share of all processors since this was made; None where it cannot be told."""
        elapsed_s, busy_s = time.monotonic() - self._at, _busy_s()
        if busy_s is None or self._busy is None or elapsed_s < _SHORTEST_S:
            return None
        theirs_s = busy_s - self._busy - (_ours_s() - self._ours)
        return max(0.0, theirs_s) / (elapsed_s * (os.cpu_count() or 1))


def _busy_s() -> float | None:
    """Seconds that all processors together were not idle; the first line of /proc/stat."""
    try:
        fields = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _ours_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
