"""NVRTC for real: it needs no driver and no device."""

from pathlib import Path

import pytest

from kernelwright.tools.languages import Built, CompileFailure, shutdown_compilers
from kernelwright.tools.languages.cuda.compile import parse_reports
from kernelwright.tools.types import Verdict

KERNEL = """#include "kernelwright.cuh"
// tune: THREADS in 128, 256
// tune: N in 4
extern "C" __global__ void __launch_bounds__(THREADS) rows(
    const float* __restrict__ x, __half* y, __nv_bfloat16* z, int64_t columns) {
    __shared__ float kept[THREADS];
    kept[threadIdx.x] = threadIdx.x < columns ? x[threadIdx.x] : -INFINITY;
    __syncthreads();
    y[threadIdx.x] = __float2half(kept[THREADS - 1 - threadIdx.x] * N);
    z[threadIdx.x] = __float2bfloat16(FLT_MAX);
}
extern "C" __global__ void other(uint8_t* x, size_t n) { if (n) x[0] = 1; }
"""


@pytest.mark.parametrize("architecture", ["sm_89", "sm_90a", "sm_100a"])
async def test_a_kernel_compiles_for_a_named_architecture(compiled, architecture: str) -> None:
    built = await compiled(KERNEL, "cuda", architecture, THREADS=256)
    assert isinstance(built, Built), built
    assert built.artifact.read_bytes().startswith(b"\x7fELF")
    reports = {item.kernel: item for item in built.reports}
    assert set(reports) == {"rows", "other"} == set(built.functions)
    assert reports["rows"].shared_bytes == 256 * 4
    assert reports["rows"].registers
    assert reports["rows"].spill_bytes == 0
    assert reports["other"].shared_bytes == 0


async def test_architectures_and_settings_do_not_share_objects(compiled) -> None:
    objects = {
        (await compiled(KERNEL, "cuda", architecture, THREADS=threads)).artifact
        for architecture in ("sm_89", "sm_90a")
        for threads in (128, 256)
    }
    assert len(objects) == 4


async def test_spills_and_stack_are_reported(compiled) -> None:
    kernel = """extern "C" __global__ void __launch_bounds__(1024, 2) f(float* x, int n) {
    float a[64];
    for (int i = 0; i < 64; ++i) a[i] = x[i * n + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 64; ++i) for (int j = 0; j < 64; ++j) a[i] += a[j] * a[63 - i];
    for (int i = 0; i < 64; ++i) x[i * n + threadIdx.x] = a[i] + a[(i * n) & 63];
}
"""
    built = await compiled(kernel, "cuda")
    assert isinstance(built, Built), built
    assert (built.reports[0].stack_bytes or 0) >= 256


async def test_a_mistake_is_named_with_the_line_as_written(compiled) -> None:
    kernel = KERNEL.replace("kept[threadIdx.x] =", "keqt[threadIdx.x] =")
    failure = await compiled(kernel, "cuda")
    assert isinstance(failure, CompileFailure)
    assert failure.verdict is Verdict.COMPILE_ERROR
    assert failure.message == 'kernel.cu(7): error: identifier "keqt" is undefined'
    assert "keqt[threadIdx.x]" in failure.log


async def test_an_unknown_architecture_is_said_with_those_that_are_known(compiled) -> None:
    failure = await compiled(KERNEL, "cuda", "sm_12")
    assert isinstance(failure, CompileFailure)
    assert "'sm_12'" in failure.message
    assert "sm_90" in failure.message


async def test_a_tunable_may_be_called_like_a_template_parameter(compiled) -> None:
    kernel = """#include "kernelwright.cuh"
// tune: T in 1, -2
extern "C" __global__ void f(int* x) { x[0] = 1 - T; }
"""
    assert isinstance(await compiled(kernel, "cuda", T=-2), Built)


@pytest.mark.parametrize(
    "line",
    ["#include <stdio.h>", "#include </etc/passwd>", "# include HEADER", '%:include "../x"'],
)
async def test_headers_outside_of_the_list_are_refused(compiled, line: str) -> None:
    failure = await compiled(f"{line}\n{KERNEL}", "cuda")
    assert isinstance(failure, CompileFailure)
    assert "may not include" in failure.message


async def test_a_kernel_without_an_architecture_is_our_mistake(compiled) -> None:
    with pytest.raises(ValueError, match="architecture"):
        await compiled(KERNEL, "cuda", None)


def test_reports_are_read_kernel_by_kernel() -> None:
    log = (
        "ptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
        "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 512 bytes smem, 372 bytes cmem[0]\n"
        "ptxas info    : Compiling entry function 'b' for 'sm_90a'\n"
        "ptxas info    : Used 8 registers\n"
    )
    first, second = parse_reports(log)
    assert (first.kernel, first.registers, first.spill_bytes) == ("a", 40, 16)
    assert (first.shared_bytes, first.stack_bytes) == (512, 8)
    assert (second.kernel, second.registers, second.shared_bytes) == ("b", 8, 0)
    assert second.spill_bytes is None


@pytest.mark.exhaustive
async def test_clusters_through_cooperative_groups_compile(compiled) -> None:
    kernel = """#include "kernelwright.cuh"
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(8, 1, 1) f(int* x) {
    auto cluster = cooperative_groups::this_cluster();
    x[blockIdx.x] = (int)cluster.block_rank();
    cluster.sync();
}
"""
    built = await compiled(kernel, "cuda")
    assert isinstance(built, Built), built
    assert built.functions == ("f",)


async def test_headers_come_from_the_house_wherever_the_person_is(
    compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernelwright.cuh").write_text("#error the person's own file")
    monkeypatch.chdir(tmp_path)
    shutdown_compilers()
    assert isinstance(await compiled(KERNEL + "\n", "cuda"), Built)
