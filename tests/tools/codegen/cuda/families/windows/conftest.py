"""What tests of windows share: functions are lowered, kernels printed, and run emulated."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Emitted, Loop, Program
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.languages import with_settings as with_values
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph
from kernelwright.tools.types import Setting


class Called(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def lowered(
    function: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    *,
    channels_last: bool = False,
) -> Program:
    """The function with its windows as sums."""
    traced = trace_graph(Called(function), [*inputs], None)
    simplify(traced)
    graph = to_graph(traced, [f"x{at}" for at in range(len(inputs))])
    return lower(graph, lowering=Lowering(sums_windows=True, channels_last=channels_last))


def printed(
    loop: Loop, name: str, prefix: str, hardware: Hardware
) -> tuple[Emitted, list[dict[str, int]]]:
    """A loop under a strategy, and the settings that it may have."""
    emitter = CudaEmitter()
    (chosen,) = (one for one in emitter.strategies(loop, hardware) if one.name == name)
    emitted = emitter.emit(loop, chosen, prefix, hardware)
    listed = valid_settings(parse_kernel(emitter.header() + emitted.source, "cuda"))
    return emitted, [{one.name: one.value for one in values} for values in listed]


@dataclass
class Variant:
    """A printed loop with its settings, and the library that it becomes."""

    emitted: Emitted
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)


def ran(one: Variant, buffers: Mapping[str, torch.Tensor], toolbox: SimpleNamespace) -> None:
    """Runs it on these buffers."""
    library = ctypes.CDLL(str(one.library[0]))
    exec("\n".join(one.emitted.plan), toolbox.Emulated(library, buffers, one.settings).names())


async def stays_in_registers(
    emitted: Emitted, text: str, first: Mapping[str, int], architecture: str
) -> bool:
    """Whether NVRTC makes a kernel of it that spills nothing."""
    candidate = new_candidate("cuda", CudaEmitter().header() + emitted.source, text)
    settings = tuple(Setting(name=name, value=value) for name, value in first.items())
    built = await compile_candidate(
        with_values(candidate, settings), architecture=architecture, timeout_s=120
    )
    assert isinstance(built, Built), built
    return not any(report.spill_bytes + report.stack_bytes for report in built.reports)


@pytest.fixture(scope="session")
def sliding() -> SimpleNamespace:
    """The above by their names."""
    return SimpleNamespace(
        lowered=lowered,
        printed=printed,
        Variant=Variant,
        ran=ran,
        stays_in_registers=stays_in_registers,
    )
