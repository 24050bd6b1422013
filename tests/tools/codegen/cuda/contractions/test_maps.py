"""Products that tensor maps feed, on the emulated device: tiles, clusters, edges, late groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings, valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import (
    WGMMA_MAPS,
    WGMMA_MAPS_FP8,
    WGMMA_MAPS_FP16,
)
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.languages import with_settings as with_values
from kernelwright.tools.types import DType, Setting

EMITTER = CudaEmitter()
# Copies of two to five dimensions, to this block, to two of a cluster, and back.
COPIES = """#include "kernelwright.cuh"
#include "kernelwright_mma.cuh"
extern "C" __global__ void copies(const __grid_constant__ kw::TensorMap map, float* y, int a) {
    unsigned char* into = kw::swizzled_shared();
    __shared__ unsigned long long barrier;
    kw::map_load(into, map, &barrier, a, a + 1);
    kw::map_load(into, map, &barrier, a, a + 1, a + 2);
    kw::map_load(into, map, &barrier, a, a + 1, a + 2, a + 3);
    kw::map_load(into, map, &barrier, a, a + 1, a + 2, a + 3, a + 4);
    kw::map_load_shared(into, map, &barrier, 3, a, a + 1);
    kw::map_load_shared(into, map, &barrier, 3, a, a + 1, a + 2);
    kw::map_load_shared(into, map, &barrier, 3, a, a + 1, a + 2, a + 3);
    kw::map_load_shared(into, map, &barrier, 3, a, a + 1, a + 2, a + 3, a + 4);
    kw::barrier_wait_for_others(&barrier, 0);
    kw::map_store(into, map, a, a + 1);
    kw::map_store(into, map, a, a + 1, a + 2);
    kw::map_store(into, map, a, a + 1, a + 2, a + 3);
    kw::map_store(into, map, a, a + 1, a + 2, a + 3, a + 4);
    kw::stores_commit();
    kw::stores_wait<0>();
    y[threadIdx.x] = into[threadIdx.x];
}
"""
# Ways that left and right lie: "n" as m x k and k x n, "t" the other way.
WAYS = ("nn", "nt", "tn", "tt")


def product(
    build: Any,
    way: str,
    m: int,
    n: int,
    k: int,
    kind: str = "float16",
    sums: DType = DType.FLOAT32,
) -> Any:
    """A batch of two, with a bias and an activation."""
    b = build({"b": 2, "m": m, "n": n}, {"k": k})
    b.sums = sums
    left = {"m": k, "k": 1} if way[0] == "n" else {"m": 1, "k": m}
    right = {"k": n, "n": 1} if way[1] == "n" else {"n": k, "k": 1}
    x, w = b.load("x", kind, b=m * k, **left), b.load("w", kind, b=n * k, **right)
    factors = (b.op("cast", one, dtype=kind) for one in (x, w))
    total = b.op("add", b.reduce("sum", b.op("mul", *factors)), b.load("bias", kind, n=1))
    b.store("y", b.op("relu", total), kind, b=m * n, m=n, n=1)
    return b


def scaled(build: Any, m: int, n: int, k: int) -> Any:
    """Numbers of eight bits, with a number for each factor."""
    b, kind = build({"m": m, "n": n}, {"k": k}), "float8_e4m3fn"
    x, w = b.load("x", kind, m=k, k=1), b.load("w", kind, n=k, k=1)
    factors = (b.op("cast", one, dtype=kind) for one in (x, w))
    total = b.op("mul", b.reduce("sum", b.op("mul", *factors)), b.load("scale"))
    b.store("y", total, "bfloat16", m=n, n=1)
    return b


def asked(build: Any, name: str, way: str, m: int, n: int, k: int) -> Any:
    """The product that a strategy is for."""
    if name == WGMMA_MAPS_FP8:
        return scaled(build, m, n, k)
    sums = DType.FLOAT16 if name == WGMMA_MAPS_FP16 else DType.FLOAT32
    return product(build, way, m, n, k, sums=sums)


# (way, tile, further settings)
QUICK: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("tt", 128064, {"CLUSTER": 2, "STAGES": 3, "TURNS": 1, "BOXES": 2}),
    ("nt", 64064, {"STAGES": 2, "SPLIT": 4}),
)
OTHERS: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("nt", 128256, {"CLUSTER": 2, "STAGES": 2, "BOXES": 1}),
    ("tn", 256128, {"CLUSTER": 2, "STAGES": 3, "LATE": 1, "SPAN": 32}),
    ("nn", 128128, {"CLUSTER": 2, "SPLIT": 2}),
    ("tt", 128128, {"CLUSTER": 2, "STAGES": 4, "LATE": 2, "SPAN": 64, "GROUP": 1}),
    ("tn", 64064, {"STAGES": 8, "BOXES": 4}),
    ("tt", 128064, {"STAGES": 3, "SPLIT": 3, "LATE": 1}),
    ("nn", 128256, {"CLUSTER": 2, "STAGES": 3, "LATE": 1, "SPAN": 64, "BOXES": 2}),
    ("nt", 128192, {"CLUSTER": 2, "STAGES": 2, "SPAN": 64, "BOXES": 2}),
    ("nn", 64128, {"CLUSTER": 2, "STAGES": 3}),
    ("nn", 64128, {"STAGES": 3, "SPLIT": 2}),
    ("nt", 64032, {"STAGES": 2}),
    ("nt", 64032, {"STAGES": 2, "SPLIT": 2}),
    ("nt", 128256, {"STAGES": 3, "SPLIT": 4}),
    ("tn", 128064, {"CLUSTER": 2, "SPLIT": 4}),
    ("nt", 64256, {"CLUSTER": 2, "STAGES": 2, "TURNS": 1, "BOXES": 2}),
    ("tn", 128128, {"STAGES": 6, "TURNS": 1, "BOXES": 1, "SPAN": 64}),
    ("nn", 64064, {"STAGES": 16, "TURNS": 1}),
    ("nt", 64032, {"STAGES": 3, "TURNS": 1}),
)
# The same with sums in fp16: tiles that only they have room for, and a depth that blocks share.
IN_HALVES: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("nn", 64128, {"STAGES": 3, "SPLIT": 2}),
    ("nt", 256256, {"CLUSTER": 2, "STAGES": 3, "SPAN": 64, "BOXES": 2}),
    ("tn", 256192, {"STAGES": 2, "SPAN": 64}),
    ("nn", 128256, {"STAGES": 3, "TURNS": 1, "BOXES": 2}),
)
# Factors of eight bits, promoted every step and every few, and a depth that blocks share.
IN_EIGHTS: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("nt", 64064, {"STAGES": 3, "PROMOTED": 4, "SPLIT": 2}),
    ("nt", 128128, {"CLUSTER": 2, "STAGES": 3, "PROMOTED": 1, "SPAN": 64, "BOXES": 1}),
    ("nt", 256064, {"STAGES": 2, "PROMOTED": 2}),
)
# What is not said of a tile.
PLAIN = {"CLUSTER": 1, "LATE": 0, "SPLIT": 1, "TURNS": 0, "BOXES": 0, "SPAN": 256, "STAGES": 16}
Compiled = Callable[..., list[Any]]


def first_quick(tiles: Sequence[object]) -> list[Any]:
    """The places of tiles: the first is tried every time, the others by `make test-all`."""
    return [0, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(1, len(tiles)))]


@pytest.fixture(scope="module")
def compiled(toolbox: SimpleNamespace, small_device: Hardware) -> Compiled:
    """`compiled(tiles)`: products under tiles, in one library."""

    def made(tiles: Sequence[tuple[str, int, dict[str, int]]], name: str = WGMMA_MAPS) -> list[Any]:
        found = []
        depth = 656 if name == WGMMA_MAPS_FP8 else 200
        for at, (way, tile, more) in enumerate(tiles):
            build = asked(toolbox.Build, name, way, 152, 328, depth)
            (one,) = toolbox.make_variants(
                {way: build}, small_device, settings=1, names=(name,),
                most_threads=384, start=at,
            )  # fmt: skip
            chosen = {
                f"K{at}_{name}": value for name, value in (PLAIN | {"TILE": tile, **more}).items()
            }
            label = f"{way} {tile} {more}"
            found.append(replace(one, label=label, settings=one.settings | chosen))
        toolbox.compile_emulated(found)
        return found

    return made


@pytest.fixture(scope="module")
def quick(compiled: Compiled) -> list[Any]:
    return compiled(QUICK)


@pytest.fixture(scope="module")
def others(compiled: Compiled) -> list[Any]:
    return compiled(OTHERS)


@pytest.mark.parametrize("at", range(len(QUICK)))
def test_a_tile_is_right(toolbox: SimpleNamespace, quick: list[Any], at: int) -> None:
    toolbox.check(*quick[at].run(), quick[at].loop)


@pytest.mark.exhaustive
@pytest.mark.parametrize("at", range(len(OTHERS)))
def test_every_other_tile_is_right(toolbox: SimpleNamespace, others: list[Any], at: int) -> None:
    toolbox.check(*others[at].run(), others[at].loop)


@pytest.fixture(scope="module")
def in_halves(compiled: Compiled) -> Callable[[int], Any]:
    return cache(lambda at: compiled(IN_HALVES[at : at + 1], WGMMA_MAPS_FP16)[0])


@pytest.mark.parametrize("at", first_quick(IN_HALVES))
def test_a_tile_summed_in_fp16_is_right_for_such_sums_alone(
    toolbox: SimpleNamespace, in_halves: Callable[[int], Any], at: int
) -> None:
    one = in_halves(at)
    got, wanted = one.run()
    toolbox.check(got, wanted, one.loop)
    exact = one.loop.model_copy(update={"sums": DType.FLOAT32})
    with pytest.raises(AssertionError, match="further off than sums"):
        toolbox.check(got, toolbox.truth(exact, one.build.buffers()), exact)


@pytest.fixture(scope="module")
def in_eights(compiled: Compiled) -> Callable[[int], Any]:
    return cache(lambda at: compiled(IN_EIGHTS[at : at + 1], WGMMA_MAPS_FP8)[0])


@pytest.mark.parametrize("at", first_quick(IN_EIGHTS))
def test_a_tile_of_eight_bits_is_right(
    toolbox: SimpleNamespace, in_eights: Callable[[int], Any], at: int
) -> None:
    one = in_eights(at)
    toolbox.check(*one.run(), one.loop)


def test_nobody_else_multiplies_numbers_of_eight_bits(toolbox: SimpleNamespace) -> None:
    loop = scaled(toolbox.Build, 256, 256, 256).loop("k")
    names = [one.name for one in EMITTER.strategies(loop, hardware_profile("H200"))]
    assert names == [WGMMA_MAPS_FP8]
    assert not EMITTER.strategies(loop, hardware_profile("A100"))


@pytest.mark.parametrize(("kind", "sums"), [("float16", "float32"), ("bfloat16", "float16")])
def test_nobody_is_offered_sums_in_fp16_unasked(
    toolbox: SimpleNamespace, kind: str, sums: str
) -> None:
    loop = product(toolbox.Build, "nt", 256, 256, 256, kind, DType(sums)).loop("k")
    names = {one.name for one in EMITTER.strategies(loop, hardware_profile("H200"))}
    assert WGMMA_MAPS in names
    assert WGMMA_MAPS_FP16 not in names


def _source(
    toolbox: SimpleNamespace, way: str, m: int, n: int, k: int, name: str = WGMMA_MAPS
) -> tuple[str, str]:
    device = hardware_profile("H200")
    loop = asked(toolbox.Build, name, way, m, n, k).loop("k")
    found = {one.name: one for one in EMITTER.strategies(loop, device)}
    emitted = EMITTER.emit(loop, found[name], "k", device)
    return EMITTER.header() + emitted.source, "\n".join(emitted.plan)


LARGE = {
    WGMMA_MAPS: (128256, 256128, 128128),
    WGMMA_MAPS_FP16: (256256, 256192, 128256),
    WGMMA_MAPS_FP8: (128192, 128128, 64192),
}
WAYS_OF = [("nt", name) for name in LARGE]
TURNED = [(way, name) for way in WAYS if way != "nt" for name in (WGMMA_MAPS, WGMMA_MAPS_FP16)]
OTHER_WAYS = WAYS_OF[1:] + TURNED


@pytest.mark.parametrize(
    ("way", "name"),
    [
        WAYS_OF[0],
        *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in WAYS_OF[1:] + TURNED),
    ],
)
async def test_large_tiles_compile_without_spills(
    toolbox: SimpleNamespace, way: str, name: str
) -> None:
    source, _ = _source(toolbox, way, 4096, 4096, 4096, name)
    parsed = parse_kernel(source, "cuda")
    plain = new_candidate("cuda", source, "def forward(x):\n    return x\n")
    (offered,) = (one.values for one in parsed.tunables if one.name == "K_TILE")
    tiles = [tile for tile in LARGE[name] if tile in offered]
    # Places of a left factor that is turned take what 256 x 256 sums leave of registers.
    assert tiles == [*LARGE[name]][256256 in LARGE[name] and way[0] == "t" :]
    for tile in tiles:
        values = complete_settings(parsed, [Setting(name="K_TILE", value=tile)])
        built = await compile_candidate(
            with_values(plain, values), architecture="sm_90a", timeout_s=120
        )
        assert isinstance(built, Built), built
        assert not any(one.spill_bytes or one.stack_bytes for one in built.reports), tile
        assert "C7510" not in built.log, tile  # products that wait for each other
        assert not await toolbox.never_runs(built.artifact)


def test_first_settings_are_those_of_the_size(toolbox: SimpleNamespace) -> None:
    firsts = {}
    for size in (4096, 2048, 256):
        source, _ = _source(toolbox, "nt", size, size, size)
        first = {one.name: one.value for one in valid_settings(parse_kernel(source, "cuda"))[0]}
        firsts[size] = first["K_TILE"], first["K_STAGES"], first["K_CLUSTER"]
    assert firsts[4096] == (128256, 16, 2)
    assert firsts[2048][:2] == (128256, 16)
    assert firsts[256][0] < 65000


def test_a_long_depth_is_shared_by_the_blocks_of_a_cluster(toolbox: SimpleNamespace) -> None:
    source, plan = _source(toolbox, "nt", 128, 128, 65536)
    first = {one.name: one.value for one in valid_settings(parse_kernel(source, "cuda"))[0]}
    assert first["K_SPLIT"] == 8
    assert "cluster=K_CLUSTER * K_SPLIT" in plan


def test_maps_say_where_factors_lie(toolbox: SimpleNamespace) -> None:
    _, plan = _source(toolbox, "nt", 96, 64, 80)
    assert re.search(r"tensor_map\(x, shape=\(2, 96, 80\), strides=\(7680, 80, 1\), offset=0", plan)
    assert re.search(r"tensor_map\(w, shape=\(2, 64, 80\), strides=\(5120, 80, 1\), offset=0", plan)
    _, plan = _source(toolbox, "tn", 96, 64, 80)
    assert "shape=(2, 80, 96), strides=(7680, 96, 1), offset=0, box=(1, 64, 64)" in plan


@pytest.mark.parametrize("sizes", [(96, 64, 81), (95, 64, 80)])
def test_odd_strides_are_left_to_others(
    toolbox: SimpleNamespace, sizes: tuple[int, int, int]
) -> None:
    loop = product(toolbox.Build, "tt", *sizes).loop("k")
    names = {one.name for one in EMITTER.strategies(loop, hardware_profile("H200"))}
    assert WGMMA_MAPS not in names


OTHER_ARCHITECTURES = (
    pytest.param(n, marks=pytest.mark.exhaustive) for n in ("sm_90", "sm_100a", "sm_120")
)


@pytest.mark.parametrize("architecture", ["sm_90a", *OTHER_ARCHITECTURES])
async def test_copies_of_every_rank_compile(toolbox: SimpleNamespace, architecture: str) -> None:
    candidate = new_candidate("cuda", COPIES, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
    assert isinstance(built, Built), built
    assert not await toolbox.never_runs(built.artifact)
