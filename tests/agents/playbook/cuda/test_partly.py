"""Rows partly in shared memory: right whether all, some or none of a row fits there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.playbook.cuda import CudaEmitter
from agents.playbook.ir import Strategy
from profiles.load import hardware_profile
from tools.candidates import new_candidate
from tools.compile import Built, compile_candidate
from tools.nouns import Language

H200 = hardware_profile("H200")
NAME = "cluster_rows_partly"


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
def variants(toolbox: SimpleNamespace, tmp_path_factory: Any) -> list[Any]:
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
            made, device, settings=2, names=(NAME, f"{NAME}_online_softmax"), start=len(variants)
        )
    toolbox.compile_emulated(variants, Path(tmp_path_factory.mktemp("partly")))
    return variants


def test_they_compute_what_the_loop_says(toolbox: SimpleNamespace, variants: list[Any]):
    assert len(variants) >= 12
    for variant in variants:
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            raise AssertionError(f"{variant.label}: {error}") from error


@pytest.mark.parametrize("settings", [(256, 4, 4, 3), (512, 4, 4, 2), (256, 8, 8, 3)])
async def test_copies_of_single_elements_are_instructions_that_a_device_knows(
    toolbox: SimpleNamespace, settings: tuple[int, ...]
):
    """An H200 stopped at these with "an illegal instruction was encountered"."""
    loop = odd_rows(toolbox.Build, 32768, 65535).loop("odd")
    (strategy,) = (s for s in CudaEmitter().strategies(loop, H200) if s.name == NAME)
    emitted = CudaEmitter().emit(loop, strategy, "k", H200)
    names = ("K_THREADS", "K_CLUSTER", "K_UNROLL", "K_BLOCKS")
    values = dict(zip(names, settings, strict=True))
    defines = [f"#define {name} {value}" for name, value in values.items()]
    lines = [line for line in emitted.source.splitlines() if not line.startswith("// ")]
    lines = [*defines, "#define K_VECTOR 1", "#define K_LOADS 1", "#define K_STORES 1", *lines]
    source = CudaEmitter().header() + "\n".join(lines)
    candidate = new_candidate(Language.CUDA, source, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    assert not await toolbox.never_runs(built.artifact)


def promised(toolbox: SimpleNamespace, rows: int, columns: int) -> Strategy:
    loop = softmax(toolbox.Build, rows, columns).loop("softmax")
    (found,) = (s for s in CudaEmitter().strategies(loop, H200) if s.name == NAME)
    return found


def test_rows_are_promised_one_read_while_chip_and_cache_hold_them(toolbox: SimpleNamespace):
    assert promised(toolbox, 4096, 393216).bytes_read_factor == 1.0
    assert promised(toolbox, 4096, 1 << 23).bytes_read_factor > 2.0


def test_a_device_without_clusters_has_no_such_strategy(toolbox: SimpleNamespace):
    loop = softmax(toolbox.Build, 64, 1 << 18).loop("softmax")
    assert NAME in {s.name for s in CudaEmitter().strategies(loop, H200)}
    assert NAME not in {s.name for s in CudaEmitter().strategies(loop, hardware_profile("A100"))}
