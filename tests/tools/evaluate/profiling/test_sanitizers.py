"""What compute-sanitizer prints becomes a verdict; on a GPU it is asked about real kernels."""

import shutil
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.profiling.sanitizers import device_reading
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Baseline, Baselines, Task, TracePolicy, Verdict

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
INVALID = """========= COMPUTE-SANITIZER
========= Invalid __shared__ read of size 4 bytes
=========     at sums+0x1a0
========= ERROR SUMMARY: 32 errors
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sums+0x90 and Read access at sums+0xd0
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


@pytest.mark.parametrize(
    ("tool", "output", "words", "verdict"),
    [
        ("memcheck", CLEAN, "", None),
        ("memcheck", INVALID, "Invalid __shared__ read of size 4 bytes", Verdict.OUT_OF_BOUNDS),
        ("racecheck", RACE, "Error: Race reported between Write", Verdict.NONDETERMINISTIC),
        ("racecheck", CLEAN, "", None),
    ],
)
def test_a_finding_is_the_tools_own_line(
    tool: str, output: str, words: str, verdict: Verdict | None
) -> None:
    found = device_reading(tool, output)
    assert not found.missing
    assert found.words.startswith(words)
    assert bool(found.words) == bool(words)
    assert verdict is None or found.verdict is verdict


def test_a_tool_that_came_to_no_end_verified_nothing() -> None:
    assert device_reading("memcheck", "========= Error: no device").missing == "Error: no device"
    assert device_reading("initcheck", "").missing == "it said nothing"


ROWS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)

def get_inputs():
    return [torch.randn(64, 256)]
"""
OTHERS = ("compile", "graph", "max-autotune")
PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty([rows], dtype=x.dtype)
    launch("sums", grid=rows, block=256, args=(x, y))
    return y
"""
KERNEL = """
extern "C" __global__ void sums(const float* x, float* y) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        %s
    }
    if (t == 0) y[blockIdx.x] = part[0];
}
"""


@pytest.mark.gpu
@pytest.mark.skipif(
    not (
        shutil.which("compute-sanitizer") or Path("/usr/local/cuda/bin/compute-sanitizer").exists()
    ),
    reason="needs compute-sanitizer",
)
@pytest.mark.asyncio
async def test_a_race_that_the_right_answer_hides_is_found(tmp_path: Path) -> None:
    file = tmp_path / "sums.py"
    file.write_text(ROWS, encoding="utf-8")
    executor = LocalExecutor.create("cuda", tmp_path / "scratch", rules=Rules(certify_s=0.2))
    try:
        task = await executor.trace(file, TracePolicy())
        assert isinstance(task, Task)
        known = await executor.baselines(task, eager_only=True)
        assert isinstance(known, Baselines)
        # What the others take shows nothing here.
        others = (Baseline(name=name, failure="left out") for name in OTHERS)
        executor.remember(task, Baselines(items=(*known.items, *others)))
        honest = new_candidate("cuda", KERNEL % "__syncthreads();", PLAN)
        found = (await executor.evaluate(task, honest, "certify")).verification
        assert found.verdict is Verdict.CORRECT, found.reason
        # Where it does not work behind the wall it looks outside of it, and that is said.
        unseen = [words for words in found.not_verified if "check:" in words]
        assert not [words for words in unseen if "outside the wall" not in words]
        racing = new_candidate("cuda", KERNEL % "if (half != 64) __syncthreads();", PLAN)
        found = (await executor.evaluate(task, racing, "certify")).verification
        assert found.verdict in (Verdict.NONDETERMINISTIC, Verdict.WRONG_RESULT), found.reason
    finally:
        await executor.aclose()
