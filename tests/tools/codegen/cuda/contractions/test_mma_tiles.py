"""Products of 16-bit factors on the emulated device: every way to lie, to be cut off, to go on."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import WGMMA_MAPS
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import MMA_TILES
from kernelwright.tools.codegen.ir.kernel_family import Emitter
from kernelwright.tools.languages import Built, compile_candidate, new_candidate

STRATEGIES = (MMA_TILES, WGMMA_MAPS)
M, N, K = 72, 48, 80


def _product(build: Any, kind: str, left: dict[str, int], right: dict[str, int], **sizes: int):
    """left[m, k] times right[k, n] with a bias and a relu, at these strides."""
    m, n, k = (sizes.get(name, size) for name, size in zip("mnk", (M, N, K), strict=True))
    b = build({"m": m, "n": n}, {"k": k})
    total = _sum(b, b.load("x", kind, **left), b.load("w", kind, **right), kind)
    b.store("y", b.op("relu", b.op("add", total, b.load("bias", kind, n=1))), kind, m=n, n=1)
    return b


def _sum(b: Any, left: str, right: str, kind: str) -> str:
    """The sum of products that the module takes in a half type."""
    factors = (b.op("cast", factor, dtype=kind) for factor in (left, right))
    return b.reduce("sum", b.op("mul", *factors))


def plain(build: Any) -> Any:
    return _product(build, "float16", {"m": K, "k": 1}, {"k": N, "n": 1})


def linear(build: Any) -> Any:
    return _product(build, "bfloat16", {"m": K, "k": 1}, {"n": K, "k": 1})


def transposed(build: Any) -> Any:
    return _product(build, "float16", {"k": M, "m": 1}, {"k": N, "n": 1})


def odd(build: Any) -> Any:
    """No size is a multiple of eight, so nothing lies in 16-byte pieces."""
    sizes = {"m": 35, "n": 51, "k": 37}
    return _product(build, "float16", {"m": 37, "k": 1}, {"k": 51, "n": 1}, **sizes)


def far_apart(build: Any) -> Any:
    """Neither factor is contiguous anywhere, and both begin somewhere else."""
    b = build({"m": 40, "n": 24}, {"k": 48})
    x = b.load("x", "bfloat16", offset=3, m=100, k=2)
    w = b.load("w", "bfloat16", k=75, n=3)
    b.store("y", _sum(b, x, w, "bfloat16"), "bfloat16", m=1, n=40)
    return b


def batched(build: Any) -> Any:
    """A batch of two axes, and a depth of two that lie apart."""
    b = build({"b": 2, "h": 3, "m": 32, "n": 40}, {"j": 3, "k": 16})
    x = b.load("x", "float16", b=32 * 16 * 9, m=16 * 9, h=16, j=48, k=1)
    w = b.load("w", "float16", b=40 * 48, j=16 * 40, k=40, n=1)
    b.store("y", _sum(b, x, w, "float16"), "float16", b=3840, h=1280, m=40, n=1)
    return b


def masked(build: Any) -> Any:
    """The lower triangle of the left factor, activated, times the right one; a residual after.

    What is computed on the way in is rounded to 16 bits, so here it is something exact.
    """
    b = build({"m": M, "n": N}, {"k": K})
    keep = b.op("le", b.index("k"), b.index("m"), dtype="bool")
    x = b.op("relu", b.op("neg", b.load("x", "float16", m=K, k=1)))
    x = b.op("where", keep, x, b.const(0.0))
    total = _sum(b, x, b.load("w", "float16", k=N, n=1), "float16")
    residual = b.load("r", "float16", m=1, n=M)
    b.store("y", b.op("add", total, residual), "float16", m=N, n=1)
    return b


def triangle(build: Any) -> Any:
    """The lower triangle of a product of float32, rounded to halves; tiles above have no sum."""
    b = build({"m": 160, "n": 160}, {"k": K})
    x, w = b.load("x", m=K, k=1), b.load("w", "float16", k=160, n=1)
    keep = b.op("le", b.index("n"), b.index("m"), dtype="bool")
    b.store("y", b.op("where", keep, _sum(b, x, w, "float16"), b.const(0.0)), m=160, n=1)
    b.fills["x"] = lambda x: x.copy_(x.half())
    return b


def padded(build: Any) -> Any:
    """A batch of rows with a gap behind each, whose ends no tile meets; of halves, a triangle."""
    b = build({"b": 3, "m": 150, "n": 70}, {"k": 45})
    x = b.load("x", "float16", offset=8, b=150 * 56, m=56, k=1)
    w = b.load("w", "float16", b=45 * 80, k=80, n=1)
    keep = b.op("le", b.index("n"), b.index("m"), dtype="bool")
    total = b.op("where", keep, _sum(b, x, w, "float16"), b.const(0.0))
    b.store("y", total, "float16", b=150 * 70, m=70, n=1)
    return b


def deep(build: Any) -> Any:
    """The ring goes round several times, and a persistent block takes several tiles."""
    sizes = {"m": 136, "n": 200, "k": 584}
    return _product(build, "float16", {"m": 584, "k": 1}, {"k": 200, "n": 1}, **sizes)


CASES = (deep, padded, triangle, plain, linear, transposed, odd, far_apart, batched, masked)


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, small_device: Hardware) -> list[Any]:
    builds = {case.__name__: case(toolbox.Build) for case in CASES}
    made = toolbox.make_variants(
        builds, small_device, settings=2, names=STRATEGIES, most_threads=384
    )
    toolbox.compile_emulated(made)
    return made


@pytest.mark.exhaustive
def test_every_product_is_taken(variants: list[Any]) -> None:
    taken = {tuple(variant.label.split("-")[:2]) for variant in variants}
    mapped = {(case.__name__, WGMMA_MAPS) for case in (deep, padded, plain, linear, transposed)}
    assert taken == {(case.__name__, MMA_TILES) for case in CASES} | mapped


@pytest.mark.exhaustive
def test_every_product_is_right_and_reads_without_conflicts(
    toolbox: SimpleNamespace, variants: list[Any]
) -> None:
    wrong = []
    for variant in variants:
        device = ctypes.CDLL(str(variant.library[0]))
        device.matrix_bank_conflicts()
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            wrong.append(f"{variant.label}: {error}")
        assert device.matrix_bank_conflicts() == 0, variant.label
    assert not wrong, "\n".join(wrong)


DEVICES = ("A100", "RTX 3090", "L40S", "H200", "B200", "RTX 5090")
# What is predicted fastest there.
BEST = {"A100": MMA_TILES, "H200": WGMMA_MAPS, "RTX 5090": MMA_TILES}


@pytest.mark.parametrize(
    "device",
    ["H200", *(pytest.param(d, marks=pytest.mark.exhaustive) for d in BEST if d != "H200")],
)
async def test_first_settings_compile_without_spills(
    toolbox: SimpleNamespace, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = await _compiled(toolbox, device, linear, monkeypatch)
    assert min(times, key=lambda name: times[name]) == BEST[device]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("device", "case"),
    # Each case on every second device, in turn.
    [(device, case) for at, case in enumerate(CASES) for device in DEVICES[at % 2 :: 2]],
)
async def test_every_first_setting_compiles_without_spills(
    toolbox: SimpleNamespace, device: str, case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _compiled(toolbox, device, case, monkeypatch)


async def _compiled(
    toolbox: SimpleNamespace, device: str, case: Any, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    """The times predicted for 4096 cubed; every strategy on tensor cores compiles."""
    for name in "MNK":
        monkeypatch.setitem(globals(), name, 4096)
    emitter: Emitter = CudaEmitter()
    hardware = hardware_profile(device)
    loop = case(toolbox.Build).loop("k")
    found = {one.name: one for one in emitter.strategies(loop, hardware)}
    for name in {*found} & {*STRATEGIES}:
        source = emitter.header() + emitter.emit(loop, found[name], "k", hardware).source
        candidate = new_candidate("cuda", source, "def forward(x):\n    return x\n")
        architecture = hardware.architecture
        built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
        assert isinstance(built, Built), built
        assert all(not report.spill_bytes for report in built.reports)
        assert not await toolbox.never_runs(built.artifact)
    return {name: emitter.predicted_ms(loop, one, hardware) for name, one in found.items()}
