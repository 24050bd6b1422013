"""What profiling an elite costs on a GPU, with hardware counters and without.

    python benchmarks/timing/profiling_cost.py --out benchmarks/results/h200/profiling_cost.json

Three candidates of different shape (one kernel; two kernels; a kernel and a library operator),
each profiled in turn by one executor; the first profile also starts the worker that CUPTI may slow
down. Three times: with some seconds before each profile, as a search has, whose elites come after
rounds, so that a process stands ready under ncu; at once after each other, so that none does; and
without Nsight Compute. Seconds of wall time, compiling left out, as `Profile.seconds` has them.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.profiling.nsight import VARIABLE
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.profile import measured_evidence
from kernelwright.tools.types import Candidate, Profile, Refusal, Task, TracePolicy

FILE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=-1)

def get_inputs():
    return [torch.randn(4096, 8192)]
"""
SCALE = """extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2;
    reinterpret_cast<float4*>(y)[i] = v;
}
"""
ROWS = """#include <kernelwright.cuh>
extern "C" __global__ void softmax_rows(const float* x, float* y, int columns, float factor) {
    __shared__ float part[256];
    const float* a = x + size_t(blockIdx.x) * columns;
    float top = -1e30f, sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) top = fmaxf(top, a[c] * factor);
    part[threadIdx.x] = top;
    __syncthreads();
    for (int i = 0; i < 256; ++i) top = fmaxf(top, part[i]);
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += 256) sum += expf(a[c] * factor - top);
    part[threadIdx.x] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < 256; ++i) sum += part[i];
    float* b = y + size_t(blockIdx.x) * columns;
    for (int c = threadIdx.x; c < columns; c += 256) b[c] = expf(a[c] * factor - top) / sum;
}
"""
ONE = """def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("softmax_rows", grid=rows, block=256, args=(x, y, columns, 2.0))
    return y
"""
TWO = """def forward(x):
    rows, columns = x.shape
    z = empty_like(x)
    launch("scale", grid=rows * columns // 1024, block=256, args=(x, z, rows * columns // 4))
    y = empty_like(x)
    launch("softmax_rows", grid=rows, block=256, args=(z, y, columns, 1.0))
    return y
"""
LIBRARY = """def forward(x):
    rows, columns = x.shape
    z = empty_like(x)
    launch("scale", grid=rows * columns // 1024, block=256, args=(x, z, rows * columns // 4))
    return aten.softmax(z, -1)
"""
CANDIDATES = {
    "one kernel": (ROWS, ONE),
    "two kernels": (ROWS + SCALE, TWO),
    "a kernel and a library operator": (SCALE, LIBRARY),
}


BETWEEN_S = 12.0  # a round of a quick search


async def measured(
    label: str, between_s: float, rows: list[dict[str, object]]
) -> AsyncIterator[None]:
    """The seconds of every candidate's profile, by one executor of its own, into `rows`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.py"
        path.write_text(FILE)
        executor = LocalExecutor.create("cuda", Path(folder) / "scratch")
        try:
            task = await executor.trace(path, TracePolicy())
            if isinstance(task, Refusal):
                raise SystemExit(task.sentence)
            for name, (kernel, plan) in CANDIDATES.items():
                candidate = new_candidate("cuda", kernel, plan)
                judged = await executor.evaluate(task, candidate, "screen")
                await asyncio.sleep(between_s)
                rows.append(await _row(executor, task, candidate, f"{label}, {name}"))
                rows[-1]["verdict"] = judged.verdict.value
                rows[-1]["median_ms"] = judged.median_ms
                print(json.dumps(rows[-1]), flush=True)
                yield
        finally:
            await executor.aclose()


async def _row(
    executor: LocalExecutor, task: Task, candidate: Candidate, what: str
) -> dict[str, object]:
    start = time.perf_counter()
    profile = await executor.profile(task, candidate)
    return {
        "what": what,
        "seconds": round(profile.seconds, 3),
        "seconds_around": round(time.perf_counter() - start, 3),
        **_found(profile),
    }


def _found(profile: Profile) -> dict[str, object]:
    readings = measured_evidence(profile)
    return {
        "counted_launches": len(profile.counters),
        "kernel_times_ms": {item.kernel: round(item.time_ms, 5) for item in profile.times},
        "counted_times_ms": {
            item.kernel: round(item.counted_time_ms or 0.0, 5) for item in profile.counters
        },
        "rules": len(profile.rules),
        "readings": sum(item.value is not None for item in readings),
        "missing": [f"{item.step}: {item.why}; {item.remedy}" for item in profile.missing],
    }


async def main() -> None:
    """All three, and the file, written again after every profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    told: dict[str, object] = {"goal_seconds": 6.0}
    for name, between_s in (("with_counters", BETWEEN_S), ("at_once", 0.0), ("without_ncu", 0.0)):
        if name == "without_ncu":
            os.environ[VARIABLE] = "/nonexistent/ncu"
        told[name] = rows = list[dict[str, object]]()
        async for _ in measured(name.replace("_", " "), between_s, rows):
            out.write_text(json.dumps(told, indent=1) + "\n")  # noqa: ASYNC240


asyncio.run(main())
