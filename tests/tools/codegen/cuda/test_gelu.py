"""GELU as one function: found where a product's epilogue spells it out, and as exact as erf's."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import torch

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import MMA_TILES
from kernelwright.tools.codegen.ir import Emitted

SOURCE = """
extern "C" __global__ void __launch_bounds__(256) gelus(const float* x, float* y, const int* n) {
    for (int i = threadIdx.x; i < *n; i += 256) y[i] = kw::gelu(x[i]);
}
"""


def _emulated(toolbox: SimpleNamespace, x: torch.Tensor) -> torch.Tensor:
    playable = SimpleNamespace(emitted=Emitted(source=SOURCE, plan=()), settings={}, library=[])
    toolbox.compile_emulated([playable])
    y, n = torch.empty_like(x), torch.tensor([x.numel()], dtype=torch.int32)
    pointers = (ctypes.c_void_p * 3)(x.data_ptr(), y.data_ptr(), n.data_ptr())
    ctypes.CDLL(str(playable.library[0])).run_gelus(1, 256, 1, 0, pointers)
    return y


def test_it_is_as_exact_as_erf_makes_it(toolbox: SimpleNamespace) -> None:
    ends = torch.tensor([0.0, -0.0, 1e30, -1e30, 1e-30, float("inf"), float("-inf"), float("nan")])
    x = torch.cat([torch.linspace(-12, 12, 100_001), torch.randn(10_000), ends])
    found = _emulated(toolbox, x)
    wanted = torch.nn.functional.gelu(x.double())
    torch.testing.assert_close(found.double(), wanted, rtol=2e-7, atol=2e-7, equal_nan=True)


def _epilogue(build: Any, half: float, inside: float) -> str:
    b = build({"m": 64, "n": 64}, {"k": 64})
    x, w = b.load("x", "float16", m=64, k=1), b.load("w", "float16", n=64, k=1)
    factors = (b.op("cast", one, dtype="float16") for one in (x, w))
    v = b.op("add", b.reduce("sum", b.op("mul", *factors)), b.load("bias", "float16", n=1))
    erf = b.op("erf", b.op("mul", v, b.const(inside)))
    y = b.op("mul", b.op("mul", v, b.const(half)), b.op("add", erf, b.const(1.0)))
    b.store("y", y, "float16", m=64, n=1)
    emitter, device = CudaEmitter(), hardware_profile("H200")
    strategies = {one.name: one for one in emitter.strategies(b.loop("k"), device)}
    return str(emitter.emit(b.loop("k"), strategies[MMA_TILES], "k", device).source)


def test_it_stands_where_an_epilogue_spells_it_out(toolbox: SimpleNamespace) -> None:
    assert "kw::gelu(v_" in _epilogue(toolbox.Build, 0.5, 0.5**0.5)
    assert "kw::gelu(v_" not in _epilogue(toolbox.Build, 0.5, 0.7)
    assert "kw::gelu(v_" not in _epilogue(toolbox.Build, 0.4, 0.5**0.5)
