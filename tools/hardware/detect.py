"""Chooses the device to optimise for, GPU or CPU, and describes it without a CUDA context.

A GPU is found through NVML and described by the driver's attributes; a profile of the same name
contributes what the driver does not tell (peak rates). NVML numbers every GPU of the machine; CUDA
numbers those that `CUDA_VISIBLE_DEVICES` names, in its order or in `CUDA_DEVICE_ORDER`'s, and its
first one is taken: so the driver is asked who that is. A CPU is described from what Linux reports;
a generic profile fills what it does not. Not covered: MIG slices.
"""

import os
import uuid
from pathlib import Path
from types import ModuleType
from typing import Literal

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.types import EnvironmentLacksError


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


# Peak bandwidth and rate of a GPU that has no profile: DDR moves two words a clock, and every
# multiprocessor since Ampere's GA10x retires 128 fused multiply-adds a clock.
_TRANSFERS_PER_CLOCK = 2
_FMA_PER_SM_AND_CLOCK = 128
_LONGEST_NAME = 128
_ATTRIBUTES = (
    "COMPUTE_CAPABILITY_MAJOR",
    "COMPUTE_CAPABILITY_MINOR",
    "MULTIPROCESSOR_COUNT",
    "L2_CACHE_SIZE",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "MAX_THREADS_PER_MULTIPROCESSOR",
    "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "CLOCK_RATE",
    "MEMORY_CLOCK_RATE",
    "GLOBAL_MEMORY_BUS_WIDTH",
)
_ARCHITECTURE_SPECIFIC = {(9, 0), (10, 0), (10, 3), (12, 0)}


def detect_gpu() -> tuple[Hardware | None, str]:
    """CUDA's first GPU, or None and why there is none, in a few words."""
    try:
        _ask_nvml()
    except Exception as error:  # NVML has one exception class per return code
        return None, f"NVML says {str(error) or type(error).__name__!r}"
    try:
        return _describe(), ""
    except RuntimeError as error:
        return None, str(error)


def _ask_nvml() -> None:
    """Raise where no device can be: NVML says why in better words than the driver."""
    import pynvml

    pynvml.nvmlInit()
    try:
        if pynvml.nvmlDeviceGetCount() == 0:
            raise RuntimeError("no device")
    finally:
        pynvml.nvmlShutdown()


def _describe() -> Hardware:
    """The driver's attributes over the profile of that name, or over datasheet arithmetic."""
    name, read = _attributes()
    capability = (read["COMPUTE_CAPABILITY_MAJOR"], read["COMPUTE_CAPABILITY_MINOR"])
    try:
        base = hardware_profile(name).model_dump()
    except ValueError:
        base = _from_clocks(read)
    base |= {
        "name": name,
        "architecture": architecture_of(*capability),
        "sm_count": read["MULTIPROCESSOR_COUNT"],
        "shared_kib_per_sm": read["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"] // 1024,
        "shared_kib_per_block": read["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"] // 1024,
        "registers_per_sm": read["MAX_REGISTERS_PER_MULTIPROCESSOR"],
        "threads_per_sm": read["MAX_THREADS_PER_MULTIPROCESSOR"],
        "blocks_per_sm": read["MAX_BLOCKS_PER_MULTIPROCESSOR"],
        "cache_mib": read["L2_CACHE_SIZE"] / 2**20,
        "memory_gib": read["total_bytes"] / 2**30,
    }
    return Hardware.model_validate(base)


def architecture_of(major: int, minor: int) -> str:
    """What the device compiler is asked for: `sm_90a` where the specific variant exists."""
    suffix = "a" if (major, minor) in _ARCHITECTURE_SPECIFIC else ""
    return f"sm_{major}{minor}{suffix}"


def _attributes() -> tuple[str, dict[str, int]]:
    """The device's name and what the driver counts of it."""
    from cuda.bindings import driver

    def ask(result: tuple[object, ...], what: str) -> object:
        if result[0] != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the CUDA driver answered {result[0]!s} to {what}")
        return result[1] if len(result) > 1 else None

    ask(driver.cuInit(0), "cuInit")
    device = ask(driver.cuDeviceGet(0), "cuDeviceGet")
    name = ask(driver.cuDeviceGetName(_LONGEST_NAME, device), "cuDeviceGetName")
    prefix = "CU_DEVICE_ATTRIBUTE_"
    read: dict[str, int] = {}
    for key in _ATTRIBUTES:
        attribute = getattr(driver.CUdevice_attribute, prefix + key)
        read[key] = int(str(ask(driver.cuDeviceGetAttribute(attribute, device), key)))
    read["total_bytes"] = int(str(ask(driver.cuDeviceTotalMem(device), "cuDeviceTotalMem")))
    assert isinstance(name, bytes)
    return name.split(b"\0")[0].decode(errors="replace"), read


def _from_clocks(read: dict[str, int]) -> dict[str, object]:
    bytes_per_clock = _TRANSFERS_PER_CLOCK * read["GLOBAL_MEMORY_BUS_WIDTH"] / 8
    flops_per_clock = 2 * _FMA_PER_SM_AND_CLOCK * read["MULTIPROCESSOR_COUNT"]
    return {
        "kind": "cuda",
        "source": "clocks and widths reported by the driver",
        "bandwidth_gb_s": max(bytes_per_clock * read["MEMORY_CLOCK_RATE"] / 1e6, 1.0),
        "fp32_tflops": flops_per_clock * read["CLOCK_RATE"] / 1e9,
        "cluster_size": 16 if read["COMPUTE_CAPABILITY_MAJOR"] in (9, 10) else 1,
    }


_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")


def detect_cpu() -> Hardware:
    """The CPU this process may use. Rates stay assumed until `measure_ceilings` replaces them."""
    base = hardware_profile("cpu")
    fields = _cpuinfo()
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    cores = usable_cores()
    simd_bits = simd_width_bits(flags)
    scale = cores / (base.cores or 1) * simd_bits / (base.simd_bits or simd_bits)
    caches = _cache_kib()
    known = {
        "name": fields.get("model name", base.name),
        "source": "Linux: /proc/cpuinfo and sysfs; rates assumed until measured",
        "aliases": (),
        "cores": cores,
        "simd_bits": simd_bits,
        "l1_kib_per_core": caches.get(1, base.l1_kib_per_core),
        "l2_kib_per_core": caches.get(2, base.l2_kib_per_core),
        "cache_mib": max(caches.get(3, 0) or caches.get(2, 0), 256) / 1024,
        "memory_gib": _memory_gib() or base.memory_gib,
        "fp32_tflops": base.fp32_tflops * scale,
    }
    return base.model_copy(update=known)


def usable_cores() -> int:
    """Physical cores among those this process may run on: what torch uses for its threads."""
    allowed = os.sched_getaffinity(0)
    siblings = {_text(_topology(cpu, "thread_siblings_list")) or str(cpu) for cpu in allowed}
    return max(1, len(siblings))


def simd_width_bits(flags: set[str]) -> int:
    """Width of the widest vector unit that the flags of /proc/cpuinfo name."""
    if "avx512f" in flags:
        return 512
    return 256 if "avx2" in flags or "avx" in flags else 128


def _topology(cpu: int, name: str) -> Path:
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/{name}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _cpuinfo() -> dict[str, str]:
    """The first processor's fields."""
    first = _text(_CPUINFO).split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _cache_kib() -> dict[int, int]:
    """Level -> size in KiB of the data or unified cache that the first core sees."""
    sizes: dict[int, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        if _text(index / "type") == "Instruction":
            continue
        size = _text(index / "size")
        if size.endswith(("K", "M")) and size[:-1].isdigit():
            factor = 1024 if size.endswith("M") else 1
            sizes[int(_text(index / "level") or 0)] = int(size[:-1]) * factor
    return sizes


def _memory_gib() -> float | None:
    """Memory this process may use: a control group's limit counts, where there is one."""
    total = None
    for line in _text(_MEMINFO).splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) / 2**20
    limit = _text(_CGROUP_MEMORY)
    if limit.isdigit():
        total = min(total or float("inf"), int(limit) / 2**30)
    return total


Target = Literal["auto", "cuda", "cpu"]


def detect(target: str = "auto") -> Hardware:
    """The device for `auto` (a GPU if there is one), `cuda` or `cpu`.

    Raises:
        ValueError: the target is none of the three.
        EnvironmentLacksError: `cuda` was asked for and no GPU answers.
    """
    if target not in ("auto", "cuda", "cpu"):
        raise ValueError(f"unknown target {target!r}; known are auto, cuda, cpu")
    if target == "cpu":
        return detect_cpu()
    gpu, why_not = detect_gpu()
    if gpu is not None:
        return gpu
    if target == "cuda":
        raise EnvironmentLacksError(f"no CUDA device can be used: {why_not}; try --target cpu")
    return detect_cpu()
