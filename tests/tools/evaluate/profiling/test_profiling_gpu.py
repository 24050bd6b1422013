"""Profiling on a real device: CUPTI's records, and Nsight Compute where it may read counters."""

import subprocess

import pytest
import pytest_asyncio

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.profiling.nsight import VARIABLE, trial_command
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.profile import measured_evidence
from kernelwright.tools.types import Task, TracePolicy

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

FILE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.randn(2048, 2048)]
"""
# Stores a column at a time: 4 of the 32 bytes of each sector.
SCATTER = """extern "C" __global__ void scatter(const float* x, float* y, int n) {
    int row = blockIdx.x, column = threadIdx.x + blockIdx.y * blockDim.x;
    y[size_t(column) * n + row] = x[size_t(row) * n + column];
}
"""
PLAN = """
def forward(x):
    n = x.shape[0]
    y = empty_like(x)
    launch("scatter", grid=(n, n // 256), block=256, args=(x, y, n))
    return aten.softmax(y, -1)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(tmp_path_factory):
    """One for all, as its processes take seconds to start."""
    made = LocalExecutor.create("cuda", tmp_path_factory.mktemp("scratch"))
    yield made
    await made.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def task(executor, tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "task.py"
    path.write_text(FILE)
    found = await executor.read(path, TracePolicy())
    assert isinstance(found, Task)
    return found


async def test_without_ncu_times_are_there_and_counters_say_why_not(executor, task, monkeypatch):
    # The first one, before anything stands ready under the ncu that is here.
    monkeypatch.setenv(VARIABLE, "/nonexistent/ncu")
    profile = await executor.profile(task, new_candidate("cuda", SCATTER, PLAN))
    assert profile.times
    assert profile.counters == ()
    (missing,) = profile.missing
    assert "/nonexistent/ncu" in missing.why


async def test_every_launch_of_a_call_is_timed_and_counted(executor, task):
    profile = await executor.profile(task, new_candidate("cuda", SCATTER, PLAN))
    times = {item.kernel: item for item in profile.times}
    assert times["scatter"].own
    assert times["scatter"].block_threads == 256
    assert profile.launches == 2
    assert sum(item.share for item in profile.times) == pytest.approx(1.0)
    if any(item.step == "counters" for item in profile.missing):
        pytest.skip(profile.missing[0].why)
    scatter, softmax = profile.counters
    assert (scatter.own, softmax.own) == (True, False)
    assert scatter.store_bytes_per_sector == pytest.approx(4.0)
    assert scatter.load_bytes_per_sector == pytest.approx(32.0)
    assert scatter.dram_read_bytes == pytest.approx(2048 * 2048 * 4, rel=0.2)
    assert scatter.counted_time_ms == pytest.approx(times["scatter"].time_ms, rel=0.5)
    assert profile.rules
    readings = {item.name: item.value for item in measured_evidence(profile)}
    assert readings["dram_traffic"] > 2 * 2048 * 2048 * 4
    assert 0 < readings["scatter.achieved_occupancy"] <= 1


async def test_counters_are_read_behind_the_wall_or_every_one_says_otherwise(executor, task):
    if not executor.isolation.is_a_wall:
        pytest.skip(executor.isolation.words)
    profile = await executor.profile(task, new_candidate("cuda", SCATTER, PLAN))
    if not profile.counters:
        pytest.skip(profile.missing[0].why)
    counted = [item for item in measured_evidence(profile) if item.name == "scatter.dram_read"]
    assert counted
    assert all(bool(profile.outside) is ("outside the wall" in item.source) for item in counted)


def test_our_own_kernel_is_launched_without_torch():
    done = subprocess.run(trial_command(60), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_launch_that_fails_costs_only_its_profile(executor, task):
    wild = SCATTER.replace("size_t(column) * n", "size_t(column) * n * 1000000")
    broken = await executor.profile(task, new_candidate("cuda", wild, PLAN))
    assert {item.step for item in broken.missing} == {"counters", "times"}
    again = await executor.profile(task, new_candidate("cuda", SCATTER, PLAN))
    assert again.times
