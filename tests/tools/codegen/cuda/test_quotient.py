"""Division without a branch in what follows a product: a unit in the last place at most."""

from __future__ import annotations

import ctypes
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.ir import Emitted
from kernelwright.tools.languages import CompileFailure, compile_candidate, new_candidate
from kernelwright.tools.languages.cuda.listing import listed

# By an inverse of its own, and by one that is a unit in the last place off to either side.
SOURCE = """
extern "C" __global__ void __launch_bounds__(256) over(float* a, float* b, float* y, int* n) {
    for (int i = threadIdx.x; i < *n; i += 256) {
        const float inverse = 1.0f / b[i];
        y[i] = kw::quotient(a[i], b[i]);
        y[*n + i] = kw::quotient(a[i], b[i], inverse * 1.0000001192f);
        y[2 * *n + i] = kw::quotient(a[i], b[i], inverse * 0.9999998808f);
    }
}
"""
DIVIDES = """
#include "kernelwright.cuh"
extern "C" __global__ void one(float* y) { y[0] = kw::quotient(y[1], y[2]); }
"""
PLAN = """
def run(x):
    y = empty_like(x)
    launch("one", grid=1, block=1, args=(y,))
    return y
"""
ENDS = torch.tensor(
    [0.0, -0.0, 1.0, -3.0, 1e-45, 1e-40, -1e-38, 1e-30, 1e30, 2e38, 3.4e38, inf, -inf, nan]
)


@pytest.fixture(scope="module")
def library(toolbox: SimpleNamespace) -> ctypes.CDLL:
    playable = SimpleNamespace(emitted=Emitted(source=SOURCE, plan=()), settings={}, library=[])
    toolbox.compile_emulated([playable])
    return ctypes.CDLL(str(playable.library[0]))


def _emulated(library: ctypes.CDLL, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y, n = torch.empty(3, a.numel()), torch.tensor([a.numel()], dtype=torch.int32)
    pointers = (ctypes.c_void_p * 4)(a.data_ptr(), b.data_ptr(), y.data_ptr(), n.data_ptr())
    library.run_over(1, 256, 1, 0, pointers)
    return y


def test_it_is_a_unit_off_at_most(library: ctypes.CDLL) -> None:
    torch.manual_seed(1)
    powers = torch.randint(-37, 37, (2, 50_000)).double()
    a, b = (torch.randn(2, 50_000).double() * 10**powers).float()
    wanted = a.double() / b.double()
    inside = (wanted.abs() < 1e38) & (wanted.abs() > 1e-37) & (b.abs() > 1e-37) & (b.abs() < 1e37)
    found = _emulated(library, a, b).double()
    wrong = (found - wanted).abs() / wanted.abs()
    assert wrong[0][inside].max() < 2**-23
    # Without a power of two a rest of less than a normal number says little.
    assert wrong[1:, inside & (a.abs() > 1e-29)].max() < 2**-23


def test_ends_of_the_range_are_what_a_division_makes_of_them(library: ctypes.CDLL) -> None:
    a, b = (one.reshape(-1).contiguous() for one in torch.meshgrid(ENDS, ENDS, indexing="ij"))
    found = _emulated(library, a, b)[0]
    torch.testing.assert_close(found, a / b, rtol=2e-7, atol=3e-45, equal_nan=True)


async def test_it_compiles_to_no_branch() -> None:
    built = await compile_candidate(
        new_candidate("cuda", DIVIDES, PLAN),
        architecture=hardware_profile("H200").architecture,
        timeout_s=60,
    )
    assert not isinstance(built, CompileFailure), built
    lines = await listed(Path(built.artifact))
    if isinstance(lines, str):
        pytest.skip(lines)
    assert lines
    assert not [line for line in lines if "CALL" in line.text]
