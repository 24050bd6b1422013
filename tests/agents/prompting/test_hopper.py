"""The helpers that prompts give for Hopper compile for it, and become the instructions they say."""

import asyncio
import re

import pytest

from kernelwright.agents.prompting.templates import craft
from kernelwright.tools.languages import Built, compile_candidate, new_candidate
from kernelwright.tools.languages.cuda.inspection import cubin_evidence

KERNEL = """
extern "C" __global__ void __launch_bounds__(128) all(const float* x, float* y, int steps) {
    __shared__ alignas(1024) unsigned char tile[8192];
    __shared__ alignas(8) unsigned long long full, empty;
    if (threadIdx.x == 0) { barrier_init(&full, 1); barrier_init(&empty, 128); }
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < steps; ++i) {
        if (threadIdx.x == 0) {
            barrier_wait(&empty, (i & 1) ^ 1);
            barrier_expect(&full, 4096);
            bulk_load(tile, x + i * 1024, 4096, &full);
        }
        barrier_wait(&full, i & 1);
        wgmma_fence();
        wgmma_64x8(d, descriptor(tile, 128, 256, 0), descriptor(tile + 2048, 128, 256, 0), i);
        wgmma_commit();
        wgmma_wait<0>();
        barrier_arrive(&empty);
    }
    __syncthreads();
    reinterpret_cast<float4*>(tile)[threadIdx.x] = make_float4(d[0], d[1], d[2], d[3]);
    written_for_async();
    __syncthreads();
    if (threadIdx.x == 0) { bulk_store(y, tile, 2048); bulk_stores_read(); bulk_stores_done(); }
}
"""


def test_the_helpers_compile_and_are_what_they_say():
    words = craft("cuda", "sm_90a")
    (helpers,) = re.findall(r"```cuda\n(.*?)```", words, re.DOTALL)
    source = f'#include "kernelwright.cuh"\n{helpers}\n{KERNEL}'
    candidate = new_candidate("cuda", source, "def forward(x):\n    return x\n")
    built = asyncio.run(compile_candidate(candidate, architecture="sm_90a", timeout_s=120.0))
    assert isinstance(built, Built), built
    read = {item.name: item.value for item in asyncio.run(cubin_evidence(built.artifact))}
    assert read["all.tensor_instructions"] >= 1  # the loop may be unrolled
    assert read["all.bulk_copies"] >= 2


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", None])
def test_other_devices_are_not_told_of_hopper(architecture):
    assert "wgmma_fence" not in craft("cuda", architecture)


def test_a_cpu_is_not_told_of_gpus():
    assert "wgmma" not in craft("cpp", "sm_90a")
