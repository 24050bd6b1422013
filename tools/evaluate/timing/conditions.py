"""What the machine was doing around a timing: clocks, heat, throttling, company.

`conditions` are noted beside a time. `telemetry` tells whether the machine held still while it was
timed. On a GPU NVML is read between blocks of pairs, outside every timed span: a block in which a
clock moved or the device held itself back is taken again. On a CPU the kernel's own accounts tell
what share of the processors other processes used meanwhile; clocks are not read there.
Not covered: what another process does to the device's memory traffic between two readings.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Protocol

import torch

from kernelwright.tools.hardware.detect import visible_gpu_or_none
from kernelwright.tools.types import Conditions
from kernelwright.tools.types.value import Value

_HARMLESS = {"gpu_idle", "applications_clocks_setting", "none"}
NOTHING: Mapping[str, float | int | None] = MappingProxyType({})


def conditions(
    device: str,
    *,
    flushed: bool,
    sets: int,
    notes: tuple[str, ...] = (),
    seen: Mapping[str, float | int | None] = NOTHING,
) -> Conditions:
    """Read them now; what cannot be read is None.

    Args:
        device: `cuda` or `cpu`.
        flushed: whether a buffer evicts the caches before every call.
        sets: of inputs that rotate.
        notes: in words.
        seen: what was observed during the timing: fields of `Conditions` by name.
    """
    common = {"l2_flushed": flushed, "input_sets": sets, "notes": notes, **seen}
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name()
        return Conditions.model_validate({"device": name, **common, **_gpu()})
    return Conditions.model_validate(
        {
            "device": "cpu",
            **common,
            "threads": torch.get_num_threads(),
            "load_average": os.getloadavg()[0],
        }
    )


def sm_clock_share() -> float | None:
    """Current clock of the multiprocessors over the highest possible; None when unreadable."""
    nvml, handle = visible_gpu_or_none()
    if nvml is None:
        return None
    try:
        now = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        most = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    except nvml.NVMLError:
        return None
    return float(now) / float(most)


def number(nvml: ModuleType, handle: object, name: str, *arguments: object) -> int | None:
    """What a function of NVML answers; None where it does not."""
    try:
        return int(getattr(nvml, name)(handle, *arguments))
    except (nvml.NVMLError, AttributeError):
        return None


def _gpu() -> dict[str, object]:
    nvml, handle = visible_gpu_or_none()
    if nvml is None:
        return {}
    milliwatts = number(nvml, handle, "nvmlDeviceGetPowerUsage")
    mask = number(nvml, handle, "nvmlDeviceGetCurrentClocksEventReasons")
    return {
        "sm_clock_mhz": number(nvml, handle, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "sm_clock_most_mhz": number(nvml, handle, "nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": number(nvml, handle, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "temperature_c": number(
            nvml, handle, "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU
        ),
        "power_w": None if milliwatts is None else milliwatts / 1000,
        "throttle_reasons": reasons(nvml, mask),
        "other_processes": _others(nvml, handle),
    }


def _others(nvml: ModuleType, handle: object) -> int | None:
    """How many other processes compute on the device.

    One of those listed is this one, whose context is open: in a namespace of its own its number
    is another than the host's, so it is not looked for by number.
    """
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return None
    return max(0, len(running) - 1)


def reasons(nvml: ModuleType, mask: int | None) -> tuple[str, ...]:
    """The reasons in the mask that slow the device down, in words."""
    if not mask:
        return ()
    prefix = "nvmlClocksEventReason"
    named = {
        _snake(key.removeprefix(prefix)): getattr(nvml, key)
        for key in dir(nvml)
        if key.startswith(prefix) and isinstance(getattr(nvml, key), int)
    }
    active = {word for word, bit in named.items() if bit and mask & bit == bit}
    return tuple(sorted(active - _HARMLESS - {"all"}))


def _snake(words: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in words).lstrip("_")


_STAT = Path("/proc/stat")
_SHORTEST_S = 0.2  # the kernel counts in steps of 10 ms


class TelemetryReading(Value):
    """The device at one moment; None where it cannot be told."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttled_by: tuple[str, ...] = ()


class Telemetry(Protocol):
    """Reads the device between timings."""

    def read(self) -> TelemetryReading:
        """How it is now."""
        ...


class Nothing:
    """A device of which nothing can be read."""

    def read(self) -> TelemetryReading:
        """Nothing is known."""
        return TelemetryReading()


class Nvml:
    """A GPU by its management library; a reading takes about a millisecond."""

    def __init__(self) -> None:
        self._nvml, self._handle = visible_gpu_or_none()

    def read(self) -> TelemetryReading:
        """Clocks, and what slows them down."""
        nvml, handle = self._nvml, self._handle
        if nvml is None:
            return TelemetryReading()
        mask = number(nvml, handle, "nvmlDeviceGetCurrentClocksEventReasons")
        return TelemetryReading(
            sm_clock_mhz=number(nvml, handle, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_clock_mhz=number(nvml, handle, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            throttled_by=reasons(nvml, mask),
        )


def telemetry(device: str) -> Telemetry:
    """What can be read of `cuda` or `cpu`."""
    return Nvml() if device.startswith("cuda") else Nothing()


def unsteady(before: TelemetryReading, after: TelemetryReading, moved_share: float) -> str:
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
