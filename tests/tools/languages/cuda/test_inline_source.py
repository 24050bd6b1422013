"""The CUDA that a Python file gives `load_inline`, as a bare kernel to start a search from."""

import asyncio

import pytest

from kernelwright.tools.candidates.launches import exported, inferred
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.languages.cuda.inline_source import device_code
from kernelwright.tools.types import DType, Graph, InputSpec, Task, TensorSpec

ANSWER = '''
import torch
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_fp16.h>
#define WARP 32
using namespace torch::indexing;

struct Pair { float value; int place; };
static void trace(const char* words);
template <typename T> __device__ T twice(T x) { return x + x; }

template <typename scalar_t>
__global__ void shifted(const scalar_t* a, const scalar_t* b, scalar_t* out, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) out[i] = twice(a[i]) + b[i];
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    const int warps = 4;
    const int threads = warps * WARP;
    int size = a.numel();
    AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "run", ([&] {
        shifted<scalar_t><<<(size + threads - 1) / threads, threads>>>(
            a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), size);
    }));
    return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
module = load_inline("run", "torch::Tensor run(torch::Tensor, torch::Tensor);", source, ["run"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return module.run(a, b)
'''


def task() -> Task:
    spec = TensorSpec(shape=(8, 64), dtype=DType.FLOAT32)
    return Task(
        name="t", path="t.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", outputs=(spec,), bytes_moved=1, flops=1,
        inputs=(InputSpec(name="x", tensor=spec), InputSpec(name="y", tensor=spec)),
        graph=Graph(nodes=(), inputs=(), outputs=()),
    )  # fmt: skip


def test_what_runs_on_the_device_is_kept_and_nothing_of_the_host():
    code = device_code(ANSWER)
    for kept in ("struct Pair", "#define WARP 32", "cuda_fp16.h", "twice(T x)", "const float* b"):
        assert kept in code
    for left in ("torch", "PYBIND11", "trace", "<<<"):
        assert left not in code


def test_its_launch_is_read_off_the_host_code_and_the_rest_inferred():
    kernel = exported(device_code(ANSWER))
    found = inferred(parse_kernel(kernel, "cuda"), kernel, task())
    assert not found.missing
    assert "grid=ceil_div(512, 128), block=128, args=(x, y, out0, 512)" in found.plans[0]
    candidate = new_candidate("cuda", kernel, found.plans[0])
    built = asyncio.run(compile_candidate(candidate, architecture="sm_90", timeout_s=90))
    assert isinstance(built, Built), built


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ("k<<<8, 256>>>(x)", "// launch: block=256"),
        (
            "dim3 grid(4, 4); dim3 block(16, 2 * 8); k<<<grid, block>>>(x)",
            "// launch: block=(16, 16)",
        ),
        (
            "int n = 64; k<<<8, n, 2 * n * sizeof(float), stream>>>(x)",
            "// launch: block=64, shared=512",
        ),
        ("k<<<8, x.size(0)>>>(x)", ""),
        ("k<<<8, 64>>>(x); k<<<4, 32>>>(x)", ""),
        ("int n = 1024; if (m < 8) n = 32; k<<<8, n>>>(x)", ""),
        ("other<<<8, 64>>>(x)", ""),
        ("int a = b; int b = a; k<<<8, a>>>(x)", ""),
    ],
)
def test_of_one_launch_what_is_a_number_is_said(launch: str, said: str):
    text = f"__global__ void k(float* x) {{ x[0] = 1; }}\nvoid run() {{ {launch}; }}\n"
    code = device_code(f"source = {text!r}\n")
    assert code.startswith(said or "__global__")
    assert ("// launch:" in code) == bool(said)


@pytest.mark.parametrize(
    "kernel",
    [
        'extern "C" __global__ void k(float* x) { x[0] = 1; }',
        'extern "C" { __global__ void k(float* x) { x[0] = 1; } void run() { k<<<1, 64>>>(0); } }',
        "#ifdef WIDE\n__global__ void k(float* x) { x[0] = 1; }\n#endif\n",
    ],
)
def test_kernels_within_exports_and_conditions_are_kept(kernel: str):
    code = device_code(f"source = {kernel!r}\n")
    assert "__global__ void k(float* x)" in code
    assert "void run" not in code


@pytest.mark.parametrize(
    "answer",
    [
        "class ModelNew:\n    pass\n",
        'source = "void run() {}"\n',
        'n = 4\nsource = f"__global__ void k(float* x) {{ x[{n}] = 1; }}"\n',
        '"""Says __global__ in its docstring alone."""\n',
    ],
)
def test_a_file_without_kernels_of_its_own_has_none(answer: str):
    assert device_code(answer) == ""
