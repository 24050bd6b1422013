"""Rows read as they lie and stored beside each other: odd sizes, windows of lines, several outputs.

The emulator aborts at a vector access that is not aligned; what is not stored is poison.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.families.tiles.rows_turned import NAMES, TurnedRowsCode, emit
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.languages import parse_kernel

Kept = Callable[..., list[Any]]

H200 = hardware_profile("H200")


def softmax(
    build: Any, n: int, s: int, c: int, read: str = "float32", stored: str = "float32"
) -> Any:
    """Over channels that lie last, stored channels first."""
    b = build({"n": n, "s": s}, {"c": c})
    kind = "float64" if read == "float64" else "float32"
    x = b.load("x", read, n=s * c, c=1, s=c)
    top = b.reduce("max", x, dtype=kind)
    e = b.op("exp", b.op("sub", x, top, dtype=kind), dtype=kind)
    y = b.op("div", e, b.reduce("sum", e, dtype=kind), dtype=kind)
    b.store("y", y, stored, n=s * c, c=s, s=1)
    return b


def norm(build: Any, s: int, c: int) -> Any:
    """With weights by channel, a second stream, a value by position, and what is one a row."""
    b = build({"n": 3, "s": s}, {"c": c})
    x = b.op("add", b.load("x", n=s * c, c=1, s=c), b.load("r", "float16", n=s * c, c=1, s=c))
    x = b.op("mul", x, b.load("mask", s=1))
    mean = b.reduce("moments", x)
    spread = b.op("div", f"{mean}_m2", b.const(float(c)))
    scale = b.op("rsqrt", b.op("add", spread, b.const(1e-5)))
    y = b.op("mul", b.op("sub", x, mean), scale)
    y = b.op("fma", y, b.load("w", c=1), b.load("v", c=1))
    b.store("y", y, n=s * c, c=s, s=1)
    b.store("mean", mean, n=s, s=1)
    b.store("mask2", b.op("add", b.load("mask", s=1), b.load("style", n=1)), n=s, s=1)
    return b


def several(build: Any, s: int, c: int) -> Any:
    """One output across rows in two types, one along them, and rows of two groups' planes."""
    b = build({"n": 2, "g": 3, "s": s}, {"c": c})
    x = b.load("x", n=s * 3 * c, g=c, s=3 * c, c=1)
    y = b.op("sub", x, b.reduce("max", b.op("abs", x)))
    b.store("y", y, n=3 * c * s, g=c * s, c=s, s=1)
    b.store("h", b.op("tanh", y), "float16", n=3 * c * s, g=c * s, c=s, s=1)
    b.store("z", y, n=s * 3 * c, g=c, s=3 * c, c=1)
    return b


def reversed_channels(build: Any, s: int) -> Any:
    """Stored from the last channel to the first, a few elements behind the buffer's begin."""
    b = build({"s": s}, {"c": 24})
    x = b.load("x", offset=23, c=-1, s=24)
    y = b.op("div", x, b.op("sqrt", b.reduce("sum", b.op("square", x))))
    b.store("y", y, offset=3 + 23 * s, c=-s, s=1)
    return b


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, swept: Kept) -> list[Any]:
    build = toolbox.Build
    made = {
        "aligned": softmax(build, 2, 96, 64),
        "edges": softmax(build, 2, 132, 40),
        "short": softmax(build, 3, 12, 48),
        "odd rows": softmax(build, 2, 77, 24),
        "long odd rows": softmax(build, 2, 201, 36),
        "odd both": softmax(build, 1, 131, 67),
        "few channels": softmax(build, 2, 260, 3),
        "two channels": softmax(build, 2, 70, 2),
        "many channels": softmax(build, 1, 20, 516),
        "halves": softmax(build, 2, 72, 72, "float16", "float16"),
        "long odd halves": softmax(build, 2, 199, 36, "bfloat16", "bfloat16"),
        "doubles": softmax(build, 1, 66, 34, "float64", "float64"),
        "norm": norm(build, 64, 32),
        "odd norm": norm(build, 83, 33),
        "several": several(build, 64, 20),
        "several, odd": several(build, 147, 10),
        "reversed": reversed_channels(build, 44),
        "reversed, odd": reversed_channels(build, 99),
    }
    found: list[Any] = toolbox.make_variants(made, H200, settings=4, most_threads=256, names=NAMES)
    assert {v.loop.name for v in found} == set(made)
    found = swept(found, lambda variant: (variant.strategy.name, "odd" in variant.loop.name))
    toolbox.compile_emulated(found)
    return found


def test_they_compute_what_the_loop_says_and_write_nothing_else(
    toolbox: SimpleNamespace, variants: list[Any]
):
    wrong = []
    for variant in variants:
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            wrong.append(f"{variant.label}: {error}")
    assert not wrong, "\n".join(wrong)


def code(build: Any) -> TurnedRowsCode:
    case = Case(build.loop("loop"), H200)
    return TurnedRowsCode(case.nest, case.along_rows)


def test_lines_are_stored_in_vectors_or_in_windows(toolbox: SimpleNamespace):
    build = toolbox.Build
    aligned = code(softmax(build, 2, 96, 64))
    assert ([store.chunk for store in aligned.stores], aligned.slides) == ([4], False)
    odd = code(softmax(build, 2, 201, 36))
    assert ([store.chunk for store in odd.stores], odd.slides, odd.slide) == ([1], True, 8)
    assert code(softmax(build, 2, 199, 36, "float16", "float16")).slide == 16
    assert not code(softmax(build, 2, 51, 36)).slides


def names(build: Any) -> list[str]:
    return [one.name for one in CudaEmitter().strategies(build.loop("loop"), H200)]


def test_they_come_first_where_rows_are_stored_across_and_nowhere_else(toolbox: SimpleNamespace):
    build = toolbox.Build
    assert names(softmax(build, 2, 50_000, 64))[0].startswith(NAMES[0])
    # A warp cannot hold these rows, and here a sector is never filled.
    assert not any(name.startswith(NAMES[0]) for name in names(softmax(build, 2, 500, 5000)))
    assert not any(name.startswith(NAMES[0]) for name in names(softmax(build, 200, 4, 64)))
    along = build({"n": 5000}, {"c": 64})
    x = along.load("x", n=64, c=1)
    along.store("y", along.op("sub", x, along.reduce("max", x)), n=64, c=1)
    assert not any(name.startswith(NAMES[0]) for name in names(along))


@pytest.mark.parametrize("shared_kib", [227, 99, 48])
@pytest.mark.parametrize(("s", "c"), [(4096, 64), (4097, 512), (4096, 1024), (4097, 1024)])
def test_where_they_are_offered_some_setting_fits_the_device(
    toolbox: SimpleNamespace, shared_kib: int, s: int, c: int
):
    device = H200.model_copy(update={"shared_kib_per_block": shared_kib})
    case = Case(softmax(toolbox.Build, 8, s, c).loop("loop"), device)
    offered = [one for one in CudaEmitter().strategies(case.loop, device) if one.name == NAMES[0]]
    assert bool(offered) == (shared_kib > 48 or c < 1024)
    for one in offered:
        emitted = emit(case, one.name, "k")
        assert valid_settings(parse_kernel(emitted.source, "cuda"))
