"""Rows partly in shared memory: right whether all, some or none of a row fits there."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.families.reductions.partly import Partly
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.languages import Built, compile_candidate, new_candidate

Kept = Callable[..., list[Any]]

H200 = hardware_profile("H200")
NAME, GRID = "cluster_rows_partly", "grid_rows_partly"

NAMES = tuple(f"{name}{rewrite}" for name in (NAME, GRID) for rewrite in ("", "_online_softmax"))


def softmax(build: Any, rows: int, columns: int) -> Any:
    """Three passes: two that reduce, one that writes."""
    b = build({"n": rows}, {"c": columns})
    x = b.load("x", n=columns, c=1)
    e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
    b.store("y", b.op("div", e, b.reduce("sum", e)), n=columns, c=1)
    return b


def residual_norm(build: Any, rows: int, columns: int) -> Any:
    """Two kept buffers of two sizes, a weight that is not kept, and an end inside a batch."""
    b = build({"n": rows}, {"c": columns})
    x = b.op("add", b.load("x", n=columns, c=1), b.load("r", "bfloat16", n=columns, c=1))
    scale = b.op("rsqrt", b.reduce("sum", b.op("square", x)))
    b.store("h", x, n=columns, c=1)
    b.store("y", b.op("mul", b.op("mul", x, scale), b.load("w", c=1)), n=columns, c=1)
    return b


def odd_rows(build: Any, rows: int, columns: int) -> Any:
    """Rows whose elements are copied one by one."""
    b = build({"n": rows}, {"c": columns})
    x = b.load("x", n=columns, c=1)
    b.store("y", b.op("div", x, b.reduce("sum", b.op("abs", x))), n=columns, c=1)
    return b


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, swept: Kept) -> list[Any]:
    """On devices that hold a whole share of a row, some of it, and nothing."""
    made = {
        "softmax": softmax(toolbox.Build, 3, 40004),
        "residual": residual_norm(toolbox.Build, 2, 43012),
        "odd": odd_rows(toolbox.Build, 2, 40003),
    }
    variants: list[Any] = []
    for kib in (200, 52, 8):
        device = H200.model_copy(
            update={"sm_count": 4, "cache_mib": 1.0, "shared_kib_per_block": kib}
        )
        variants += toolbox.make_variants(
            made, device, settings=2, names=NAMES, start=len(variants)
        )
    assert len(variants) >= 12
    variants = swept(variants, lambda variant: variant.strategy.name)
    toolbox.compile_emulated(variants)
    return variants


def test_they_compute_what_the_loop_says(toolbox: SimpleNamespace, variants: list[Any]):
    for variant in variants:
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            raise AssertionError(f"{variant.label}: {error}") from error


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (NAME, (256, 4, 4, 3)),
        pytest.param(NAME, (512, 4, 4, 2), marks=pytest.mark.exhaustive),
        pytest.param(NAME, (256, 8, 8, 3), marks=pytest.mark.exhaustive),
        (GRID, (512, 4, 4, 2)),
    ],
)
async def test_copies_of_single_elements_are_instructions_that_a_device_knows(
    toolbox: SimpleNamespace, name: str, settings: tuple[int, ...]
):
    """An H200 stopped at these with "an illegal instruction was encountered"."""
    loop = odd_rows(toolbox.Build, 32768, 65535).loop("odd")
    (strategy,) = (s for s in CudaEmitter().strategies(loop, H200) if s.name == name)
    emitted = CudaEmitter().emit(loop, strategy, "k", H200)
    names = ("K_THREADS", f"K_{'GROUP' if name == GRID else 'CLUSTER'}", "K_UNROLL", "K_BLOCKS")
    values = dict(zip(names, settings, strict=True))
    defines = [f"#define {name} {value}" for name, value in values.items()]
    lines = [line for line in emitted.source.splitlines() if not line.startswith("// ")]
    fixed = ("K_VECTOR 1", "K_LOADS 1", "K_STORES 1")
    lines = [*defines, *(f"#define {one}" for one in fixed), *lines]
    source = CudaEmitter().header() + "\n".join(lines)
    candidate = new_candidate("cuda", source, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    assert not await toolbox.never_runs(built.artifact)


def promised(toolbox: SimpleNamespace, rows: int, columns: int, name: str = NAME) -> Strategy:
    loop = softmax(toolbox.Build, rows, columns).loop("softmax")
    (found,) = (s for s in CudaEmitter().strategies(loop, H200) if s.name == name)
    return found


def test_rows_are_promised_one_read_while_chip_and_cache_hold_them(toolbox: SimpleNamespace):
    assert promised(toolbox, 4096, 393216).bytes_read_factor == 1.0
    assert promised(toolbox, 4096, 1 << 23).bytes_read_factor > 2.0
    assert promised(toolbox, 64, 1 << 22, GRID).bytes_read_factor == 1.0


def test_groups_share_rows_that_are_too_long_for_clusters_and_too_short_to_be_read_twice(
    toolbox: SimpleNamespace,
):
    def offered(columns: int) -> set[str]:
        loop = softmax(toolbox.Build, 64, columns).loop("softmax")
        return {s.name for s in CudaEmitter().strategies(loop, H200)} & {NAME, GRID}

    assert GRID not in offered(1 << 14)
    assert GRID in offered(1 << 22)
    assert GRID in offered(1 << 24)
    assert GRID not in offered(1 << 25)


def test_weights_that_every_row_reads_out_of_the_cache_are_counted(toolbox: SimpleNamespace):
    def expected(columns: int, weighted: bool) -> float:
        b = toolbox.Build({"n": 16}, {"c": columns})
        x = b.load("x", n=columns, c=1)
        y = b.op("mul", x, b.op("rsqrt", b.reduce("sum", b.op("square", x))))
        y = b.op("add", b.op("mul", y, b.load("w", c=1)), b.load("v", c=1)) if weighted else y
        b.store("y", y, n=columns, c=1)
        return Partly(Case(b.loop("norm"), H200), groups=True).efficiency

    assert expected(1 << 22, weighted=True) < expected(1 << 22, weighted=False)


@pytest.mark.parametrize(("name", "rows"), [("H200", 16), ("A100", 3), ("L40S", 5)])
def test_a_group_is_never_larger_than_what_surely_runs_at_once(
    toolbox: SimpleNamespace, name: str, rows: int
):
    """Its blocks wait for each other: one a multiprocessor must be enough for all of them."""
    device = hardware_profile(name)
    for columns in (1 << 18, 3_333_332, 1 << 22):
        shape = Partly(Case(softmax(toolbox.Build, rows, columns).loop("softmax"), device), True)
        assert shape.members
        assert max(shape.members) <= (device.sm_count or 0)


async def test_groups_need_no_clusters_of_a_device(toolbox: SimpleNamespace):
    loop = softmax(toolbox.Build, 64, 1 << 20).loop("softmax")
    device = hardware_profile("A100")
    found = {s.name: s for s in CudaEmitter().strategies(loop, device)}
    assert NAME not in found
    source = CudaEmitter().emit(loop, found[GRID], "k", device).source
    candidate = new_candidate(
        "cuda", CudaEmitter().header() + source, "def forward(x):\n    return x\n"
    )
    built = await compile_candidate(candidate, architecture="sm_80", timeout_s=120)
    assert isinstance(built, Built), built
    assert all((report.spill_bytes or 0) == 0 for report in built.reports)
