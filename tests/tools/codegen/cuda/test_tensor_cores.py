"""The emulated tensor cores multiply as a device's are known to, and the prelude compiles for each.

The model of the sums is written down a second time here, in numpy over whole matrices.
"""

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernelwright.tools.codegen.ir import Emitted
from kernelwright.tools.languages import Built, compile_candidate, new_candidate

# One warp multiplies 16 x DEPTH by DEPTH x 8. The right factor lies as depth x 8 for the halves,
# which `load_matrices` turns, and the copies are waited for as a pipeline would.
SOURCE = """#include "kernelwright_mma.cuh"
template <class T> __device__ void one_tile(const T* left, const T* right, float* out, int depth) {
    __shared__ kw::Slots<T, 16 * 16> left_tile;
    __shared__ kw::Slots<T, 16 * 8> right_tile;
    T *rows = left_tile.data(), *columns = right_tile.data();
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    float sum[4] = {};
    for (int k = 0; k < depth; k += 16) {
        kw::copy_async<16>(rows + lane * 8, left + lane / 2 * depth + k + lane % 2 * 8);
        kw::copy_async_or_zero(columns + lane % 16 * 8, right + (k + lane % 16) * 8, true);
        kw::copy_commit();
        kw::copy_wait<0>();
        __syncthreads();
        unsigned int a[4], b[4];
        kw::load_matrices<false>(a, rows + lane % 16 * 16 + lane / 16 * 8);
        kw::load_matrices<true>(b, columns + lane % 16 * 8);
        kw::multiply<T>(sum, a, b[0], b[1]);
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}
extern "C" __global__ void __launch_bounds__(32)
fp16(const __half* l, const __half* r, float* o, const int* depth) {
    one_tile(l, r, o, *depth);
}
extern "C" __global__ void __launch_bounds__(32)
bf16(const __nv_bfloat16* l, const __nv_bfloat16* r, float* o, const int* depth) {
    one_tile(l, r, o, *depth);
}
extern "C" __global__ void __launch_bounds__(32)
tf32(const float* left, const float* right, float* out, const int* size) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const int depth = *size;
    float sum[4] = {};
    for (int k = t; k < depth; k += 8) {
        unsigned int a[4];
        for (int i = 0; i < 4; ++i)
            a[i] = kw::to_tf32(left[(g + i % 2 * 8) * depth + k + i / 2 * 4]);
        const float *near = right + k * 8 + g, *far = near + 4 * 8;
        kw::multiply_tf32(sum, a, kw::to_tf32(*near), kw::to_tf32(*far));
    }
    for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
// One warpgroup multiplies 64 x 64 by 64 x 64. Each factor lies as side x depth, and is put down
// along the depth or, turned, along the side. Sums are floats, or two of fp16 a register.
template <class Sum, bool LEFT_TURNED, bool RIGHT_TURNED>
__device__ void one_group(const __half* left, const __half* right, float* out) {
    using Left = kw::FactorTile<64, 64, !LEFT_TURNED>;
    using Right = kw::FactorTile<64, 64, !RIGHT_TURNED>;
    unsigned char* tiles = kw::swizzled_shared();
    for (int i = threadIdx.x; i < 64 * 64; i += 128) {
        const int side = i / 64, k = i % 64;
        const int in_left = (LEFT_TURNED ? side : k) % 8, in_right = (RIGHT_TURNED ? side : k) % 8;
        reinterpret_cast<__half*>(tiles + Left::at(side, k))[in_left] = left[i];
        reinterpret_cast<__half*>(tiles + 8192 + Right::at(side, k))[in_right] = right[i];
    }
    kw::written_for_groups();
    __syncthreads();
    const auto a = LEFT_TURNED ? kw::turned_group_factor(tiles, 8192) : kw::group_factor(tiles);
    const unsigned char* other = tiles + 8192;
    const auto b = RIGHT_TURNED ? kw::turned_group_factor(other, 8192) : kw::group_factor(other);
    Sum sums[kw::SUMS<Sum, 64>];
    for (Sum& one : sums) one = 7;  // what the first product does not keep
    kw::group_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
        kw::multiply_group<__half, 64, LEFT_TURNED, RIGHT_TURNED>(
            sums, a + k * kw::GROUP_STEP<!LEFT_TURNED>, b + k * kw::GROUP_STEP<!RIGHT_TURNED>, k);
    kw::group_commit();
    kw::group_wait<0>();
    kw::settled(sums);
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, first = threadIdx.x / 32 * 16 + g;
    for (int i = 0; i < 32; ++i)
        out[(first + i / 2 % 2 * 8) * 64 + i / 4 * 8 + 2 * t + i % 2] = kw::sum_at(sums, i);
}
extern "C" __global__ void __launch_bounds__(128)
group(const __half* l, const __half* r, float* o, const int* way) {
    if (*way == 0) one_group<float, false, false>(l, r, o);
    if (*way == 1) one_group<float, false, true>(l, r, o);
    if (*way == 2) one_group<float, true, false>(l, r, o);
    if (*way == 3) one_group<float, true, true>(l, r, o);
}
extern "C" __global__ void __launch_bounds__(128)
halves(const __half* l, const __half* r, float* o, const int* way) {
    if (*way == 0) one_group<unsigned int, false, false>(l, r, o);
    if (*way == 1) one_group<unsigned int, false, true>(l, r, o);
    if (*way == 2) one_group<unsigned int, true, false>(l, r, o);
    if (*way == 3) one_group<unsigned int, true, true>(l, r, o);
}
// 64 x 128 by 128 x 64 numbers of eight bits, along the depth.
extern "C" __global__ void __launch_bounds__(128)
eights(const unsigned char* left, const unsigned char* right, float* out) {
    unsigned char* tiles = kw::swizzled_shared();
    for (int i = threadIdx.x; i < 64 * 128; i += 128) {
        const int at = kw::swizzled<8>(i / 128, i % 128 / 16) + i % 16;
        tiles[at] = left[i];
        tiles[8192 + at] = right[i];
    }
    kw::written_for_groups();
    __syncthreads();
    const auto a = kw::group_factor(tiles), b = kw::group_factor(tiles + 8192);
    float sums[32];
    for (float& one : sums) one = 7;
    kw::group_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
        kw::multiply_group<kw::E4M3, 64>(sums, a + k * kw::GROUP_STEP<true>,
                                         b + k * kw::GROUP_STEP<true>, k);
    kw::group_commit();
    kw::group_wait<0>();
    kw::settled(sums);
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, first = threadIdx.x / 32 * 16 + g;
    for (int i = 0; i < 32; ++i)
        out[(first + i / 2 % 2 * 8) * 64 + i / 4 * 8 + 2 * t + i % 2] = sums[i];
}
#endif
// Reads what it has not waited for: group 0 has landed, group 1 has not.
extern "C" __global__ void __launch_bounds__(32) hasty(const float* x, float* out) {
    __shared__ kw::Slots<float, 8> room;
    float *landed = room.data(), *pending = landed + 4;
    if (threadIdx.x == 0) {
        kw::copy_async<16>(landed, x);
        kw::copy_commit();
        kw::copy_async<16>(pending, x);
        kw::copy_commit();
        kw::copy_wait<1>();
        out[0] = landed[0];
        out[1] = pending[0];
        kw::copy_async_or_zero(pending, x, false);
        kw::copy_commit();
        kw::copy_wait<0>();
        out[2] = pending[0];
    }
}
// Sixteen rows of 64 and of 128 bytes, plain and swizzled.
extern "C" __global__ void __launch_bounds__(32) rows(float* out) {
    __shared__ kw::Slots<unsigned char, 16 * 128> room;
    unsigned char* tile = room.data();
    unsigned int a[4];
    const int row = threadIdx.x % 16, chunk = threadIdx.x / 16;
    if (out[0] == 1) kw::load_matrices<false>(a, tile + row * 64 + chunk * 16);
    if (out[0] == 2) kw::load_matrices<false>(a, tile + kw::swizzled<4>(row, chunk));
    if (out[0] == 3) kw::load_matrices<false>(a, tile + row * 128 + chunk * 16);
    if (out[0] == 4) kw::load_matrices<false>(a, tile + kw::swizzled<8>(row, chunk));
    out[1] = kw::to<float>((long long)(a[0] & 1));
}
"""


@dataclass
class Playable:
    """A source as the emulator takes it."""

    emitted: Emitted
    settings: dict[str, int] = field(default_factory=dict)
    library: list[Path] = field(default_factory=list)


@pytest.fixture(scope="module")
def device(toolbox: SimpleNamespace) -> ctypes.CDLL:
    playable = Playable(Emitted(source=SOURCE, plan=()))
    toolbox.compile_emulated([playable])
    return ctypes.CDLL(str(playable.library[0]))


def _run(
    device: ctypes.CDLL, kernel: str, *tensors: torch.Tensor, threads: int = 32, shared: int = 0
) -> None:
    pointers = (ctypes.c_void_p * len(tensors))(*(one.data_ptr() for one in tensors))
    getattr(device, f"run_{kernel}")(1, threads, 1, shared, pointers)


def _product(device: ctypes.CDLL, kernel: str, left: torch.Tensor, right: torch.Tensor):
    out = torch.full((16, 8), float("nan"))
    depth = torch.tensor([left.shape[1]], dtype=torch.int32)
    _run(device, kernel, left.contiguous(), right.contiguous(), out, depth)
    return out


TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}


@pytest.mark.parametrize("kernel", [*TYPES])
def test_a_product_of_small_integers_is_exact(device: ctypes.CDLL, kernel: str) -> None:
    torch.manual_seed(0)
    left, right = torch.randint(-8, 9, (16, 48)), torch.randint(-8, 9, (48, 8))
    got = _product(device, kernel, left.to(TYPES[kernel]), right.to(TYPES[kernel]))
    assert torch.equal(got, (left @ right).float())


def _exponents(x: np.ndarray, least: int) -> np.ndarray:
    return np.where(x == 0, -126, np.maximum(np.frexp(x)[1] - 1, least))


def _modelled(
    left: np.ndarray, right: np.ndarray, bits: int, depth: int, least: int, halves: bool = False
):
    """Sums of `depth` products at a time, aligned, cut to `bits` and rounded toward zero.

    Sums in fp16 are rounded to the nearest of that type instead.
    """
    total = np.zeros((left.shape[0], right.shape[1]))
    for k in range(0, left.shape[1], depth):
        a, b = left[:, k : k + depth], right[k : k + depth].T
        products = a[:, None, :] * b[None, :, :]
        aligned = (_exponents(a, least)[:, None, :] + _exponents(b, least)[None, :, :]).max(-1)
        top = np.maximum(aligned, _exponents(total, -126))
        cut = np.trunc(np.ldexp(products, (bits - top)[..., None])).sum(-1)
        exact = np.ldexp(cut + np.trunc(np.ldexp(total, bits - top)), top - bits)
        if halves:
            total = exact.astype(np.float16).astype(np.float64)
            continue
        near = exact.astype(np.float32)
        beyond = np.abs(near.astype(np.float64)) > np.abs(exact)
        total = np.where(beyond, np.nextafter(near, np.float32(0)), near).astype(np.float64)
    return total


@pytest.mark.parametrize("kernel", [*TYPES])
@pytest.mark.parametrize(("architecture", "bits", "depth"), [(80, 24, 8), (90, 25, 16)])
def test_sums_are_cut_off_as_on_a_device(
    device: ctypes.CDLL, kernel: str, architecture: int, bits: int, depth: int
) -> None:
    torch.manual_seed(1)
    spread = torch.exp2(torch.randint(-12, 6, (16, 96)).float())
    left = (torch.randn(16, 96) * spread).to(TYPES[kernel])
    right = torch.randn(96, 8).to(TYPES[kernel])
    device.emulate_architecture(architecture)
    got = _product(device, kernel, left, right)
    if kernel == "tf32":
        left, right, depth = _rounded(left), _rounded(right), depth // 2
    least = -14 if kernel == "fp16" else -126
    wanted = _modelled(left.double().numpy(), right.double().numpy(), bits, depth, least)
    assert np.array_equal(got.double().numpy(), wanted)
    # The bias is there: these are no sums of IEEE fp32.
    assert not torch.equal(got, left.float() @ right.float())


@pytest.mark.parametrize("way", range(4))
def test_a_warpgroup_multiplies_factors_that_lie_either_way(device: ctypes.CDLL, way: int) -> None:
    torch.manual_seed(2)
    spread = torch.exp2(torch.randint(-12, 6, (64, 64)).float())
    left, right = (torch.randn(64, 64) * spread).half(), torch.randn(64, 64).half()
    out = torch.full((64, 64), float("nan"))
    number = torch.tensor([way], dtype=torch.int32)
    _run(device, "group", left, right, out, number, threads=128, shared=17 * 1024)
    wanted = _modelled(left.double().numpy(), right.double().numpy().T, 25, 16, -14)
    assert np.array_equal(out.double().numpy(), wanted)


@pytest.mark.parametrize("way", range(4))
def test_a_warpgroup_can_keep_sums_in_fp16(device: ctypes.CDLL, way: int) -> None:
    torch.manual_seed(2)
    left, right = 3 * torch.randn(64, 64).half(), torch.randn(64, 64).half()
    left[5], right[7] = 60000.0, 1.0  # a sum that fp16 does not hold
    out = torch.full((64, 64), float("nan"))
    number = torch.tensor([way], dtype=torch.int32)
    _run(device, "halves", left, right, out, number, threads=128, shared=17 * 1024)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = _modelled(left.double().numpy(), right.double().numpy().T, 25, 16, -14, True)
    kept = np.arange(64) != 5
    assert np.array_equal(out.double().numpy()[kept], wanted[kept])
    assert out[5, 7] == float("inf")
    exact = left.double() @ right.double().T
    assert not torch.equal(out.half()[6], exact.half()[6])  # these are no sums of float32


def test_a_warpgroup_cuts_products_of_eight_bits_off_early(device: ctypes.CDLL) -> None:
    torch.manual_seed(3)
    spread = torch.exp2(torch.randint(-8, 5, (64, 128)).float())
    left = (torch.randn(64, 128) * spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    right = torch.randn(64, 128).to(torch.float8_e4m3fn)
    out = torch.full((64, 64), float("nan"))
    _run(device, "eights", left, right, out, threads=128, shared=17 * 1024)
    wanted = _modelled(left.double().numpy(), right.double().numpy().T, 13, 32, -6)
    assert np.array_equal(out.double().numpy(), wanted)
    exact = left.double() @ right.double().T
    off = ((out - exact).abs() / (left.double().abs() @ right.double().abs().T)).max()
    assert 2.0**-16 < off < 2.0**-11  # far from float32's


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """TF32, halves away from zero."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("kernel", [*TYPES])
def test_what_is_not_finite_comes_out_as_in_ieee(device: ctypes.CDLL, kernel: str) -> None:
    left, right = torch.zeros(16, 16), torch.ones(16, 8)
    left[0, 3], left[1, 5], left[2, 0] = float("inf"), float("nan"), float("-inf")
    left[2, 9], left[3, 1], right[1, 2] = float("inf"), float("inf"), 0.0
    got = _product(device, kernel, left.to(TYPES[kernel]), right.to(TYPES[kernel]))
    torch.testing.assert_close(got, left @ right, equal_nan=True, rtol=0, atol=0)


def test_a_copy_lands_when_it_is_waited_for(device: ctypes.CDLL) -> None:
    x, out = torch.full((4,), 3.0), torch.zeros(3)
    _run(device, "hasty", x, out)
    assert out[0] == 3.0
    assert out[1].isnan()
    assert out[2] == 0.0


@pytest.mark.parametrize(("way", "waits"), [(1, True), (2, False), (3, True), (4, False)])
def test_swizzled_rows_lie_in_different_banks(device: ctypes.CDLL, way: int, waits: bool) -> None:
    device.matrix_bank_conflicts()
    _run(device, "rows", torch.tensor([float(way), 0.0]))
    assert bool(device.matrix_bank_conflicts()) is waits


OTHER_ARCHITECTURES = (
    pytest.param(n, marks=pytest.mark.exhaustive) for n in ("sm_80", "sm_86", "sm_89", "sm_120")
)


@pytest.mark.parametrize("architecture", ["sm_90a", *OTHER_ARCHITECTURES])
async def test_the_prelude_compiles_without_spills(architecture: str) -> None:
    candidate = new_candidate("cuda", SOURCE, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
    assert isinstance(built, Built), built
    assert all(not report.spill_bytes for report in built.reports)
