"""A small grid on a real device: measured, exported, and run from the export.

The CPU's twin is `test_grid` and `test_grid_export`, whose judge is a formula.
"""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.graphs.gemm.tuning import Budget
from kernelwright.tools.evaluate.rules import FAST, WIDER
from kernelwright.tools.export.gemm import export_grid
from kernelwright.tools.gemm.choice import EAGER, is_ours, means
from kernelwright.tools.gemm.problem import Arithmetic
from kernelwright.tools.gemm.record import GemmRecord, Terms
from kernelwright.tools.gemm.shapes import shapes_of
from kernelwright.tools.types import Verdict
from kernelwright.ui.grid import GridShare, measured


async def measured_in(arithmetic: Arithmetic) -> list[GemmRecord]:
    terms = Terms(
        arithmetic=arithmetic, seed=0, device=torch.cuda.get_device_name(), kernelwright="",
        torch=torch.__version__, figures="",
    )  # fmt: skip
    shapes = shapes_of("64,512x512,4096x1024", ("nt",))
    share = GridShare(shapes=shapes, terms=terms, budget=Budget(candidates=6, seconds=20.0))
    found = [record async for record in measured(share)]
    assert [record.ended for record in found] == ["measured"] * len(shapes)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("arithmetic", "strategy"),
    [
        (Arithmetic(accumulate="fp16"), "wgmma_maps_fp16"),
        (Arithmetic(dtype="fp8"), "wgmma_maps_fp8"),
    ],
    ids=["sums in fp16", "fp8"],
)
async def test_kernels_of_other_sums_are_right(arithmetic: Arithmetic, strategy: str) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("these kernels are for Hopper alone")
    found = await measured_in(arithmetic)
    tried = [one for record in found for one in record.tried if one.strategy == strategy]
    assert tried
    assert {one.verdict for one in tried} == {Verdict.CORRECT}
    rivals = {one.baseline for record in found for one in record.offline}
    assert rivals >= ({"eager", *WIDER[:1]} if arithmetic.accumulate == "fp16" else {"eager", FAST})


@pytest.mark.gpu
async def test_a_grid_is_measured_and_what_was_chosen_runs(tmp_path: Path) -> None:
    found = await measured_in(Arithmetic())
    assert all(one.dispatched >= 1.0 for one in means(found, EAGER) if one.mode == "offline")
    folder = tmp_path / "faster_on_device"
    export_grid(found, folder)
    spec = importlib.util.spec_from_file_location("faster_on_device", folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["faster_on_device"] = module
    spec.loader.exec_module(module)
    module.ALWAYS = True
    for record in found:
        m, n, k = record.shape.m, record.shape.n, record.shape.k
        x, weight = (torch.randn(s, device="cuda", dtype=torch.half) for s in ((m, k), (n, k)))
        with torch.no_grad():
            y = module.linear(x, weight)
        torch.testing.assert_close(y, x @ weight.mT, atol=0.1, rtol=1e-2)
    assert module.COUNTS["kernel"] == sum(map(is_ours, found))
