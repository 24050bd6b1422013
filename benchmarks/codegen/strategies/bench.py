"""Times callables on the device, draws inputs, and holds outputs against their truth."""

import json
import statistics
from collections.abc import Callable
from math import prod
from pathlib import Path

import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.types import DType
from strategies.loops import Problem

# The device's cycles, 0.15 ms of them, in which the host asks for everything that is timed.
_AHEAD_CYCLES = 300_000
# 10 ms, for a whole model's launches.
MODEL_AHEAD_CYCLES = 20_000_000
# Expected values are kept between candidates where they fit beside the data.
_KEPT_TRUTH_BYTES = 16 << 30


class Bench:
    """Times callables with a flushed L2, and writes down what was found."""

    def __init__(self, path: Path, hardware: Hardware, *, goes_on: bool = False):
        self._path, self.hardware = path, hardware
        self.counted = False
        self._flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
        if not goes_on:
            path.write_text("")

    def write(self, **entry: object) -> None:
        """Append one entry at once."""
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def median_ms(
        self, job: Callable[[], object], samples: int = 7, ahead: int = _AHEAD_CYCLES
    ) -> float:
        """Median time of the device, with the host ahead; a slow job gets fewer samples."""
        times = []
        for _ in range(samples):
            torch.cuda._sleep(ahead)
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = job()
            end.record()
            end.synchronize()
            del result
            times.append(start.elapsed_time(end))
            if sum(times) > 200:
                break
        return statistics.median(times)

    def copy_gb_s(self) -> float:
        """Bytes read plus written a second by a large copy."""
        source = torch.randn(1 << 29, device="cuda")
        into = torch.empty_like(source)
        into.copy_(source)
        return 2 * source.numel() * 4 / self.median_ms(lambda: into.copy_(source)) / 1e6


def kernels_us(job: Callable[[], object]) -> dict[str, float]:
    """Microseconds of each kernel of one call, as CUPTI saw it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        job()
        torch.cuda.synchronize()
    return {one.key: round(one.self_device_time_total, 1) for one in seen.key_averages()}


def drawn(problem: Problem) -> dict[str, torch.Tensor]:
    """Random inputs on the device."""
    torch.manual_seed(7)
    made = {}
    for buffer in problem.program.buffers:
        if buffer.role != "input":
            continue
        if buffer.dtype is DType.INT64:
            high = problem.highs[buffer.name]
            made[buffer.name] = torch.randint(0, high, buffer.shape, device="cuda")
        else:
            dtype = getattr(torch, buffer.dtype.value)
            made[buffer.name] = torch.randn(buffer.shape, device="cuda").to(dtype)
    return made


class Expected:
    """The truth of a problem on its inputs, worked out once where it fits."""

    def __init__(self, problem: Problem, data: dict[str, torch.Tensor]):
        self._problem, self._data = problem, data
        written = sum(prod(b.shape) for b in problem.program.buffers if b.role == "output")
        self._kept = list(problem.truth(data)) if 8 * written <= _KEPT_TRUTH_BYTES else None

    def worst_error(self, outputs: dict[str, torch.Tensor]) -> float:
        """Largest error over the largest true value; for integers, the share that differs."""
        worst = 0.0
        for name, start, true in self._kept or self._problem.truth(self._data):
            got = outputs[name].reshape(-1)[start : start + true.numel()]
            if not got.is_floating_point():
                worst = max(worst, (got != true.view(-1)).double().mean().item())
                continue
            gap = (got.double() - true.view(-1)).abs().max() / true.abs().max().clamp_min(1e-30)
            worst = max(worst, gap.item() if gap.isfinite() else float("inf"))
        return worst
