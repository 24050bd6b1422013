"""Kernels and plans that the contract's tests share, and a runner that really compiles."""

from collections.abc import Callable, Iterable

import pytest

from kernelwright.tools.candidates import KernelSource
from kernelwright.tools.candidates.run import Allocator, PlanRunner
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.types import Setting

SCALE = """#include "kernelwright.hpp"
// tune: BLOCK in 16, 4
extern "C" void scale(const float* x, float* y, long long n, float by) {
    for (long long i = 0; i < n; ++i) y[i] = x[i] * by;
}
extern "C" void nothing() {}
extern "C" void types(double* d, std::uint16_t* h, bool* b, int* i, long long* l, std::uint8_t* u,
                      signed char* c, void* any, size_t n, int k, bool flag, double x) {}
"""
SOFTMAX = """#include "kernelwright.cuh"
// tune: THREADS in 128, 256
extern "C" __global__ void softmax_rows(const float* x, float* y, int columns) {}
"""

Make = Callable[..., PlanRunner]


@pytest.fixture(scope="session")
def cpp_source() -> KernelSource:
    return parse_kernel(SCALE, "cpp")


@pytest.fixture(scope="session")
def cuda_source() -> KernelSource:
    return parse_kernel(SOFTMAX, "cuda")


@pytest.fixture
def make_runner() -> Callable[..., object]:
    """Compiles a C++ kernel for real and puts a plan before it."""

    async def make(
        plan: str,
        kernel: str = SCALE,
        allocator: Allocator | None = None,
        settings: Iterable[Setting] = (),
        **options: frozenset[str],
    ) -> PlanRunner:
        candidate = new_candidate("cpp", kernel, plan, settings=settings)
        built = await compile_candidate(candidate, architecture=None, timeout_s=120)
        assert isinstance(built, Built), built
        return load_candidate(candidate, built, "cpu", allocator, **options)

    return make
