"""Tiles read along one axis and stored along another: vectors both ways, odd sizes, tile edges.

The emulator aborts at a vector access that is not aligned; what is not stored is poison.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.families.tiles.transposed import (
    NAMES,
    across_of,
    part,
    runs,
    window,
)
from kernelwright.tools.codegen.cuda.families.tiles.turned_tiles import TurnedCode
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.languages import Built, compile_candidate, new_candidate
from kernelwright.tools.languages.cuda.inspection import disassemble

Kept = Callable[..., list[Any]]

H200 = hardware_profile("H200")


def turned(
    build: Any, n: int, s: int, c: int, read: str = "float32", stored: str = "float32"
) -> Any:
    """Channels last, stored first."""
    b = build({"n": n, "c": c, "s": s})
    x = b.load("x", read, n=s * c, c=1, s=c)
    kind = "float64" if read == "float64" else "float32"
    b.store("y", b.op("mul", x, b.const(1.5, kind), dtype=kind), stored, n=s * c, c=s, s=1)
    return b


def repeated(build: Any, n: int, times: int) -> Any:
    """Each element several times: a long side, and one of a few elements."""
    b = build({"n": n, "times": times})
    x = b.op("mul", b.load("x", n=1), b.const(1.5))
    b.store("y", x, n=times, times=1)
    return b


def tail(build: Any, n: int, s: int, c: int, read: str = "float32") -> Any:
    """A convolution's: by channel, by position, by image and channel, and a second stream."""
    b = build({"n": n, "c": c, "s": s})
    x = b.op("add", b.load("x", read, n=s * c, c=1, s=c), b.load("bias", c=1))
    x = b.op("mul", x, b.load("mask", "float16", s=1))
    x = b.op("add", x, b.load("style", n=c, c=1))
    b.store("y", b.op("add", x, b.load("r", n=s * c, c=1, s=c)), n=s * c, c=s, s=1)
    return b


def grouped(build: Any, groups: int, each: int, s: int) -> Any:
    """Channels of groups: two axes, since means are a group's; the image's two lie short too."""
    c = groups * each
    b = build({"n": 2, "g": groups, "c": each, "h": s, "w": s})
    x = b.load("x", n=s * s * c, g=each, c=1, h=s * c, w=c)
    x = b.op("mul", b.op("sub", x, b.load("mean", n=groups, g=1)), b.load("weight", g=each, c=1))
    x = b.op("mul", x, b.load("rows", h=1))
    b.store("y", x, n=s * s * c, g=each * s * s, c=s * s, h=s, w=1)
    return b


def several(build: Any, s: int = 70) -> Any:
    """Two types out, a read on a condition and one at a pool's steps."""
    b = build({"c": 40, "s": s})
    near = b.op("lt", b.index("c"), b.const(33, "int64"), dtype="bool")
    x = b.op("add", b.load("x", c=1, s=48), b.load("z", when=near, c=1, s=33))
    b.store("y", x, c=s, s=1)
    x = b.op("maximum", x, b.load("p", c=2, s=80))
    b.store("h", x, "float16", c=s, s=1)
    return b


def aside(build: Any, offset: int) -> Any:
    """What begins at no whole vector, either way."""
    b = build({"c": 16, "s": 66})
    b.store("y", b.load("x", offset=offset, c=1, s=20), offset=offset, c=68, s=1)
    return b


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, swept: Kept) -> list[Any]:
    build = toolbox.Build
    made = {
        "aligned": turned(build, 2, 132, 64),
        "edges": turned(build, 2, 130, 68),
        "odd rows": turned(build, 2, 77, 24),
        "odd both": turned(build, 1, 131, 67),
        "three read": turned(build, 2, 260, 3),
        "five read": turned(build, 2, 260, 5),
        "three stored": turned(build, 2, 3, 260),
        "eight stored": turned(build, 2, 8, 600),
        "two for each": repeated(build, 3936, 2),
        "forty": turned(build, 2, 90, 40),
        "halves": turned(build, 2, 72, 72, "float16", "float16"),
        "odd halves": turned(build, 2, 71, 36, "bfloat16", "bfloat16"),
        "half to float": turned(build, 1, 68, 48, "float16"),
        "doubles": turned(build, 1, 66, 34, "float64", "float64"),
        "tail": tail(build, 2, 84, 32),
        "tail of halves": tail(build, 2, 75, 24, "float16"),
        "odd tail": tail(build, 2, 75, 7),
        "groups": grouped(build, 4, 4, 9),
        "odd groups": grouped(build, 5, 3, 6),
        "several": several(build),
        "several, long and odd": several(build, 151),
        "long odd halves": turned(build, 2, 199, 36, "float16", "float16"),
        "long odd doubles": turned(build, 1, 331, 34, "float64", "float64"),
        "long odd tail": tail(build, 2, 531, 40),
        "rows of rows, odd": grouped(build, 4, 4, 17),
        "aside by 2": aside(build, 2),
        "aside by 1": aside(build, 1),
    }
    variants: list[Any] = toolbox.make_variants(
        made, H200, settings=3, most_threads=128, names=NAMES
    )
    assert {v.loop.name for v in variants} == set(made)
    variants = swept(variants, lambda variant: (variant.strategy.name, "odd" in variant.loop.name))
    toolbox.compile_emulated(variants)
    return variants


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


def code(build: Any) -> TurnedCode:
    case = Case(build.loop("loop"), H200)
    across = across_of(case)
    assert across is not None
    return TurnedCode(case.nest, *runs(case.nest, across), "K")


def test_groups_are_as_wide_as_all_that_moves_much_allows(toolbox: SimpleNamespace):
    build = toolbox.Build
    assert code(turned(build, 2, 77, 64)).width == 4
    assert code(turned(build, 2, 77, 64, "float16")).width == 8
    assert code(turned(build, 2, 77, 66)).width == 2
    assert code(turned(build, 2, 77, 65)).width == 1
    assert code(aside(build, 2)).width == 2
    # What is read on a condition keeps its own addresses, and so does all beside it.
    assert code(several(build)).width == 1
    tailed = code(tail(build, 2, 84, 32))
    assert (len(tailed.ahead), len(tailed.beside), tailed.width) == (2, 2, 4)


def test_short_axes_are_taken_together(toolbox: SimpleNamespace):
    one = code(grouped(toolbox.Build, 4, 4, 9))
    assert (one.across_size, one.along_size, one.width) == (16, 81, 4)


@pytest.mark.parametrize(
    ("size", "side"), [(3, 4), (5, 5), (16, 16), (63, 64), (65536, 64), (96, 48), (132, 48)]
)
def test_sides_leave_little_of_a_tile_unused(size: int, side: int):
    assert part(size, 64, 8) == side


@pytest.mark.parametrize("size", [4, 8])
def test_lanes_meet_in_a_bank_at_most_in_twos(size: int):
    """The layout of `kw::Turned`, written out: words that a warp's lanes store to together."""
    for along, groups, vector in [
        (64, 16, 4),
        (64, 8, 4),
        (256, 4, 4),
        (512, 2, 4),
        (64, 12, 4),
        (816, 5, 1),
        (1024, 4, 1),
        (8, 128, 4),
        (64, 64, 1),
        (64, 9, 2),
    ]:
        most = 8 if vector > 1 else 16
        strips = -(-groups // most)
        lanes = -(-groups // strips)
        line, apart = -(-along * size // 16), max(1, 8 // lanes)
        skew = (3 * apart - vector * line % (2 * apart)) % (2 * apart)
        step = 32 if size == 4 else 16
        for first in range(0, lanes * along // step * step, step):
            words = []
            for turn in range(first, first + step):
                a, group = turn // lanes % along, turn % lanes
                at = (group * vector * line + group * skew) * 16 + a * size
                words += [(at + 4 * half) // 4 for half in range(size // 4)]
            banks = [len({w for w in words if w % 32 == bank}) for bank in range(32)]
            assert max(banks) <= 2, (along, groups, vector, banks)


async def machine_code(build: Any, architecture: str) -> str:
    loop = build.loop("loop")
    strategy = next(s for s in CudaEmitter().strategies(loop, H200) if s.name in NAMES)
    emitted = CudaEmitter().emit(loop, strategy, "k", H200)
    text = CudaEmitter().header() + emitted.source
    candidate = new_candidate("cuda", text, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
    assert isinstance(built, Built), built
    for report in built.reports:
        assert (report.spill_bytes or 0) == 0
        # Four blocks of 256 threads share a multiprocessor.
        assert (report.registers or 0) <= 64
    return await disassemble(built.artifact)


ARCHITECTURES = ["sm_90a", pytest.param("sm_80", marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_the_machine_code_reads_and_stores_sixteen_bytes_at_once(
    toolbox: SimpleNamespace, architecture: str
):
    moved = re.findall(
        r"\b(LDG|STG|LDS|STS)\.?(\S*)",
        await machine_code(turned(toolbox.Build, 128, 65536, 64), architecture),
    )
    kinds = [kind for kind, _ in moved]
    # All reads of a thread are under way before the first is used.
    assert kinds == ["LDG"] * 4 + ["STS"] * 16 + ["LDS"] * 4 + ["STG"] * 4
    assert all("128" in how for kind, how in moved if kind != "STS")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_rows_of_odd_length_are_read_in_vectors_all_the_same(
    toolbox: SimpleNamespace, architecture: str
):
    text = await machine_code(tail(toolbox.Build, 32, 263169, 64), architecture)
    before = text[: text.index("STS")]
    assert before.count("LDG.E.128") >= 6
    assert "STG.E.EF.128" in text


def test_windows_of_lines_leave_little_to_compute_twice(toolbox: SimpleNamespace):
    for along in (65, 77, 151, 961, 15876, 263169):
        one = code(turned(toolbox.Build, 2, along, 64))
        assert one.slides is (along % 4 != 0)
        side = window(along, 128, 8, one.slide)
        tiles = -(-(along + one.slide - 1) // (side - one.slide))
        assert side % 8 == 0
        assert tiles * side <= 1.35 * along + 2 * one.slide
