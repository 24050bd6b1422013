"""Rings of bulk copies: they compute what the loop says however little of a row fits on chip.

The emulator fills a slot with poison until somebody has waited for its copy, so a read that comes
too early, or a copy that comes before everybody has read, is a wrong result here.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.families.reductions.ring import Ring
from kernelwright.tools.codegen.cuda.printing.case import Case

Kept = Callable[..., list[Any]]

H200 = hardware_profile("H200")
RING = "grid_rows_ring"


def two_loads(build: Any) -> Any:
    """Two buffers are copied, of two sizes; a third one is read by the first pass alone."""
    b = build({"n": 5}, {"c": 6600})
    x = b.op("add", b.load("x", n=6600, c=1), b.load("r", "bfloat16", n=6600, c=1))
    top = b.reduce("max", b.op("mul", x, b.load("w", c=1)))
    b.store("top", top, n=1)
    b.store("y", b.op("sub", x, top), n=6600, c=1)
    return b


def runs(build: Any) -> Any:
    """Batch norm: a row lies in runs that no tile fits evenly."""
    b = build({"c": 3}, {"n": 7, "s": 2512})
    steps = {"n": 3 * 2512, "c": 2512, "s": 1}
    x = b.load("x", **steps)
    mean = b.reduce("moments", x)
    scale = b.op("rsqrt", b.op("add", b.op("div", f"{mean}_m2", b.const(17584.0)), b.const(1e-5)))
    b.store("y", b.op("fma", b.op("sub", x, mean), scale, b.load("bias", c=1)), **steps)
    return b


def rounds(build: Any) -> Any:
    """Enough rows for a group to go round its ring several times; ends within a tile."""
    b = build({"n": 21}, {"c": 18448})
    x = b.load("x", n=18448, c=1)
    b.store("y", b.op("mul", x, b.op("rsqrt", b.reduce("sum", b.op("square", x)))), n=18448, c=1)
    return b


@pytest.fixture(scope="module")
def rings(toolbox: SimpleNamespace, swept: Kept) -> list[Any]:
    """Rings on devices that hold two rows, one, and little of it."""
    makers = (two_loads, runs, rounds)
    made = {make.__name__: make(toolbox.Build) for make in makers}
    variants: list[Any] = []
    for kib in (96, 64, 20):
        device = H200.model_copy(
            update={"sm_count": 4, "cache_mib": 1.0, "shared_kib_per_block": kib}
        )
        variants += toolbox.make_variants(
            made, device, settings=2, most_threads=128, names=(RING,), start=len(variants)
        )
    assert any("LAG1" in v.label for v in variants)
    variants = swept(variants, lambda variant: variant.label.split("-")[0])
    toolbox.compile_emulated(variants)
    return variants


def test_rings_compute_what_the_loop_says(toolbox: SimpleNamespace, rings: list[Any]):
    for variant in rings:
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            raise AssertionError(f"{variant.label}: {error}") from error


def norm(toolbox: SimpleNamespace, rows: int, columns: int, **load: int) -> Any:
    b = toolbox.Build({"n": rows}, {"c": columns})
    x = b.load("x", **({"n": columns, "c": 1} | load))
    b.store("y", b.op("mul", x, b.op("rsqrt", b.reduce("sum", b.op("square", x)))), n=columns, c=1)
    return b.loop("norm")


def names(loop: Any, hardware: Hardware = H200) -> list[str]:
    return [strategy.name for strategy in CudaEmitter().strategies(loop, hardware)]


def test_rings_need_rows_that_can_be_copied_and_a_device_that_copies(toolbox: SimpleNamespace):
    assert RING in names(norm(toolbox, 64, 1 << 18))
    ampere = hardware_profile("A100")
    assert RING not in names(norm(toolbox, 64, 1 << 18), ampere)
    # Rows that start at odd addresses, and rows that are read backwards.
    assert RING not in names(norm(toolbox, 64, (1 << 18) - 1))
    assert RING not in names(norm(toolbox, 64, 1 << 18, c=-1))


def ring(loop: Any) -> Ring:
    return Ring(Case(loop, H200))


def test_rows_that_fit_on_chip_are_promised_one_read(toolbox: SimpleNamespace):
    assert ring(norm(toolbox, 4096, 393216)).fits()[0].reads == 1.0
    assert ring(norm(toolbox, 1024, 1 << 18)).fits()[0].reads == 1.0


def test_larger_rows_are_read_again_as_far_as_neither_chip_nor_cache_holds_them(
    toolbox: SimpleNamespace,
):
    whole = ring(norm(toolbox, 64, 1 << 24)).fits()[0]
    # 64 MiB a row, of which about 17 stay in slots and about 15 in the cache, if one is under way.
    assert 1.4 < whole.reads < 1.8


def test_a_group_is_never_larger_than_what_runs_at_once(toolbox: SimpleNamespace):
    for fit in ring(norm(toolbox, 3, 1 << 24)).fits():
        assert fit.group <= fit.blocks * H200.sm_count
