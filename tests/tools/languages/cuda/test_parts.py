"""A large source is compiled as several programs, and nobody behind the compiler sees that."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.languages import (
    Built,
    CompileFailure,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.languages.base import compile as cache
from kernelwright.tools.languages.cuda import compile as nvrtc
from kernelwright.tools.languages.cuda import loading, parts
from kernelwright.tools.languages.cuda.inspection import cubin_evidence, find_nvdisasm
from kernelwright.tools.languages.cuda.parts import Cubin, cubins_of, packed, parted

Compile = Callable[..., Coroutine[None, None, Built | CompileFailure]]

HEAD = """#include "kernelwright.cuh"
// tune: THREADS in 128, 256
struct Twice {
    static constexpr float BY = 2.f;
    __device__ float of(float x) const { return x * BY; }
};
"""
KERNEL = """
// {name}: y = 2 x + {number}, and more work than the others by {number} steps.
extern "C" __global__ void __launch_bounds__(THREADS)
{name}(const float* x, float* y, int n) {{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    float sum = i < n ? Twice{{}}.of(x[i]) + {number}.f : 0.f;
    for (int turn = 0; turn < {number}; ++turn) sum = sqrtf(sum * sum) / 1.f;
    if (i < n) y[i] = sum;
}}
"""
NAMES = [f"k{number}" for number in range(12)]
SOURCE = HEAD + "".join(KERNEL.format(name=f"k{n}", number=n) for n in range(12))


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGE_BYTES", 0)
    monkeypatch.setattr(nvrtc, "_WIDE", 1)


def test_every_kernel_is_in_one_program_and_lines_are_the_sources() -> None:
    made = parted(SOURCE)
    assert 1 < len(made) <= parts.MOST_PARTS
    assert [name for part in made for name in part.kernels] == NAMES
    for part in made:
        assert part.text.count("\n") == SOURCE.count("\n")
        for name, line in ((n, f"{n}(const float* x, float* y, int n)") for n in NAMES):
            known = next(row for row in part.text.splitlines() if row.startswith(line))
            assert known.endswith(";") is (name not in part.kernels)


@pytest.mark.parametrize(
    "state",
    [
        "__device__ int counted;\n",
        "__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};\n",
        "namespace own { __device__ int counted; }\n",
        "__device__ int next() { static int last; return ++last; }\n",
    ],
)
def test_kernels_that_share_state_stay_together(state: str) -> None:
    assert parted(HEAD + state + SOURCE.removeprefix(HEAD)) == ()


def test_what_is_small_stays_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGE_BYTES", len(SOURCE) + 1)
    assert parted(SOURCE) == ()


def test_cubins_come_back_as_they_were_packed(tmp_path: Path) -> None:
    both = [Cubin(b"\x7fELF1", ("a", "b")), Cubin(b"\x7fELF2", ("c",))]
    (tmp_path / "kernel.cubin").write_bytes(packed(both))
    assert packed(both) == packed(both)
    assert cubins_of(tmp_path / "kernel.cubin") == both
    (tmp_path / "one.cubin").write_bytes(b"\x7fELF3")
    assert cubins_of(tmp_path / "one.cubin") == [Cubin(b"\x7fELF3")]


def test_every_cubin_is_loaded_for_its_own_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bytes, list[str]]] = []

    def load(cubin: bytes, letters: dict[str, str], *_: object) -> SimpleNamespace:
        asked.append((cubin, [*letters]))
        return SimpleNamespace(**{name: f"{name} of {cubin!r}" for name in letters})

    monkeypatch.setattr(loading, "load_kernels", load)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    monkeypatch.setattr(loading, "CudaFunction", lambda kernel, *_: kernel)
    source, path = parse_kernel(SOURCE, "cuda"), tmp_path / "kernel.cubin"
    path.write_bytes(packed([Cubin(b"1", tuple(NAMES[:5])), Cubin(b"2", tuple(NAMES[5:]))]))
    loaded = loading.load_cuda(source, path, torch.device("cuda", 0))
    assert asked == [(b"1", NAMES[:5]), (b"2", NAMES[5:])]
    assert [str(kernel)[-4:] for kernel in loaded.values()] == 5 * ["b'1'"] + 7 * ["b'2'"]
    path.write_bytes(b"only one")
    assert [*loading.load_cuda(source, path, torch.device("cuda", 0))] == NAMES
    path.write_bytes(packed([Cubin(b"1", tuple(NAMES[:5]))]))
    with pytest.raises(LaunchRefused, match="no function 'k5'"):
        loading.load_cuda(source, path, torch.device("cuda", 0))


async def test_parts_are_read_and_reported_as_the_whole_is(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await compiled(SOURCE, "cuda", THREADS=256)
    assert isinstance(made, Built), made
    assert len(cubins_of(made.artifact)) > 1
    monkeypatch.setattr(nvrtc, "_WIDE", 1 << 20)
    monkeypatch.setattr(cache, "CONTRACT", "compiled as a whole")
    whole = await compiled(SOURCE, "cuda", THREADS=256)
    assert isinstance(whole, Built), whole
    assert len(cubins_of(whole.artifact)) == 1
    assert made.functions == whole.functions
    assert {item.kernel: item for item in made.reports} == {i.kernel: i for i in whole.reports}
    if find_nvdisasm() is not None:
        ours, theirs = [await cubin_evidence(one.artifact) for one in (made, whole)]
        assert {item.name: item for item in ours} == {item.name: item for item in theirs}


async def test_an_error_stands_on_its_own_line(compiled: Compile) -> None:
    wrong = SOURCE + 'extern "C" __global__ void last(float* y) { y[0] = nowhere; }\n'
    failed = await compiled(wrong, "cuda")
    assert isinstance(failed, CompileFailure)
    assert f"kernel.cu({wrong.count(chr(10))})" in failed.message
    assert "nowhere" in failed.message


@pytest.mark.gpu
async def test_kernels_of_several_programs_run_together() -> None:
    launches = [f'    launch("{n}", grid=1, block=THREADS, args=(x, y, 64))\n' for n in NAMES]
    steps = "".join(f"    y = empty_like(x)\n{line}    x = y\n" for line in launches)
    candidate = new_candidate("cuda", SOURCE, f"def forward(x):\n{steps}    return y\n")
    major, minor = torch.cuda.get_device_capability()
    built = await compile_candidate(candidate, architecture=f"sm_{major}{minor}", timeout_s=120)
    assert isinstance(built, Built), built
    assert len(cubins_of(built.artifact)) > 1
    x = torch.ones(64, device="cuda")
    expected = 1.0
    for number in range(12):
        expected = 2 * expected + number
    (y,) = load_candidate(candidate, built, "cuda")((x,), {})
    torch.testing.assert_close(y, torch.full_like(x, expected))
