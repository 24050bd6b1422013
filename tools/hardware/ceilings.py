"""Measures what a device can really do, memory bandwidth and fp32 arithmetic; a task's floor by it.

The floor is the time below which no implementation of a task can go on a device: the larger of
moving every byte once and doing every operation at the highest rate the device has, tensor cores
included, so that a faster time is impossible rather than unlikely. What is not covered: algebra
that saves operations, and inputs that already lie in a cache.

What is measured errs on the high side for that: the bandwidth is the best of a copy (bytes read
plus bytes written) and a plain read, each over buffers far larger than the last-level cache, best
of several trials. A data sheet's figure stands in, and `Hardware.measured` stays False, where
nothing was measured.

A busy machine makes them too low, and a floor that is too high says "impossible" of what is not.
So one measurement is not believed: only two that were taken apart, undisturbed, and agree confirm a
ceiling (`merged`). Until then it is used with that said; and whatever comes near it later has it
measured again (`NEAR`).

Measuring uses torch and the device, so it runs in a worker. Results are kept in a file a device.
"""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernelwright.profiles.load import Hardware
from kernelwright.tools.runtime import home
from kernelwright.tools.types.measurement import BUSY_SHARE

_TRIALS = 7
_ALIKE = 0.05  # two measurements that differ by less agree
_APART = timedelta(seconds=1)
NEAR = 1.03  # what takes less than so many floors has the ceiling measured again
_GPU_BUFFER_BYTES = 2 << 30
_CPU_BUFFER_BYTES = 192 << 20


class Ceilings(BaseModel):
    """Measured peaks. `copy_gb_s` counts bytes read plus bytes written.

    Attributes:
        at: When they were last measured; None in files of earlier versions.
        times: How often they were measured and found alike.
        spread: By what share of the highest bandwidth these measurements differed; None for one.
        others_share: What share of the processors others used meanwhile, at the last one; of a
            GPU 1 where other processes computed on it. None where that cannot be told.
        confirmed: Whether two of them, taken apart and undisturbed, agree.
    """

    model_config = ConfigDict(frozen=True)

    copy_gb_s: float
    read_gb_s: float
    fp32_tflops: float
    torch_version: str
    at: datetime | None = None
    times: int = 1
    spread: float | None = None
    others_share: float | None = None
    confirmed: bool = False

    @property
    def bandwidth_gb_s(self) -> float:
        """The higher of both bandwidths."""
        return max(self.copy_gb_s, self.read_gb_s)

    @property
    def quiet(self) -> bool:
        """Whether nobody disturbed the last measurement, as far as that can be told."""
        return (self.others_share or 0.0) <= BUSY_SHARE

    @property
    def words(self) -> str:
        """How they were found, for whoever reads a floor."""
        when = f", last on {self.at:%Y-%m-%d at %H:%M} UTC" if self.at else ""
        alike = f", alike within {self.spread:.1%}" if self.spread is not None else ""
        if self.confirmed:
            return f"measured {self.times} times on this device{when}{alike}"
        why = "" if self.quiet else ", while others kept the device busy"
        if self.spread is not None and self.spread > _ALIKE:
            apart = f", {self.spread:.0%} apart from the measurement before"
            return f"measured on this device{when}{apart}{why}; not confirmed yet"
        often = "once" if self.times == 1 else f"{self.times} times"
        return f"measured {often} on this device{when}{why}; not confirmed yet"


def merged(earlier: Ceilings | None, later: Ceilings) -> Ceilings:
    """What two measurements say together: the higher figures, confirmed where they agree.

    Load can only lower a figure, so of two that disagree the higher one is used, and waits for
    another that agrees with it. Nothing is confirmed by two that were taken in the same moment.
    """
    if earlier is None or earlier.torch_version != later.torch_version:
        return later
    high = max(earlier.bandwidth_gb_s, later.bandwidth_gb_s)
    spread = 1.0 - min(earlier.bandwidth_gb_s, later.bandwidth_gb_s) / high
    apart = earlier.at is None or later.at is None or later.at - earlier.at >= _APART
    update: dict[str, object] = {
        "copy_gb_s": max(earlier.copy_gb_s, later.copy_gb_s),
        "read_gb_s": max(earlier.read_gb_s, later.read_gb_s),
        "fp32_tflops": max(earlier.fp32_tflops, later.fp32_tflops),
    }
    if spread > _ALIKE:
        # A lower one says nothing against a confirmed ceiling; a higher one that it was too low.
        holds = earlier.confirmed and earlier.bandwidth_gb_s == high
        kept = earlier if holds else later
        return kept.model_copy(update=update if holds else update | {"spread": spread})
    return later.model_copy(
        update=update
        | {
            "times": earlier.times + 1,
            "spread": max(spread, earlier.spread or 0.0) if earlier.confirmed else spread,
            "confirmed": earlier.confirmed or (apart and earlier.quiet and later.quiet),
        }
    )


def stored_ceilings(hardware: Hardware) -> Ceilings | None:
    """What earlier measurements on this device said, or None."""
    try:
        return Ceilings.model_validate_json(_path(hardware).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def cached_ceilings(hardware: Hardware) -> Hardware | None:
    """The hardware with ceilings measured earlier on it, or None."""
    stored = stored_ceilings(hardware)
    return _with(hardware, stored) if stored else None


def measure_ceilings(hardware: Hardware, *, fresh: bool = False) -> Hardware:
    """The hardware with measured ceilings; measures only when no earlier result is found."""
    if not fresh and (known := cached_ceilings(hardware)) is not None:
        return known
    return keep_ceilings(hardware, peaks(hardware))


def keep_ceilings(hardware: Hardware, measured: Ceilings) -> Hardware:
    """The hardware with these and what is stored together, which is stored from now on."""
    path = _path(hardware)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = merged(stored_ceilings(hardware), measured)
    # Two programs may have measured at the same time: each moves its own file there.
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(found.model_dump_json(), encoding="utf-8")
    scratch.replace(path)
    return _with(hardware, found)


def _with(hardware: Hardware, ceilings: Ceilings) -> Hardware:
    return hardware.model_copy(
        update={
            "bandwidth_gb_s": ceilings.bandwidth_gb_s,
            "fp32_tflops": max(hardware.fp32_tflops, ceilings.fp32_tflops),
            "measured": True,
            "confirmed": ceilings.confirmed,
            "measured_how": ceilings.words,
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
        at=datetime.now(UTC),
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


def floor_ms(bytes_moved: int, flops: int, hardware: Hardware) -> float:
    """Milliseconds that `bytes_moved` and `flops` take at least on `hardware`."""
    memory_s = bytes_moved / (hardware.bandwidth_gb_s * 1e9)
    rate_tflops = max(hardware.fp32_tflops, hardware.tensor_tflops or 0.0)
    return max(memory_s, flops / (rate_tflops * 1e12)) * 1e3


def floor_words(hardware: Hardware) -> str:
    """Where a floor comes from: how it was measured, or that a data sheet says so."""
    if not hardware.measured:
        return "from a data sheet, not measured on this device"
    return hardware.measured_how or "measured on this device, not confirmed"
