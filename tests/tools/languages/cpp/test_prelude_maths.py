"""The prelude's float functions against float64, over all exponents, and that they vectorise."""

import ctypes
import re
import subprocess

import pytest
import torch

from kernelwright.tools.languages import INCLUDE
from kernelwright.tools.languages.cpp.compile import cpp_compiler, cpp_flags, openmp_library

# Function: the error that its comment in the prelude states, in ulp.
STATED = {
    "exp": 1.1, "exp2": 1.2, "expm1": 1.5, "log": 1.0, "log1p": 1.5, "log2": 1.5, "log10": 1.5,
    "sigmoid": 2.5, "tanh": 1.6, "erf": 1.5, "sin": 1.6, "cos": 1.6, "tan": 3.5, "rsqrt": 1.5,
}  # fmt: skip
LINE = (
    'extern "C" void k_{0}(const {1}* __restrict x, {2}* __restrict y, int64_t n) '
    "{{ kw::lanes<16>(n, [&](int64_t j, int) {{ y[j] = kw::{0}(x[j]); }}); }}\n"
)
CONVERSIONS = {
    "half_to_float": ("uint16_t", "float"),
    "float_to_half": ("float", "uint16_t"),
    "float_to_bfloat16": ("float", "uint16_t"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    """Every function in a vector loop, and what the compiler said about vectorising."""
    folder = tmp_path_factory.mktemp("maths")
    text = '#include "kernelwright.hpp"\n'
    text += "".join(LINE.format(name, "float", "float") for name in STATED)
    text += "".join(LINE.format(name, *types) for name, types in CONVERSIONS.items())
    text += (
        'extern "C" void k_pow(const float* __restrict x, const float* __restrict z, '
        "float* __restrict y, int64_t n) "
        "{ kw::lanes<16>(n, [&](int64_t j, int) { y[j] = kw::pow(x[j], z[j]); }); }\n"
    )
    (folder / "maths.cpp").write_text(text)
    code, link = cpp_flags()
    command = [*cpp_compiler(), *code, "-fopt-info-vec-optimized", f"-I{INCLUDE}", "maths.cpp"]
    command += [*link, "-o", "maths.so", *openmp_library(), "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return ctypes.CDLL(str(folder / "maths.so")), done.stderr


def arguments() -> torch.Tensor:
    """Any bit pattern, and denser where the functions bend."""
    generator = torch.Generator().manual_seed(0)
    anything = torch.randint(-(1 << 31), 1 << 31, (400_000,), generator=generator)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0])
    edges = torch.tensor([88.72283, 88.72284, -87.33654, -87.33655, 127.99999, 128.0, -149.0])
    return torch.cat(
        [
            anything.int().view(torch.float32),
            torch.randn(200_000, generator=generator),
            torch.rand(200_000, generator=generator) * 220 - 110,
            torch.rand(200_000, generator=generator) * 1.5 + 0.5,
            special,
            edges,
        ]
    )


def applied(library: ctypes.CDLL, name: str, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The function on every element."""
    y = torch.empty(x.shape, dtype=dtype)
    pointers = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()))
    getattr(library, f"k_{name}")(*pointers, ctypes.c_int64(x.numel()))
    return y


def ulps(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Distance in float's units in the last place; infinite where NaN or infinity differ."""
    rounded = want.float()
    exponent = torch.frexp(rounded.double()).exponent.clamp_min(-125)
    off = (got.double() - want).abs() / torch.ldexp(torch.ones_like(want), exponent - 24)
    same = (got == rounded) | (got.isnan() & want.isnan())
    off = torch.where(same & ~rounded.isfinite(), 0.0, off)
    return torch.where(off.isnan(), float("inf"), off)


@pytest.mark.parametrize("name", STATED)
def test_errors_stay_within_what_the_prelude_states(built: tuple[ctypes.CDLL, str], name: str):
    x = arguments()
    want = getattr(torch, name)(x.double())
    if name in ("sin", "cos", "tan"):
        x, want = x[x.abs() < 2**45], want[x.abs() < 2**45]
    if name == "sigmoid":
        x, want = x[x > -88], want[x > -88]
    off = ulps(applied(built[0], name, x, torch.float32), want)
    if name == "exp":  # flushes what would be subnormal
        off = torch.where(want < 2.0**-126, 0.0, off)
    worst = off.argmax()
    assert off[worst] <= STATED[name], f"{name}({x[worst]!r}) is off by {off[worst]} ulp"


def test_pow_is_right_for_all_signs_and_ends(built: tuple[ctypes.CDLL, str]):
    special = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, -0.5, float("inf"), -float("inf")]
    special += [float("nan"), 1e-45, 3e38, 16777216.0, 16777217.0, -16777215.0]
    a, b = torch.meshgrid(torch.tensor(special), torch.tensor(special), indexing="ij")
    generator = torch.Generator().manual_seed(1)
    x = torch.cat([a.reshape(-1), torch.randn(100_000, generator=generator).exp()])
    z = torch.cat([b.reshape(-1), torch.randn(100_000, generator=generator) * 9])
    y = torch.empty_like(x)
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, z, y)]
    built[0].k_pow(*pointers, ctypes.c_int64(x.numel()))
    off = ulps(y, torch.pow(x.double(), z.double()))
    assert off.max() <= 1.0, (x[off.argmax()], z[off.argmax()], y[off.argmax()])


def test_halves_convert_like_pytorch(built: tuple[ctypes.CDLL, str]):
    every = torch.arange(-32768, 32768, dtype=torch.int16)
    want = every.view(torch.float16).float()
    got = applied(built[0], "half_to_float", every, torch.float32)
    assert torch.equal(got[~want.isnan()].view(torch.int32), want[~want.isnan()].view(torch.int32))
    assert got[want.isnan()].isnan().all()
    near = torch.randn(200_000).mul(8).exp2() * torch.randn(200_000).sign()
    for dtype in (torch.float16, torch.bfloat16):
        name = str(dtype).rpartition(".")[2].replace("float16", "half", dtype is torch.float16)
        x = torch.cat([arguments(), near])
        x = x[~x.isnan()]
        got = applied(built[0], f"float_to_{name}", x, torch.int16)
        assert torch.equal(got, x.to(dtype).view(torch.int16))


def test_every_function_vectorises(built: tuple[ctypes.CDLL, str]):
    # The loop stands in the prelude; the compiler reports it once for each caller.
    found = re.findall(r"kernelwright\.hpp:\d+:\d+: optimized: loop vectorized", built[1])
    assert len(found) >= 2 * (len(STATED) + len(CONVERSIONS) + 1) - 2
