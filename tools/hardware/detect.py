"""Chooses the device to optimise for, GPU or CPU, and describes it.

A GPU is found through NVML and described by the driver's attributes; a profile of the same name
contributes what the driver does not tell (peak rates). Of several GPUs CUDA's first one is taken,
which `CUDA_VISIBLE_DEVICES` chooses. A CPU is described from what Linux reports; a generic profile
fills what it does not. Not covered: MIG slices.
"""

import os
from pathlib import Path
from typing import Literal

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.hardware.gpu import detect_gpu
from kernelwright.tools.types import EnvironmentLacksError

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
