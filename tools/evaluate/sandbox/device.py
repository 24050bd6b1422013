"""The GPU as the parent sees it through NVML: at rest after a worker was lost, company or alone.

A worker cannot tell: behind a wall with processes of its own, those of others do not exist.
"""

import asyncio
import time
from collections.abc import Iterable

from kernelwright.tools.hardware.visible import visible_gpu_or_none


async def idle(within_s: float) -> bool:
    """Wait until the device does nothing; False when it still worked then or cannot be asked."""
    nvml, handle = visible_gpu_or_none()
    if nvml is None:
        return False
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            # A mean over the last moments: a zero means that nothing ran for a while.
            if nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0:
                return True
        except nvml.NVMLError:
            return False
        await asyncio.sleep(0.05)
    return False


def company(ours: Iterable[int], trees: int = 1) -> int | None:
    """How many processes compute on the device beside ours; None when NVML does not say.

    Args:
        ours: every process of ours that may.
        trees: how many workers these belong to.
    """
    nvml, handle = visible_gpu_or_none()
    if nvml is None:
        return None
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return None
    return strangers((int(process.pid) for process in running), ours, trees)


def strangers(running: Iterable[int], ours: Iterable[int], trees: int = 1) -> int:
    """How many of the running are not ours; a container may list ours by other numbers."""
    listed, known = set(running), set(ours)
    unknown = len(listed - known)
    return unknown if listed & known else max(unknown - trees, 0)
