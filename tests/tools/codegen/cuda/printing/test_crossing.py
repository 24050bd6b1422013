"""Vectors that begin in one row and end in the next: right at every element, and really wide.

The emulator aborts at a vector access that is not aligned; what lies around outputs is poison.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.families.pointwise import NAMES
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.languages import Built, compile_candidate, new_candidate
from kernelwright.tools.languages.cuda.inspection import cubin_evidence

pytestmark = pytest.mark.exhaustive  # every variant is built before any is chosen

Kept = Callable[..., list[Any]]

H200 = hardware_profile("H200")
ROWS = ("short", "long", "many", "furthest")


def biased(build: Any, samples: int, channels: int, plane: int, dtype: str = "float32") -> Any:
    """What stands behind a library's convolution whose planes are of odd size."""
    b = build({"n": samples, "c": channels, "p": plane})
    steps = {"n": channels * plane, "c": plane, "p": 1}
    x = b.load("x", dtype, **steps)
    b.store("y", b.op("tanh", b.op("sub", x, b.load("bias", c=1))), dtype, **steps)
    return b


def mixed(build: Any) -> Any:
    """Two widths of elements, a plane that all samples share, a value found by an index."""
    b = build({"n": 6, "c": 5, "p": 7})
    steps = {"n": 35, "c": 7, "p": 1}
    x = b.load("x", "float16", **steps)
    token = b.load("token", "int64", n=1)
    b.highs |= {token: 9, "token": 9}
    scaled = b.op("fma", x, b.load("plane", c=7, p=1), b.load("table", **{token: 5, "c": 1}))
    b.store("y", scaled, **steps)
    b.store("small", b.op("relu", scaled), "bfloat16", **steps)
    return b


def within(build: Any) -> Any:
    """A value that is read only where a position allows, and a position that is computed with."""
    b = build({"n": 4, "c": 8, "p": 9})
    steps = {"n": 72, "c": 9, "p": 1}
    inside = b.op("lt", b.index("p"), b.const(5, "int64"), dtype="bool")
    edge = b.load("edge", when=inside, n=5, p=1)
    b.store("y", b.op("add", b.load("x", **steps), edge), **steps)
    return b


def normed(build: Any, samples: int, groups: int, channels: int, plane: int) -> Any:
    """A group norm over channels of odd planes, with a weight of each channel."""
    b = build({"n": samples, "g": groups}, {"c": channels, "p": plane})
    row = channels * plane
    steps = {"n": groups * row, "g": row, "c": plane, "p": 1}
    x = b.op("relu", b.load("x", **steps))
    mean = b.op("div", b.reduce("sum", x), b.const(float(row)))
    far = b.op("sub", x, mean)
    spread = b.op("div", b.reduce("sum", b.op("square", far)), b.const(float(row)))
    scaled = b.op("mul", far, b.op("rsqrt", b.op("add", spread, b.const(1e-3))))
    b.store("y", b.op("mul", scaled, b.load("w", g=channels, c=1)), **steps)
    return b


def furthest(build: Any) -> Any:
    """The position of a row's largest value, scaled by channel."""
    b = build({"n": 5}, {"c": 4, "p": 51})
    x = b.op("mul", b.load("x", n=204, c=51, p=1), b.load("w", c=1))
    b.store("y", b.reduce("argmax", x, "int64"), "int64", n=1)
    return b


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, swept: Kept) -> list[Any]:
    """All settings start with the widest vectors."""
    made = {
        "fours": biased(toolbox.Build, 4, 5, 333),
        "twos": biased(toolbox.Build, 2, 3, 77),
        "eights": biased(toolbox.Build, 8, 3, 35, "float16"),
        "mixed": mixed(toolbox.Build),
        "within": within(toolbox.Build),
    }
    variants: list[Any] = toolbox.make_variants(
        made, H200, settings=2, most_threads=64, names=NAMES
    )
    rows = {
        "short": normed(toolbox.Build, 3, 2, 4, 33),
        "long": normed(toolbox.Build, 3, 1, 4, 10001),
        "many": normed(toolbox.Build, 7, 3, 4, 4613),
        "furthest": furthest(toolbox.Build),
    }
    for kib in (200, 64):
        device = H200.model_copy(
            update={"sm_count": 4, "cache_mib": 1.0, "shared_kib_per_block": kib}
        )
        variants += toolbox.make_variants(
            rows if kib > 100 else {"many": rows["many"]},
            device,
            settings=1,
            most_threads=64,
            start=len(variants),
        )
    assert wide_of(variants) == {*("fours", "twos", "eights", "mixed", "within"), *ROWS}
    strategies = {v.strategy.name.removesuffix("_moments") for v in variants}
    assert {"block_rows_registers", "cluster_rows_partly", "grid_rows_partly"} < strategies
    assert {"split_rows_tiles", "wave_rows", "grid_rows_ring"} < strategies
    variants = swept(variants, lambda variant: variant.strategy.name)
    toolbox.compile_emulated(variants)
    return variants


def wide_of(variants: list[Any]) -> set[str]:
    """The loops that are tried with vectors."""
    return {v.label.split("-")[0] for v in variants if re.search("VECTOR[248]", v.label)}


def test_they_compute_what_the_loop_says(toolbox: SimpleNamespace, variants: list[Any]):
    for variant in variants:
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            raise AssertionError(f"{variant.label}: {error}") from error


def widths(b: Any) -> tuple[int, ...]:
    space = Case(b.loop("loop"), H200).along_rows
    return space.widths if space.crossing else ()


def test_only_where_rows_would_be_narrower_and_all_that_moves_much_has_no_gaps(
    toolbox: SimpleNamespace,
):
    build = toolbox.Build
    assert widths(biased(build, 4, 5, 333)) == (4, 2, 1)
    assert widths(biased(build, 8, 3, 35, "float16")) == (8, 4, 2, 1)
    assert widths(biased(build, 2, 3, 77)) == (2, 1)
    assert widths(mixed(build))[0] > 1
    # Rows of whole vectors need it not, and an odd number of elements has no vectors at all.
    assert widths(biased(build, 4, 5, 336)) == ()
    assert widths(biased(build, 3, 5, 333)) == ()
    assert widths(normed(build, 3, 2, 4, 33)) == (4, 2, 1)
    assert widths(normed(build, 3, 2, 3, 33)) == ()
    gaps = build({"n": 8, "p": 333})
    gaps.store("y", gaps.op("exp", gaps.load("x", n=340, p=1)), n=333, p=1)
    assert widths(gaps) == ()
    turned = build({"n": 64, "p": 33})
    turned.store("y", turned.op("exp", turned.load("x", n=1, p=64)), n=33, p=1)
    assert widths(turned) == ()


async def test_the_machine_code_moves_sixteen_bytes_at_once(toolbox: SimpleNamespace):
    loop = biased(toolbox.Build, 32, 64, 513 * 513).loop("odd")
    strategy = next(s for s in CudaEmitter().strategies(loop, H200) if s.name == NAMES[0])
    emitted = CudaEmitter().emit(loop, strategy, "k", H200)
    text = CudaEmitter().header() + emitted.source
    candidate = new_candidate("cuda", text, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    assert all((report.spill_bytes or 0) == 0 for report in built.reports)
    read = {item.name: item.value for item in await cubin_evidence(built.artifact)}
    assert read["k_map.store_width"] > 12
