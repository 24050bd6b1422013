"""What SASS says of kernels whose make is known."""

import asyncio

import pytest

from kernelwright.tools.languages.cuda import inspection as disassembler
from kernelwright.tools.languages.cuda.inspection import cubin_evidence

COPY = """
extern "C" __global__ void copy(const void* x, void* y, int n) {{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) static_cast<{type}*>(y)[i] = static_cast<const {type}*>(x)[i];
}}
"""
SPILL = """
extern "C" __global__ void __launch_bounds__(1024, 2) crowded(const float* x, float* y) {
    float v[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 96; ++i) y[i * 1024 + threadIdx.x] = v[i] * v[95 - i] + v[(i * 7) % 96];
}
"""
LOOP = """
extern "C" __global__ void powers(const float* x, float* y, int n) {
    __shared__ float table[256];
    table[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float a = 0.0f;
    for (int i = 0; i < n; ++i) {
        #pragma unroll 1
        for (int k = 0; k < n; ++k) a = a * table[k & 255] + 1.0f;
    }
    a += x[threadIdx.x];
    y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, a, 1) + __expf(a);
    atomicAdd(y, 1.0f);
}
"""
TENSOR = """
extern "C" __global__ void product(const unsigned int* a, const unsigned int* b, float* d) {
    float c[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    d[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}
"""


@pytest.mark.parametrize(
    ("type", "width"),
    [
        ("float4", 16),
        ("short", 2),
        *(
            pytest.param(type, width, marks=pytest.mark.exhaustive)
            for type, width in (("float2", 8), ("float", 4), ("char", 1))
        ),
    ],
)
def test_the_width_of_accesses_is_that_of_the_type(readings_of, type, width):
    read = readings_of(COPY.format(type=type))
    assert read["copy.load_width"] == width
    assert read["copy.store_width"] == width
    assert "copy.tensor_instructions" not in read
    assert "copy.local_accesses" not in read


def test_a_kernel_with_too_few_registers_goes_to_local_memory(readings_of):
    read = readings_of(SPILL)
    assert read["crowded.local_accesses"] > 10


def test_the_deepest_loop_is_told_from_what_stands_around_it(readings_of):
    read = readings_of(LOOP)
    assert 3 <= read["powers.hot_loop_instructions"] < read["powers.code_instructions"] / 2
    assert read["powers.hot_loop_memory_share"] > 0
    assert read["powers.hot_loop_arithmetic_share"] > 0
    assert read["powers.shuffles"] == 1
    assert read["powers.barriers"] >= 1
    assert read["powers.atomics"] >= 1
    assert read["powers.special_functions"] >= 1


def test_code_without_a_loop_has_no_hot_loop(readings_of):
    assert "copy.hot_loop_instructions" not in readings_of(COPY.format(type="float"))


def test_tensor_cores_are_seen(readings_of):
    assert readings_of(TENSOR)["product.tensor_instructions"] == 1


def test_two_kernels_of_one_object_are_kept_apart(readings_of):
    read = readings_of(TENSOR + COPY.format(type="float4"))
    assert read["product.tensor_instructions"] == 1
    assert "copy.tensor_instructions" not in read


def test_without_a_disassembler_the_reading_says_what_would_help(tmp_path, monkeypatch):
    monkeypatch.setattr(disassembler, "_folders", list)
    monkeypatch.setenv("PATH", str(tmp_path))
    (missing,) = asyncio.run(cubin_evidence(tmp_path / "kernel.cubin"))
    assert missing.value is None
    assert "pip install nvidia-cuda-nvdisasm" in missing.source


def test_what_is_no_cubin_is_unavailable_and_no_crash(tmp_path):
    (tmp_path / "kernel.cubin").write_text("not code")
    (missing,) = asyncio.run(cubin_evidence(tmp_path / "kernel.cubin"))
    assert missing.value is None
    assert "nvdisasm cannot read the code" in missing.source
