"""Which large sources are several programs: those whose kernels share nothing that has a state."""

import os
from collections.abc import Callable, Coroutine

import pytest

from kernelwright.tools.languages import Built, CompileFailure, parse_kernel
from kernelwright.tools.languages.cuda import compile as nvrtc
from kernelwright.tools.languages.cuda.parts import LARGE_BYTES, cubins_of, parted

Compile = Callable[..., Coroutine[None, None, Built | CompileFailure]]

PADDING = f"// {'large ' * 15}\n" * (LARGE_BYTES // 90)
KERNEL = 'extern "C" __global__ void {name}(float* y) {{{body}}}\n'


def large(before: str, *bodies: str) -> str:
    """A source beyond the limit, with kernels k0, k1 and so on of these bodies."""
    kernels = (KERNEL.format(name=f"k{at}", body=body) for at, body in enumerate(bodies))
    text = "".join(['#include "kernelwright.cuh"\n', PADDING, before, *kernels])
    assert len(text) > LARGE_BYTES
    return text


@pytest.mark.parametrize(
    ("before", "used"),
    [
        ("__device__ int counted;", "counted"),
        ('extern "C" __device__ int counted;', "counted"),
        ('extern "C" { __device__ int counted; }', "counted"),
        ('namespace own { extern "C" { __device__ int counted; } }', "own::counted"),
        ("template <int N> __device__ int counted;", "counted<3>"),
        ("struct S { int last; } __device__ state;", "state.last"),
        ("struct S {static __device__ int last;};", "S::last"),
        ("struct S { static/* one */__device__ int last; };", "S::last"),
        ("__device__ int next() {static int last; return ++last; }", "next()"),
        ("__device__ int next() { int static last; return ++last; }", "next()"),
        ("#define COUNTER static int\n__device__ int next() { COUNTER last; return 1; }", "next()"),
    ],
)
def test_kernels_that_share_state_stay_together(before: str, used: str) -> None:
    assert parted(large(f"{before}\n", *(3 * [f" y[0] = {used}; "]))) == ()


STATELESS = (
    "// A static variable would be one.\n",
    "/* static int last; */\n",
    "struct S { static constexpr int BY = 2; };\n",
    "enum Kind { FIRST, SECOND };\ntypedef float real;\nunion Both { int i; float f; };\n",
    "template <int N> __device__ int of() { return N; }\n",
    "namespace own::inner { template <class T> using Of = T; }\n",
    'extern "C" { struct Pair { int a, b; }; }\n',
    "static_assert(static_cast<int>(2.5f) == 2);\n",
)


@pytest.mark.parametrize("before", STATELESS)
def test_what_has_no_state_keeps_nobody_together(before: str) -> None:
    assert len(parted(large(before, *(3 * [" y[0] = 1.f; "])))) == 3


async def test_what_has_no_state_is_in_every_program(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = large("".join(STATELESS), *(3 * [" y[0] = of<S::BY>(); "]))
    await check_programs(source, 3, compiled, monkeypatch)


async def check_programs(
    source: str, programs: int, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVRTC takes the source as so many programs, which have its kernels and no others."""
    monkeypatch.setattr(nvrtc, "_WIDE", 1)
    made = await compiled(source, "cuda")
    assert isinstance(made, Built), made
    cubins = cubins_of(made.artifact)
    exported = [function.name for function in parse_kernel(source, "cuda").functions]
    assert len(cubins) == programs
    assert sorted(report.kernel for report in made.reports) == sorted(exported)
    if programs > 1:
        assert [name for cubin in cubins for name in cubin.kernels] == exported


async def test_a_device_function_of_c_linkage_is_in_every_program(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = 'extern "C" __device__ float twice(float x) {\n    return 2.f * x;\n}\n'
    source = large(helper, *(3 * [" y[0] = twice(y[0]); "]))
    await check_programs(source, 3, compiled, monkeypatch)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("\n#define STEP(x) (2.f * x)\n y[0] = STEP(y[0]);\n", " y[0] = STEP(y[0]); "),
        ("\n#  define STEP 2.f\n y[0] = STEP;\n", " y[0] = STEP; "),
        ("\n#undef BASE\n#define BASE 3.f\n", "\n y[0] = BASE;\n"),
    ],
)
async def test_a_macro_of_one_body_is_there_for_the_next(
    first: str, second: str, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_programs(large("#define BASE 1.f\n", first, second), 1, compiled, monkeypatch)


async def test_pragmas_of_a_body_end_with_it(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "\n#pragma unroll\n for (int i = 0; i < 4; ++i) y[i] = 1.f;\n"
    await check_programs(large("", body, body, body), 3, compiled, monkeypatch)


async def test_kernels_of_a_block_are_kernels(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = 'extern "C" {\n__global__ void in_block(float* y) { y[0] = 1.f; y[1] = 2.f; }\n}\n'
    source = large(block, *(3 * [" y[0] = 1.f; "]))
    await check_programs(source, len(parted(source)), compiled, monkeypatch)
    assert parted(source)[0].kernels[0] == "in_block"


def test_a_kernel_that_launches_cannot_name_keeps_the_source_whole() -> None:
    hidden = "__global__ void hidden(float* y) { y[0] = 1.f; }\n"
    assert parted(large(hidden, *(3 * [" y[0] = 1.f; "]))) == ()


def test_only_processors_that_this_process_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert not nvrtc._is_wide()
    monkeypatch.delattr(os, "sched_getaffinity")
    assert nvrtc._is_wide()


def test_how_sources_are_divided_decides_what_was_compiled() -> None:
    assert nvrtc._PARTS.name == "parts.py"
    assert nvrtc._PARTS.read_text(encoding="utf-8") in nvrtc.cuda_identity()
