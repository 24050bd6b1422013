"""Evidence beside the vendor's library: certified in the process that screened, server mode too.

On a CPU there is no such library, which is said, and eager stands alone.
"""

from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import FAST, LIBRARY, WIDER, Rules
from kernelwright.tools.gemm.problem import Arithmetic, task_of
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Baselines, Effort, Task, TracePolicy, Verdict

TEXT = """import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs():
    return [torch.randn(96, 64), torch.randn(64, 80)]
"""
KERNEL = """#include "kernelwright.hpp"
extern "C" void multiply(const float* a, const float* b, float* y, long long m, long long n,
                         long long k) {
  for (long long i = 0; i < m; ++i)
    for (long long j = 0; j < n; ++j) {
      float sum = 0;
      for (long long s = 0; s < k; ++s) sum += a[i * k + s] * b[s * n + j];
      y[i * n + j] = sum;
    }
}
"""
OF_HALVES = (
    ("const float*", "const uint16_t*"),
    ("float* y", "uint16_t* y"),
    ("a[i * k + s] * b[s * n + j]", "of(a[i * k + s]) * of(b[s * n + j])"),
    ("= sum;", "= kw::float_to_half(sum);"),
    ('extern "C"', 'static float of(uint16_t x) { return kw::half_to_float(x); }\nextern "C"'),
)
PLAN = """def forward(a, b):
    m, k = a.shape
    n = b.shape[1]
    y = empty((m, n))
    launch("multiply", args=(a, b, y, m, n, k))
    return y
"""


@pytest.mark.exhaustive
async def test_a_product_is_certified_beside_the_library_where_it_was_screened(
    tmp_path: Path,
) -> None:
    task = trace(TEXT, str(tmp_path / "mm.py"), TracePolicy())
    assert isinstance(task, Task)
    judge = LocalExecutor.create("cpu", tmp_path, rules=Rules.of("library"))
    try:
        known = await judge.baselines(task)
        assert isinstance(known, Baselines)
        assert [item.name for item in known.items] == ["eager", *LIBRARY]
        assert all("LibraryLacksError" in item.failure for item in known.items[1:])
        candidate = new_candidate("cpp", KERNEL, PLAN)
        assert (await judge.evaluate(task, candidate, "screen")).verdict is Verdict.CORRECT
        screened_in = judge._shop.keeper.scratch
        found = await judge.evaluate(task, candidate, "certify")
        assert judge._shop.keeper.scratch == screened_in  # one process for both
    finally:
        await judge.aclose()
    assert found.verdict is Verdict.CORRECT
    assert len(found.verification.distributions) > 5
    told = " ".join(found.verification.not_verified)
    assert "the sanitizer was left out" in told
    assert "faster than cublaslt, which could not be made here" in told
    assert [one.baseline for one in found.comparisons] == ["eager"]
    assert [(one.mode, one.comparison.baseline) for one in found.modes] == [("server", "eager")]


async def test_sums_in_fp16_have_a_library_with_either_sums_beside_them(tmp_path: Path) -> None:
    task = task_of(GemmShape(m=24, n=40, k=16, layout="nn"), Arithmetic(accumulate="fp16"))
    judge = LocalExecutor.create("cpu", tmp_path, rules=Rules.of("library"))
    try:
        known = await judge.baselines(task)
        assert isinstance(known, Baselines)
        assert [item.name for item in known.items] == ["eager", *LIBRARY, *WIDER]
        measured = [item.name for item in known.items if item.measurement is not None]
        assert measured == ["eager", WIDER[0]]  # a CPU has no cuBLASLt
        source, plan = KERNEL, PLAN.replace("(m, n))", "(m, n), dtype=a.dtype)")
        for was, now in OF_HALVES:
            source = source.replace(was, now)
        found = await judge.evaluate(task, new_candidate("cpp", source, plan), "screen")
    finally:
        await judge.aclose()
    assert found.verdict is Verdict.CORRECT
    assert found.verification.precision == "fp16, sums in fp16"  # and never as fp16 alone
    assert not found.verification.apart


EIGHTS = """#include "kernelwright.hpp"
static float of(uint8_t x) {
  const int exponent = x >> 3 & 15, fraction = x & 7;
  const float size = exponent ? std::ldexp(8.0f + fraction, exponent - 10) : std::ldexp((float)fraction, -9);
  return x & 128 ? -size : size;
}
extern "C" void scaled(const uint8_t* a, const uint8_t* b, const float* scale_a,
                       const float* scale_b, uint16_t* y, long long m, long long n, long long k) {
  for (long long i = 0; i < m; ++i)
    for (long long j = 0; j < n; ++j) {
      float sum = 0;
      for (long long s = 0; s < k; ++s) sum += of(a[i * k + s]) * of(b[j * k + s]);
      y[i * n + j] = kw::float_to_bfloat16(sum * scale_a[0] * scale_b[0]);
    }
}
"""  # noqa: E501
EIGHTS_PLAN = """def forward(a, b, scale_a, scale_b):
    m, k = a.shape
    n = b.shape[0]
    y = empty((m, n), dtype="bfloat16")
    launch("scaled", args=(a, b, scale_a, scale_b, y, m, n, k))
    return y
"""


@pytest.mark.parametrize(
    "effort", ["screen", pytest.param("certify", marks=pytest.mark.exhaustive)]
)
async def test_eight_bits_are_judged_by_what_they_stand_for(tmp_path: Path, effort: Effort) -> None:
    task = task_of(GemmShape(m=32, n=48, k=64), Arithmetic(dtype="fp8"))
    wrong = EIGHTS.replace("s < k", "s < k - 1")
    judge = LocalExecutor.create("cpu", tmp_path, rules=Rules.of("library"))
    try:
        known = await judge.baselines(task)
        assert isinstance(known, Baselines)
        assert [item.name for item in known.items] == ["eager", *LIBRARY, FAST]
        found = await judge.evaluate(task, new_candidate("cpp", EIGHTS, EIGHTS_PLAN), effort)
        refused = await judge.evaluate(task, new_candidate("cpp", wrong, EIGHTS_PLAN), "screen")
    finally:
        await judge.aclose()
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.precision == "fp8"
    harsher = {"heavy_tail", "extremes"} if effort == "certify" else set()
    assert {"large_offset"} | harsher <= {*found.verification.distributions}
    assert refused.verdict is Verdict.WRONG_RESULT
