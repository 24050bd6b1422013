"""The GPU that programs started here use, as NVML knows it.

NVML numbers every GPU of the machine; CUDA numbers those that `CUDA_VISIBLE_DEVICES` names, in its
order or in `CUDA_DEVICE_ORDER`'s. So the driver is asked who its first one is. No context is made.
"""

import uuid
from types import ModuleType


def visible_gpu() -> tuple[ModuleType, object]:
    """NVML, initialised, and its handle of CUDA's first device; of a slice (MIG) the slice's.

    Raises:
        Exception: there is no driver, or no device for it; NVML has a class per return code.
    """
    import pynvml

    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    if count == 0:
        raise RuntimeError("no device")
    if count == 1:
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
    name = _first_uuid()
    try:
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{name}")
    except pynvml.NVMLError:
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{name}")


def visible_gpu_or_none() -> tuple[ModuleType | None, object]:
    """The same, and nothing where there is no driver to ask."""
    try:
        return visible_gpu()
    except Exception:  # NVML has one exception class per return code
        return None, None


def visible_gpus() -> int:
    """How many CUDA can use here; 0 where there is no driver to ask."""
    try:
        from cuda.bindings import driver

        answer = driver.cuInit(0)
        if not answer[0]:
            answer = driver.cuDeviceGetCount()
        return 0 if answer[0] else int(answer[1])
    except Exception:  # the driver's library is missing
        return 0


def _first_uuid() -> uuid.UUID:
    from cuda.bindings import driver

    answer = driver.cuInit(0)
    if not answer[0]:
        answer = driver.cuDeviceGet(0)
    if not answer[0]:
        answer = driver.cuDeviceGetUuid(answer[1])
    if answer[0]:
        raise RuntimeError(f"the CUDA driver answered {answer[0]!s} when asked for its device")
    return uuid.UUID(bytes=answer[1].bytes)
