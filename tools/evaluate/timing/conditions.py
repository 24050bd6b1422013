"""What the device was doing around a timing: clocks, heat, throttling, company."""

import os
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

import torch

from kernelwright.tools.hardware.visible import visible_gpu_or_none
from kernelwright.tools.types import Conditions

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
