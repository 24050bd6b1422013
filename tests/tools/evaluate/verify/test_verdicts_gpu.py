"""The same claims as `test_verdicts`, on a GPU, and those that only a GPU can break."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Candidate, Evaluation, Refusal, Task, TracePolicy, Verdict

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

FILE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)

def get_inputs():
    return [torch.randn(300, 1025)]
"""

PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("rows_softmax", grid=rows, block=%(block)s, args=(x, y, rows, columns))
    return y
"""

KERNEL = """
#include <kernelwright.cuh>
__device__ int calls;
__device__ float kept[300 * 1025];
__device__ int have;
extern "C" __global__ void rows_softmax(const float* x, float* y, int rows, int columns) {
    __shared__ double part[256];
    const float* a = x + size_t(blockIdx.x) * columns;
    float* b = y + size_t(blockIdx.x) * columns;
    %(before)s
    double top = -1e300;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) top = fmax(top, a[c] * 0.5);
    part[threadIdx.x] = top;
    __syncthreads();
    for (int i = 0; i < blockDim.x; i++) top = fmax(top, part[i]);
    __syncthreads();
    double sum = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += exp(a[c] * 0.5 - top);
    part[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < blockDim.x; i++) sum += part[i];
    for (int c = threadIdx.x; c < columns; c += blockDim.x) b[c] = %(value)s;
    %(after)s
}
"""
RIGHT = "float(exp(a[c] * 0.5 - top) / sum)"

Screen = Callable[..., Awaitable[Evaluation]]


def make(*, before: str = "", value: str = RIGHT, after: str = "", block: str = "256") -> Candidate:
    text = KERNEL % {"before": before, "value": value, "after": after}
    return new_candidate("cuda", text, PLAN % {"block": block})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpu_executor(
    tmp_path_factory: pytest.TempPathFactory, short_rules: Rules
) -> AsyncIterator[LocalExecutor]:
    rules = short_rules.model_copy(update={"candidate_s": 5.0})
    made = LocalExecutor.create("cuda", tmp_path_factory.mktemp("scratch"), seed=7, rules=rules)
    yield made
    await made.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpu_rows(gpu_executor: LocalExecutor, tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "rows.py"
    path.write_text(FILE, encoding="utf-8")
    task = await gpu_executor.trace(path, TracePolicy(device="cuda"))
    assert isinstance(task, Task), task
    return task


@pytest.fixture
def screen(gpu_executor: LocalExecutor, gpu_rows: Task) -> Screen:
    async def run(**parts: str) -> Evaluation:
        return await gpu_executor.evaluate(gpu_rows, make(**parts), "screen")

    return run


async def test_an_honest_kernel_is_correct(screen: Screen) -> None:
    found = await screen()
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.screen is not None
    assert found.screen.conditions.l2_flushed
    assert found.screen.conditions.sm_clock_mhz is not None
    assert found.verification.coverage is not None
    assert found.verification.coverage > 0.95


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ({"value": "0.0f"}, Verdict.WRONG_RESULT),
        ({"value": f"__half2float(__float2half({RIGHT}))"}, Verdict.WRONG_RESULT),
        ({"before": "if (blockIdx.x == 299) return;"}, Verdict.NOT_WRITTEN),
        ({"after": "if (blockIdx.x == 299) b[columns + 2] = 1.0f;"}, Verdict.OUT_OF_BOUNDS),
        ({"after": "((float*)a)[0] += 1.0f;"}, Verdict.INPUT_MUTATED),
        (
            {"after": "__syncthreads(); if (!threadIdx.x) b[0] += 1e-9f * atomicAdd(&calls, 1);"},
            Verdict.NONDETERMINISTIC,
        ),
        (
            {
                "before": "if (have >= 300) { for (int c = threadIdx.x; c < columns; "
                "c += blockDim.x) b[c] = kept[blockIdx.x * columns + c]; return; }",
                "after": "for (int c = threadIdx.x; c < columns; c += blockDim.x) "
                "kept[blockIdx.x * columns + c] = b[c]; __syncthreads(); "
                "if (!threadIdx.x) atomicAdd(&have, 1);",
            },
            Verdict.STALE_RESULT,
        ),
        ({"block": "2048"}, Verdict.LAUNCH_ERROR),
        ({"value": "no_such_thing(a[c])"}, Verdict.COMPILE_ERROR),
    ],
    ids=[
        "zeros", "half", "row-missing", "past-the-end", "mutates", "counts", "keeps", "block",
        "compile",
    ],
)  # fmt: skip
async def test_a_bad_kernel_gets_its_verdict(
    screen: Screen, parts: dict[str, str], verdict: Verdict
) -> None:
    found = await screen(**parts)
    assert found.verdict is verdict, found.verification.reason


async def test_a_poisoned_context_costs_one_worker_and_no_other_candidate(screen: Screen) -> None:
    lost = await screen(after="*(volatile int*)(blockIdx.x + 8) = 1;")
    assert lost.verdict is Verdict.ILLEGAL_ACCESS, lost.verification.reason
    assert (await screen()).verdict is Verdict.CORRECT


async def test_a_kernel_that_never_ends_is_stopped_and_the_device_is_usable(
    screen: Screen,
) -> None:
    hang = await screen(before="volatile float* spin = y; while (spin[0] != 42.0f) {}")
    assert hang.verdict is Verdict.TIMED_OUT, hang.verification.reason
    assert (await screen()).verdict is Verdict.CORRECT


async def test_graphs_compete_with_graphs_and_times_are_the_devices(
    gpu_executor: LocalExecutor, gpu_rows: Task
) -> None:
    baselines = await gpu_executor.baselines(gpu_rows)
    assert not isinstance(baselines, Refusal)
    known = {item.name: item for item in baselines.items}
    assert set(known) == {"eager", "compile", "graph", "compile-graph"}
    assert all(item.measurement for item in known.values()), known
    eager = known["eager"]
    assert eager.measurement is not None
    assert eager.latency_ms is not None
    assert eager.latency_ms > eager.measurement.median_ms  # it holds the host's time as well
    found = await gpu_executor.evaluate(gpu_rows, make(), "precise")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    by_name = {item.baseline: item for item in found.comparisons}
    assert set(by_name) == set(known)
    assert {name for name, item in by_name.items() if item.as_graph} == {"graph", "compile-graph"}
    assert {item.clock for item in found.comparisons} == {"device"}
    assert all(item.latency is None for item in found.comparisons)  # a finalist's alone
    assert found.launch_ms is not None
    assert found.launch_ms > 0


async def test_certifying_adds_distributions_and_max_autotune(
    gpu_executor: LocalExecutor, gpu_rows: Task
) -> None:
    found = await gpu_executor.evaluate(gpu_rows, make(), "certify")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert len(found.verification.distributions) >= 6
    assert {"eager", "max-autotune"} <= {item.baseline for item in found.comparisons}
    for item in found.comparisons:
        assert item.latency is not None, item.baseline
        assert item.latency.candidate_ms > item.candidate_ms
    assert found.claim is not None


RESIZED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        back = torch.ops.aten.upsample_bilinear2d_backward
        return back(x * 0.5, [256, 256], [4, 16, 32, 32], False)

def get_inputs():
    return [torch.randn(4, 16, 256, 256)]
"""
HALVED = """
extern "C" __global__ void halved(const float* x, float* y, long long count) {
    long long at = blockIdx.x * 256ll + threadIdx.x;
    if (at < count) y[at] = x[at] * 0.5f %(besides)s;
}
"""
HALVED_PLAN = """
def forward(x):
    count = x.numel()
    y = empty_like(x)
    launch("halved", grid=ceil_div(count, 256), block=256, args=(x, y, count))
    return aten.upsample_bilinear2d_backward(y, [256, 256], [4, 16, 32, 32], False)
"""


@pytest.mark.parametrize(
    ("besides", "verdict"), [("", Verdict.CORRECT), ("+ 0.01f", Verdict.WRONG_RESULT)]
)
async def test_a_gradient_that_the_library_adds_up_in_no_order_is_no_race(
    gpu_executor: LocalExecutor, tmp_path: Path, besides: str, verdict: Verdict
) -> None:
    path = tmp_path / "resized.py"
    path.write_text(RESIZED, encoding="utf-8")
    task = await gpu_executor.trace(path, TracePolicy(device="cuda"))
    assert isinstance(task, Task), task
    candidate = new_candidate("cuda", HALVED % {"besides": besides}, HALVED_PLAN)
    found = await gpu_executor.evaluate(task, candidate, "screen")
    assert found.verdict is verdict, found.verification.reason
