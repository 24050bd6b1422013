"""How results of mapped products leave: through boxes or joined, the same bits every time.

On the emulated device, which stores a box as late as it may and poisons it then.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import WGMMA_MAPS
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.languages import with_settings as with_values
from kernelwright.tools.types import Setting

EMITTER, H200 = CudaEmitter(), hardware_profile("H200")
PLAIN = {"CLUSTER": 1, "LATE": 0, "SPLIT": 1, "TURNS": 0, "BOXES": 0, "SPAN": 64, "STAGES": 16}


def layer(
    build: Any, m: int, n: int, k: int, kind: str, *, batches: int = 1, adds: bool = False
) -> Any:
    """A batch of linear layers: a bias a column, a scale a row, a dear activation, a residual."""
    b = build({"b": batches, "m": m, "n": n}, {"k": k})
    x, w = b.load("x", kind, b=m * k, m=k, k=1), b.load("w", kind, b=n * k, n=k, k=1)
    factors = (b.op("cast", one, dtype=kind) for one in (x, w))
    total = b.op("add", b.reduce("sum", b.op("mul", *factors)), b.load("bias", kind, n=1))
    scaled = b.op("mul", b.op("tanh", total), b.load("scale", m=1))
    if adds:
        scaled = b.op("add", scaled, b.load("z", kind, b=m * n, m=n, n=1))
    b.store("y", scaled, kind, b=m * n, m=n, n=1)
    return b


def residual(
    build: Any, kind: str = "float16", results: str = "float16", n: int = 128, turned: bool = False
) -> Any:
    """A product to which a matrix is added."""
    b = build({"m": 128, "n": n}, {"k": 64})
    x, w = b.load("x", kind, m=64, k=1), b.load("w", kind, n=64, k=1)
    factors = (b.op("cast", one, dtype=kind) for one in (x, w))
    total = b.reduce("sum", b.op("mul", *factors))
    z = b.load("z", m=1, n=128) if turned else b.load("z", m=n, n=1)
    b.store("y", b.op("add", total, z), results, m=n, n=1)
    return b


# (type, rows, columns, depth, batches, settings; a residual where the type has a +): edges that are
# no multiples of tiles and boxes, none at all, and one that only a cluster's second tile goes over.
CASES: tuple[tuple[str, int, int, int, int, dict[str, int]], ...] = (
    ("bfloat16", 150, 200, 136, 1, {"TILE": 128128, "BOXES": 2, "TURNS": 1}),
    ("bfloat16+", 150, 200, 136, 1, {"TILE": 128128, "BOXES": 2, "TURNS": 1}),
    ("float16", 70, 136, 328, 3, {"TILE": 64064, "BOXES": 1}),
    ("float16+", 70, 136, 328, 3, {"TILE": 64064, "BOXES": 1}),
    ("float16+", 70, 136, 72, 1, {"TILE": 64128, "CLUSTER": 2, "BOXES": 2}),
    ("bfloat16", 130, 72, 520, 1, {"TILE": 128064, "SPLIT": 4}),
    ("float16", 70, 72, 904, 1, {"TILE": 64064, "SPLIT": 7}),
    ("float16", 256, 256, 72, 1, {"TILE": 128128, "CLUSTER": 2, "BOXES": 2, "TURNS": 1}),
    ("bfloat16", 384, 128, 72, 1, {"TILE": 128128, "CLUSTER": 2, "BOXES": 2}),
    ("bfloat16", 384, 128, 72, 1, {"TILE": 128128, "CLUSTER": 2}),
)


@pytest.fixture(scope="module")
def compiled(toolbox: SimpleNamespace, small_device: Hardware) -> list[Any]:
    found = []
    for at, (kind, m, n, k, batches, settings) in enumerate(CASES):
        adds = kind.endswith("+")
        build = layer(toolbox.Build, m, n, k, kind.rstrip("+"), batches=batches, adds=adds)
        (one,) = toolbox.make_variants(
            {"layer": build}, small_device, settings=1, names=(WGMMA_MAPS,),
            most_threads=384, start=at,
        )  # fmt: skip
        chosen = {f"K{at}_{name}": value for name, value in (PLAIN | settings).items()}
        found.append(replace(one, settings=one.settings | chosen))
    toolbox.compile_emulated(found)
    return found


@pytest.mark.parametrize("at", range(len(CASES)))
def test_edges_and_batches_leave_whole_and_alike_twice(
    toolbox: SimpleNamespace, compiled: list[Any], at: int
) -> None:
    got, wanted = compiled[at].run()
    toolbox.check(got, wanted, compiled[at].loop)
    again, _ = compiled[at].run()
    assert all(torch.equal(got[name], again[name]) for name in got)


def _source(build: Any) -> tuple[str, str]:
    loop = build.loop("k")
    strategy = next(one for one in EMITTER.strategies(loop, H200) if one.name == WGMMA_MAPS)
    emitted = EMITTER.emit(loop, strategy, "k", H200)
    return EMITTER.header() + emitted.source, "\n".join(emitted.plan)


def test_a_map_of_the_results_says_where_they_lie(toolbox: SimpleNamespace) -> None:
    _, plan = _source(layer(toolbox.Build, 256, 512, 64, "float16", batches=3))
    assert "tensor_map(y, shape=(3, 256, 512), strides=(131072, 512, 1), offset=0" in plan
    assert "box=(1, 16, 64)" in plan


def test_what_no_map_takes_leaves_from_registers(toolbox: SimpleNamespace) -> None:
    """Results of four bytes, rows of 2 x 150 bytes, and a matrix that lies turned."""
    layers = toolbox.Build
    found = [
        residual(layers, results="float32"), residual(layers, n=150), residual(layers, turned=True),
    ]  # fmt: skip
    for build in found:
        source, plan = _source(build)
        assert "_BOXES" not in source
        assert "tensor_map(y" not in plan


@pytest.mark.parametrize(
    "wanted",
    [
        {"TILE": 128128, "TURNS": 1, "BOXES": 2},
        {"TILE": 64256, "TURNS": 1, "BOXES": 2},
        {"TILE": 128256, "SPLIT": 4},
        pytest.param({"TILE": 128256, "BOXES": 2}, marks=pytest.mark.exhaustive),
        pytest.param({"TILE": 128128, "SPLIT": 8}, marks=pytest.mark.exhaustive),
        pytest.param({"TILE": 128128, "SPLIT": 4, "CLUSTER": 2}, marks=pytest.mark.exhaustive),
    ],
)
async def test_shared_tiles_compile_without_spills(
    toolbox: SimpleNamespace, wanted: dict[str, int]
) -> None:
    # Rows that are no whole number of tiles, and a matrix that is added, which the largest tiles
    # have no registers for.
    adds = wanted["TILE"] != 128256 or "BOXES" not in wanted
    source, _ = _source(layer(toolbox.Build, 4000, 4096, 4096, "bfloat16", adds=adds))
    plain = new_candidate("cuda", source, "def forward(x):\n    return x\n")
    chosen = [Setting(name=f"K_{name}", value=value) for name, value in wanted.items()]
    values = complete_settings(parse_kernel(source, "cuda"), chosen)
    built = await compile_candidate(
        with_values(plain, values), architecture="sm_90a", timeout_s=120
    )
    assert isinstance(built, Built), built
    assert not any(one.spill_bytes or one.stack_bytes for one in built.reports)
    assert "C7510" not in built.log  # products that wait for each other
    assert not await toolbox.never_runs(built.artifact)
