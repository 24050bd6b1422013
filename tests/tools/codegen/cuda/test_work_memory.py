"""Work memory of whole plans on the emulated device: when it is asked for, and what is cleared.

Memory that a plan asks for holds a pattern there that no kernel counts from.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph

pytestmark = pytest.mark.exhaustive  # every variant is built before any is chosen

Kept = Callable[..., list[Any]]

r = torch.randn


class _Function(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.forward = function


def deviations(dim: int) -> nn.Module:
    """Two passes, and nothing is written along the row after the last."""
    return _Function(lambda x: (x - x.mean(dim, True)).abs().sum(dim))


def further(dim: int) -> nn.Module:
    """Three passes, the second of which runs in the opposite order."""

    def function(x: torch.Tensor) -> torch.Tensor:
        apart = x - x.mean(dim, True)
        return (apart.abs() - apart.abs().mean(dim, True)).square().sum(dim)

    return _Function(function)


# Two loops: the statistics of rows, then those of everything under them.
NORMS = nn.Sequential(nn.LayerNorm(9000), nn.Flatten(0), nn.LayerNorm(45_000))

# What is asked, under which strategy, and whether its blocks count from zeros.
TASKS: dict[str, tuple[nn.Module, torch.Tensor, str, bool]] = {
    "rows": (deviations(1), r(3, 9000), "split_rows", False),
    "rows, three passes": (further(1), r(3, 9000), "split_rows", False),
    "columns": (deviations(0), r(400, 40), "columns_split", False),
    "columns, three passes": (further(0), r(400, 40), "columns_split", False),
    "rows, one pass": (_Function(lambda x: x.square().sum(1)), r(3, 9000), "split_rows", False),
    "a norm of norms": (NORMS, r(5, 9000), "split_rows_tiles", False),
    "a norm of norms, one launch": (NORMS, r(5, 9000), "grid_rows_partly", True),
}


@dataclass
class Whole:
    """A module's candidate under one setting."""

    name: str
    chosen: str
    module: nn.Module
    x: torch.Tensor
    plan: str
    emitted: SimpleNamespace
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)

    def run(self, toolbox: SimpleNamespace) -> torch.Tensor:
        """What the plan returns."""
        weights = {name: value.detach() for name, value in self.module.named_parameters()}
        play = toolbox.Emulated(ctypes.CDLL(str(self.library[0])), {}, self.settings)
        names: dict[str, Any] = {**play.names(), "weights": weights}
        exec(self.plan, names)
        found = names["forward"](self.x)
        assert isinstance(found, torch.Tensor)
        return found


def whole(name: str, hardware: Hardware, number: int) -> list[Whole]:
    """The first setting with few threads, and one with fewer blocks a row."""
    module, x, wanted, _ = TASKS[name]
    traced = trace_graph(module, (x,), None)
    simplify(traced)
    program = lower(to_graph(traced, ["x"]))
    emitter = CudaEmitter()
    known = {loop.name: emitter.strategies(loop, hardware) for loop in program.loops}
    choices = {
        loop: next((one for one in of if one.name == wanted), of[0]) for loop, of in known.items()
    }
    assert wanted in {one.name for one in choices.values()}
    made = assemble(program, emitter, choices, hardware)
    few = [
        values
        for setting in valid_settings(parse_kernel(made.kernel, "cuda"))
        if _threads(values := {one.name: one.value for one in setting}) <= 256
    ]
    found = []
    for at, values in enumerate((few[0], few[-1])):
        # Kernels of one library have names of their own.
        own = {f"K{number}{at}{key}": value for key, value in values.items()}
        kernel, plan = (_renamed(text, f"{number}{at}") for text in (made.kernel, made.plan))
        emitted = SimpleNamespace(source=kernel.replace(emitter.header(), ""))
        found.append(Whole(name, str(values), module, x, plan, emitted, own))
    return found


def _threads(values: dict[str, int]) -> int:
    """The most of a block's."""
    loops = {key.split("_", 1)[0] for key in values}
    return max(
        values.get(f"{loop}_THREADS", 0) or values[f"{loop}_TX"] * values[f"{loop}_TY"]
        for loop in loops
    )


def _renamed(text: str, number: str) -> str:
    for loop in ("L0", "L1"):
        text = text.replace(f"{loop}_", f"K{number}{loop}_")
    return text


@pytest.fixture(scope="module")
def wholes(toolbox: SimpleNamespace, small_device: Hardware, kept: Kept) -> list[Whole]:
    made = [one for at, name in enumerate(TASKS) for one in whole(name, small_device, at)]
    made = kept(made, lambda one: TASKS[one.name][2])
    toolbox.compile_emulated(made)
    return made


def test_whole_plans_compute_what_the_module_does(
    toolbox: SimpleNamespace, wholes: list[Whole]
) -> None:
    for one in wholes:
        with torch.no_grad():
            wanted = one.module.double()(one.x.double())
        one.module.float()
        found = one.run(toolbox)
        scale = float(wanted.abs().max())
        torch.testing.assert_close(
            found.double(), wanted, rtol=1e-5, atol=1e-5 * scale, msg=f"{one.name} {one.chosen}"
        )


def test_only_blocks_that_wait_for_each_other_need_zeros_before_them(wholes: list[Whole]) -> None:
    """A fill is a launch that an idle device waits for before it begins."""
    for one in wholes:
        counts = TASKS[one.name][3]
        assert ("_counters" in one.plan) is ("zeros(" in one.plan) is counts, one.name
