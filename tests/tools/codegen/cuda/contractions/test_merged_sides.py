"""Sides that both factors walk as one, under epilogues that tell their parts apart.

A gate for each image and a position's embedding for all images are reads of parts of the rows; a
bias for each place of a head is one of parts of the columns. On the emulated device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.mapped.factors import reads_matrix
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import WGMMA_MAPS
from kernelwright.tools.codegen.ir.contraction import contraction_of
from kernelwright.tools.languages import Built, compile_candidate, new_candidate

EMITTER, H200 = CudaEmitter(), hardware_profile("H200")
Sizes = tuple[int, ...]


def layer(
    build: Any,
    kind: str,
    rows: Sizes,
    columns: Sizes,
    reads: Mapping[str, str],
    *,
    depth: int = 72,
    stored: str = "",
    turned: bool = False,
) -> Any:
    """A layer with rows and columns of several axes, `r0`, `r1` and `c0`, and what is added to it.

    Args:
        build: The loop's writer.
        kind: The type of everything in memory.
        rows: Sizes of the rows' axes.
        columns: Sizes of the columns' axes.
        reads: For each buffer that the epilogue reads, the axes that it lies along, in order.
        depth: Summands.
        stored: The axes of the results, in order; as rows and columns are where it is "".
        turned: Whether the right factor lies along its columns.
    """
    sizes = {f"r{at}": size for at, size in enumerate(rows)}
    sizes |= {f"c{at}": size for at, size in enumerate(columns)}
    b = build(sizes, {"k": depth})

    def dense(axes: str, inner: int = 1) -> dict[str, int]:
        steps: dict[str, int] = {}
        for name in reversed(axes.split()):
            steps[name], inner = inner, inner * sizes[name]
        return steps

    down, across = (" ".join(name for name in sizes if name[0] == side) for side in "rc")
    x = b.load("x", kind, **dense(down, depth), k=1)
    right = {**dense(across), "k": prod(columns)} if turned else {**dense(across, depth), "k": 1}
    w = b.load("w", kind, **right)
    if kind != "float32":
        x, w = (b.op("cast", one, dtype=kind) for one in (x, w))
    total = b.reduce("sum", b.op("mul", x, w))
    for name, axes in reads.items():
        total = b.op("mul" if "gate" in name else "add", total, b.load(name, kind, **dense(axes)))
    b.store("y", total, kind, **dense(stored or f"{down} {across}"))
    return b


def prod_of(sizes: Sizes) -> int:
    """Positions of axes of these sizes."""
    found = 1
    for size in sizes:
        found *= size
    return found


# Of each: rows, columns, what is read, and more. Rows are more than a tile has and end within one;
# most parts end within tiles, and within neighbours that are stored at once.
GATED = {"bias": "c0", "gate": "r0 c0", "residual": "r0 r1 c0"}
CASES: dict[str, tuple[Sizes, Sizes, Mapping[str, str], dict[str, Any]]] = {
    "gated": ((3, 47), (72,), GATED, {}),
    "odd_columns": ((70,), (8, 9), {"gate": "c0", "z": "r0 c0 c1", "bias": "r0 c1"}, {}),
    "heads": ((3, 47), (3, 24), {"bias": "c0 c1"}, {"stored": "r0 c0 r1 c1"}),
    "placed": ((3, 47), (72,), {"z": "r0 r1 c0", "places": "r1 c0"}, {"turned": True}),
    "whole_tiles": ((2, 64), (64,), GATED, {}),
    "of_rows_alone": ((3, 47), (72,), {"gate": "r0", "scale": "r1"}, {}),
    "three": ((2, 5, 13), (40,), {"a": "r0 c0", "gate": "r1 c0", "c": "r2 c0", "d": "r0 r2"}, {}),
    "two_of_three": ((2, 5, 13), (40,), {"gate": "r0 r1 c0", "last": "r1 r2"}, {}),
    "columns": ((130,), (5, 16), {"gate": "c0", "z": "r0 c0 c1", "bias": "c1"}, {}),
    "long_columns": ((130,), (2, 64), {"gate": "r0 c0", "bias": "c1"}, {}),
    "odd_bias": ((70,), (8, 9), {"bias": "c1", "gate": "r0"}, {}),
    "both": ((3, 47), (3, 24), {"gate": "r0 c1", "table": "r1 c0"}, {"turned": True}),
    "odd_heads": ((3, 16), (8, 9), {"bias": "c1"}, {"stored": "r0 c0 r1 c1"}),
    "deep": ((2, 35), (40,), GATED, {"depth": 2056}),
}
QUICK = ("gated", "odd_columns", "heads")
MAPS, HALVES = (WGMMA_MAPS,), (WGMMA_MAPS, "mma_tiles", "simt_tiles")
IN_FLOAT32 = ("gated", "three", "odd_columns", "heads", "deep")
# Results that blocks join, and those that leave through boxes.
WAYS = (
    ("deep", {"TILE": 64064, "SPLIT": 3}),
    ("gated", {"TILE": 128064, "BOXES": 2, "SPAN": 64}),
    ("placed", {"TILE": 64064, "BOXES": 1, "TURNS": 1, "SPAN": 64}),
    ("long_columns", {"TILE": 64064, "BOXES": 2, "SPAN": 64}),
    ("odd_bias", {"TILE": 64064, "BOXES": 1, "SPAN": 64}),
    ("of_rows_alone", {"TILE": 64064, "BOXES": 2, "SPAN": 64}),
    ("gated", {"TILE": 128128, "CLUSTER": 2, "BOXES": 0, "SPAN": 64}),
)
PLAIN = {"CLUSTER": 1, "LATE": 0, "SPLIT": 1, "TURNS": 0, "BOXES": 0, "STAGES": 4}
Variants = Callable[..., list[Any]]


def made(toolbox: SimpleNamespace, name: str, kind: str = "bfloat16") -> Any:
    """One of the cases."""
    rows, columns, reads, more = CASES[name]
    return layer(toolbox.Build, kind, rows, columns, reads, **more)


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, small_device: Hardware) -> Variants:
    """`variants(names, kind, strategies)`: cases under the first setting of each strategy."""

    def found(names: Sequence[str], kind: str, strategies: Sequence[str] = ()) -> list[Any]:
        builds = {name: made(toolbox, name, kind) for name in names}
        listed: list[Any] = toolbox.make_variants(
            builds, small_device, settings=1, names=strategies, most_threads=384
        )
        toolbox.compile_emulated(listed)
        return listed

    return found


def check_all(toolbox: SimpleNamespace, listed: Sequence[Any], *, least: int) -> None:
    """What all of them write is right."""
    assert len(listed) >= least
    for one in listed:
        toolbox.check(*one.run(), one.loop)


def test_maps_take_parts_of_rows_and_columns(toolbox: SimpleNamespace, variants: Variants) -> None:
    check_all(toolbox, variants(QUICK, "bfloat16", MAPS), least=len(QUICK))


@pytest.mark.exhaustive
def test_every_family_tells_parts_apart(toolbox: SimpleNamespace, variants: Variants) -> None:
    check_all(toolbox, variants([*CASES], "float16", HALVES), least=3 * len(CASES))


@pytest.mark.exhaustive
def test_every_family_does_in_float32(toolbox: SimpleNamespace, variants: Variants) -> None:
    listed = variants(IN_FLOAT32, "float32")
    assert len({one.strategy.name for one in listed}) > 4
    check_all(toolbox, listed, least=4 * len(IN_FLOAT32))


@pytest.fixture(scope="module")
def in_ways(toolbox: SimpleNamespace, small_device: Hardware) -> list[Any]:
    found = []
    for at, (name, wanted) in enumerate(WAYS):
        (one,) = toolbox.make_variants(
            {name: made(toolbox, name)}, small_device, settings=1, names=MAPS,
            most_threads=384, start=at,
        )  # fmt: skip
        chosen = {f"K{at}_{key}": value for key, value in (PLAIN | wanted).items()}
        found.append(replace(one, settings=one.settings | chosen))
    toolbox.compile_emulated(found)
    return found


@pytest.mark.parametrize("at", range(len(WAYS)))
def test_joined_and_boxed_results_tell_parts_apart(
    toolbox: SimpleNamespace, in_ways: list[Any], at: int
) -> None:
    toolbox.check(*in_ways[at].run(), in_ways[at].loop)


def slid(build: Any) -> Any:
    """Windows of three rows over an image, and a number for each of its columns."""
    height, width, channels, outputs = 20, 24, 32, 40
    b = build({"h": height - 2, "w": width, "o": outputs}, {"r": 3, "c": channels})
    line = width * channels
    x = b.load("x", "bfloat16", h=line, w=channels, r=line, c=1)
    k = b.load("k", "bfloat16", o=3 * channels, r=channels, c=1)
    x, k = (b.op("cast", one, dtype="bfloat16") for one in (x, k))
    total = b.op("add", b.reduce("sum", b.op("mul", x, k)), b.load("places", "bfloat16", w=1))
    b.store("y", total, "bfloat16", h=width * outputs, w=outputs, o=1)
    return b


@pytest.mark.exhaustive
def test_windows_tell_parts_of_their_places_apart(
    toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    build = slid(toolbox.Build)
    listed = toolbox.make_variants({"slid": build}, small_device, settings=1, most_threads=384)
    toolbox.compile_emulated(listed)
    assert [one.strategy.name for one in listed] == ["wgmma_windows"]
    check_all(toolbox, listed, least=1)


def _source(build: Any, name: str = WGMMA_MAPS) -> tuple[str, str]:
    loop = build.loop("k")
    strategy = next(one for one in EMITTER.strategies(loop, H200) if one.name == name)
    emitted = EMITTER.emit(loop, strategy, "k", H200)
    return emitted.source, "\n".join(emitted.plan)


def test_only_what_tells_parts_apart_is_decoded(toolbox: SimpleNamespace) -> None:
    source, plan = _source(made(toolbox, "gated"))
    assert "tensor_map(x, shape=(141, 72), strides=(72, 1)" in plan
    assert "tensor_map(y, shape=(141, 72)" in plan
    assert "const int row_0_0 = (int)((unsigned int)row_0 / 47u);" in source
    # Eight numbers of a gate at once, as of what has no parts.
    assert "kw::load<kw::DEFAULT, 8>(g_gate + (column_0 + row_0_0 * 72))" in source
    assert "kw::load<kw::DEFAULT, 8>(g_residual + (column_0 + row_0 * 72))" in source


def test_neighbours_that_cross_parts_find_their_own(toolbox: SimpleNamespace) -> None:
    source, plan = _source(made(toolbox, "odd_columns"))
    assert "tensor_map(y" not in plan  # whose boxes have two neighbours at a time
    assert "const int column_0_1 = (int)((unsigned int)(column_0 + k) % 9u);" in source
    assert "kw::load_one<kw::DEFAULT>(g_bias + (column_0_1 + row_0 * 9))" in source
    assert "kw::load<kw::DEFAULT, 8>(g_z + (column_0 + row_0 * 72))" in source


def test_a_gate_of_whole_images_is_read_as_a_bias_is(toolbox: SimpleNamespace) -> None:
    """Its rows are longer than a box, so that nothing waits for it as for a matrix."""

    def reads(rows: Sizes, axes: str) -> bool:
        build = layer(toolbox.Build, "bfloat16", rows, (64,), {"gate": axes})
        found = contraction_of(build.loop("k"))
        assert found is not None
        return reads_matrix(found)

    assert not reads((4, 64), "r0 c0")
    assert reads((4, 64), "r1 c0")
    assert reads((64, 4), "r0 c0")


@pytest.mark.parametrize("name", ["gated", "odd_columns"])
async def test_they_compile_without_spills(toolbox: SimpleNamespace, name: str) -> None:
    source, _ = _source(made(toolbox, name))
    plain = new_candidate("cuda", EMITTER.header() + source, "def forward(x):\n    return x\n")
    built = await compile_candidate(plain, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    assert not any(one.spill_bytes or one.stack_bytes for one in built.reports)
