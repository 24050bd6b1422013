"""Measures what a device can really do: memory bandwidth and fp32 arithmetic.

The floor of a task is worked out from these, so they err on the high side: the bandwidth is the
best of a copy (bytes read plus bytes written) and a plain read, each over buffers far larger
than the last-level cache, best of several trials. A data sheet's figure stands in, and
`Hardware.measured` stays False, where nothing was measured.

Uses torch and the device, so it runs in a worker. Results are kept in a file a device, as they
do not change from run to run.
"""

import json
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernelwright.profiles.load import Hardware
from kernelwright.tools.runtime import home

_TRIALS = 7
_GPU_BUFFER_BYTES = 2 << 30
_CPU_BUFFER_BYTES = 192 << 20


class Ceilings(BaseModel):
    """Measured peaks. `copy_gb_s` counts bytes read plus bytes written."""

    model_config = ConfigDict(frozen=True)

    copy_gb_s: float
    read_gb_s: float
    fp32_tflops: float
    torch_version: str


def cached_ceilings(hardware: Hardware) -> Hardware | None:
    """The hardware with ceilings measured earlier on it, or None."""
    try:
        stored = Ceilings.model_validate_json(_path(hardware).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return _with(hardware, stored)


def measure_ceilings(hardware: Hardware, *, fresh: bool = False) -> Hardware:
    """The hardware with measured ceilings; measures only when no earlier result is found."""
    if not fresh and (known := cached_ceilings(hardware)) is not None:
        return known
    return keep_ceilings(hardware, peaks(hardware))


def keep_ceilings(hardware: Hardware, measured: Ceilings) -> Hardware:
    """The hardware with these ceilings, which `cached_ceilings` finds from now on."""
    path = _path(hardware)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two programs may have measured at the same time: each moves its own file there.
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(measured.model_dump()), encoding="utf-8")
    scratch.replace(path)
    return _with(hardware, measured)


def _with(hardware: Hardware, ceilings: Ceilings) -> Hardware:
    bandwidth = max(ceilings.copy_gb_s, ceilings.read_gb_s)
    return hardware.model_copy(
        update={
            "bandwidth_gb_s": bandwidth,
            "fp32_tflops": max(hardware.fp32_tflops, ceilings.fp32_tflops),
            "measured": True,
            "source": f"measured: copy {ceilings.copy_gb_s:.0f} GB/s, read "
            f"{ceilings.read_gb_s:.0f} GB/s, fp32 product {ceilings.fp32_tflops:.2f} TFLOP/s",
        }
    )


def _path(hardware: Hardware) -> Path:
    key = f"{hardware.name}|{hardware.cores}|{hardware.sm_count}|{hardware.memory_gib:.0f}"
    return home() / "ceilings" / f"{sha256(key.encode()).hexdigest()[:16]}.json"


def peaks(hardware: Hardware) -> Ceilings:
    """What the device can really do, measured here and now; keeps nothing."""
    import torch

    device = "cuda" if hardware.kind == "cuda" else "cpu"
    elements = (_GPU_BUFFER_BYTES if device == "cuda" else _CPU_BUFFER_BYTES) // 4
    source = torch.rand(elements, device=device)
    target = torch.empty_like(source)
    side = 8192 if device == "cuda" else 1024
    left, right = torch.rand(side, side, device=device), torch.rand(side, side, device=device)
    clock = _gpu_seconds if device == "cuda" else _cpu_seconds
    copy_s = clock(lambda: target.copy_(source))
    read_s = clock(lambda: source.max())
    product_s = clock(lambda: torch.mm(left, right))
    return Ceilings(
        copy_gb_s=2 * source.nbytes / copy_s / 1e9,
        read_gb_s=source.nbytes / read_s / 1e9,
        fp32_tflops=2 * side**3 / product_s / 1e12,
        torch_version=torch.__version__,
    )


def _cpu_seconds(work: Callable[[], object]) -> float:
    work()
    return min(_once(work) for _ in range(_TRIALS))


def _once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _gpu_seconds(work: Callable[[], object]) -> float:
    """Best of several event-timed runs, after enough work for the clocks to rise from idle."""
    import torch

    deadline = time.perf_counter() + 0.3
    while time.perf_counter() < deadline:
        work()
        torch.cuda.synchronize()
    best = float("inf")
    for _ in range(_TRIALS):
        start, stop = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        best = min(best, start.elapsed_time(stop) / 1e3)
    return best
