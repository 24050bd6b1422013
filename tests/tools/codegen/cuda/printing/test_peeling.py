"""Rows that start at different distances from 16 bytes: wide accesses all the same, and no others.

The emulator aborts at a vector access that is not aligned; what lies between rows is poison.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.languages import Built, compile_candidate, new_candidate
from kernelwright.tools.languages.cuda.inspection import cubin_evidence

Kept = Callable[..., list[Any]]

H200 = hardware_profile("H200")
PEELED = ("block_rows_stream", "cluster_rows_stream", "cluster_rows_registers")


def odd(build: Any, rows: int, columns: int, between: int = 0, offset: int = 0) -> Any:
    """Rows with `between` elements of nobody's after each, from an offset on."""
    b = build({"n": rows}, {"c": columns})
    steps = {"offset": offset, "n": columns + between, "c": 1}
    x = b.load("x", **steps)
    e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
    b.store("y", b.op("div", e, b.reduce("sum", e)), **steps)
    return b


def weighted(build: Any) -> Any:
    """Two kept axes, two types, a value that is kept instead of its loads, a weight of a row."""
    b = build({"n": 3, "g": 5}, {"c": 2051})
    steps = {"n": 5 * 2051, "g": 2051, "c": 1}
    x = b.op("add", b.load("x", "float16", **steps), b.load("r", "float16", **steps))
    scale = b.op("rsqrt", b.reduce("sum", b.op("square", x)))
    b.store("y", b.op("mul", b.op("mul", x, scale), b.load("w", c=1)), **steps)
    b.store("h", x, "float16", **steps)
    return b


def halves(build: Any) -> Any:
    """Elements that no asynchronous copy can move one by one."""
    b = build({"n": 2}, {"c": 70001})
    x = b.load("x", "float16", n=70001, c=1)
    mean = b.op("div", b.reduce("sum", b.op("abs", x)), b.const(70001.0))
    b.store("y", b.op("div", x, mean), "float16", n=70001, c=1)
    return b


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, swept: Kept) -> list[Any]:
    """All settings start with the widest vectors."""
    device = H200.model_copy(update={"sm_count": 4, "cache_mib": 1.0})
    made = {
        "odd": odd(toolbox.Build, 5, 1003),
        "gaps": odd(toolbox.Build, 5, 1023, between=3, offset=5),
        "two": odd(toolbox.Build, 3, 1030),
        "long": odd(toolbox.Build, 2, 40003, between=2),
        "weighted": weighted(toolbox.Build),
        "halves": halves(toolbox.Build),
    }
    variants: list[Any] = toolbox.make_variants(
        made, device, settings=2, names=(*PEELED, "block_rows_registers")
    )
    # Devices that hold a part of a share too.
    for kib in (227, 20):
        small = device.model_copy(update={"shared_kib_per_block": kib})
        some = {name: made[name] for name in ("long", "halves")}
        variants += toolbox.make_variants(
            some, small, settings=2, names=("cluster_rows_partly",), start=len(variants)
        )
    wide = {v.strategy.name for v in variants if "VECTOR4" in v.label or "VECTOR8" in v.label}
    assert wide == {*PEELED, "block_rows_registers", "cluster_rows_partly"}
    variants = swept(variants, lambda variant: variant.strategy.name)
    toolbox.compile_emulated(variants)
    return variants


def test_they_compute_what_the_loop_says_and_write_nothing_else(
    toolbox: SimpleNamespace, variants: list[Any]
):
    for variant in variants:
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            raise AssertionError(f"{variant.label}: {error}") from error


def widths(build: Any) -> tuple[int, ...]:
    peeled = Case(build.loop("loop"), H200).peeled_rows
    return peeled.widths if peeled else ()


def test_rows_are_peeled_where_all_that_moves_much_starts_alike(toolbox: SimpleNamespace):
    assert widths(odd(toolbox.Build, 64, 65535)) == (4, 2, 1)
    assert widths(weighted(toolbox.Build))[0] > 1
    # Rows that are aligned need it not, and short ones would be ends for the most part.
    assert widths(odd(toolbox.Build, 64, 65536)) == ()
    assert widths(odd(toolbox.Build, 64, 77)) == ()
    b = toolbox.Build({"n": 64}, {"c": 65535})
    x = b.load("x", n=65536, c=1)
    b.store("y", b.op("div", x, b.reduce("sum", x)), n=65535, c=1)
    assert widths(b) == ()


def test_the_position_of_an_extremum_keeps_its_order(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 64}, {"c": 65535})
    b.store("y", b.reduce("argmax", b.load("x", n=65535, c=1), "int64"), "int64", n=1)
    assert widths(b) == ()


@pytest.mark.parametrize(
    "name", [PEELED[0], *(pytest.param(n, marks=pytest.mark.exhaustive) for n in PEELED[1:])]
)
async def test_the_machine_code_moves_sixteen_bytes_at_once(toolbox: SimpleNamespace, name: str):
    loop = odd(toolbox.Build, 32768, 65535).loop("odd")
    strategy = next(s for s in CudaEmitter().strategies(loop, H200) if s.name == name)
    emitted = CudaEmitter().emit(loop, strategy, "k", H200)
    text = CudaEmitter().header() + emitted.source
    candidate = new_candidate("cuda", text, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    assert all((report.spill_bytes or 0) == 0 for report in built.reports)
    read = {item.name: item.value for item in await cubin_evidence(built.artifact)}
    assert read["k_rows.load_width"] > 12
    assert read["k_rows.store_width"] > 12
