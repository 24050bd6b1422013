"""Foreign code that cannot run on this machine gets no verdict, and whoever asks the remedy."""

import pytest
import torch

from kernelwright.tools.evaluate.foreign.guest_runner import lacking
from kernelwright.tools.types import EnvironmentLacksError


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", "needs a CUDA device"),
        ("OSError: CUDA_HOME environment variable is not set. Please", "needs a CUDA device"),
        ("ModuleNotFoundError: No module named 'triton.language'", "imports 'triton'"),
        ("The file imports 'cupy' in line 3, which is not installed here.", "imports 'cupy'"),
        ("RuntimeError: Ninja is required to load C++ extensions", "pip install ninja"),
    ],
)
def test_what_a_cpu_lacks_is_said_with_the_remedy(said, words):
    assert words in lacking("fast.py", said, "cpu")


def test_on_a_gpu_only_what_is_missing_there_is_lacking():
    assert "nvcc" in lacking(
        "fast.py", "OSError: CUDA_HOME environment variable is not set", "cuda"
    )
    assert not lacking("fast.py", "RuntimeError: no CUDA-capable device is detected", "cuda")


def test_a_fault_of_its_own_is_not_lacking():
    for said in (
        "TypeError: cuda() takes 1 argument",
        "RuntimeError: Error building extension 'a'",
    ):
        assert not lacking("fast.py", said, "cpu")


GPU_ONLY = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline
CUDA = "__global__ void twice(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }"
built = load_inline(name="twice", cpp_sources="", cuda_sources=CUDA, functions=["twice"])
class ModelNew(nn.Module):
    def forward(self, x):
        return built.twice(x)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, and a CUDA torch")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_for_a_gpu_is_not_judged_where_there_is_none(judged):
    with pytest.raises(EnvironmentLacksError, match="--target cuda on a machine that has one"):
        await judged(GPU_ONLY)
