"""Modules with products, from the traced file to what the emulated tensor cores return."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.ir import Emitted
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, repertoire_for
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

FILE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(72, 96){type}
        self.second = torch.nn.Linear(96, 40){type}

    def forward(self, x, y):
        return self.second(F.gelu(self.first(x))) * y

def get_inputs():
    return [torch.randn(33, 72){type}, torch.randn(33, 40){type}]
"""
ALIKE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(72, 72)
        self.second = torch.nn.Linear(72, 72)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))

def get_inputs():
    return [torch.randn(33, 72)]
"""
TYPES = {
    "split_mma": "",
    "split_wgmma": "",
    "mma_tiles": ".half()",
    "wgmma_maps": ".half()",
}


@dataclass
class Playable:
    """A candidate's kernels as the emulator takes them."""

    emitted: Emitted
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)


FIRST, *REST = TYPES


@pytest.mark.parametrize(
    "strategy", [FIRST, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in REST)]
)
async def test_a_module_computes_what_it_says(
    toolbox: SimpleNamespace, small_device: Hardware, strategy: str
) -> None:
    source = FILE.format(type=TYPES[strategy])
    task = trace(source, "/tmp/layers.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire = repertoire_for(task, small_device)
    loops = [one.loop for one in repertoire.options() if one.strategy.name == strategy]
    assert len(loops) == 2
    draft = repertoire.draft({"form": "products", **dict.fromkeys(loops, strategy)})
    assert "aten" not in draft.plan
    # Both products have tunables, and what they include stands before either.
    assert draft.kernel.count("#include") == 2
    assert draft.kernel.rindex("#include") < draft.kernel.index("// tune")
    candidate = new_candidate("cuda", draft.kernel, draft.plan)
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built

    played = _played(toolbox, draft)
    space: dict = {}
    exec(source, space)
    model, (x, y) = space["Model"](), space["get_inputs"]()
    got = played({name: tensor.detach() for name, tensor in model.state_dict().items()}, x, y)
    wanted = model.double()(x.double(), y.double())
    eps = torch.finfo(x.dtype).eps
    torch.testing.assert_close(got.double(), wanted, rtol=4 * eps, atol=4 * eps)


Played = Callable[..., torch.Tensor]


def _played(toolbox: SimpleNamespace, draft: LibraryDraft) -> Played:
    """The draft on the emulator: called with weights, which are prepared every time, and inputs."""
    settings = complete_settings(parse_kernel(draft.kernel, "cuda"))
    chosen = {one.name: int(one.value) for one in settings}
    playable = Playable(Emitted(source=draft.kernel, plan=()), chosen)
    toolbox.compile_emulated([playable])
    names = toolbox.Emulated(ctypes.CDLL(str(playable.library[0])), {}, chosen).names()
    exec(draft.plan, names)

    def played(weights: dict[str, torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        names["weights"] = weights
        names["prepared"] = names["prepare"](weights) if "prepare" in names else None
        result: torch.Tensor = names["forward"](*inputs)
        return result

    return played


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "strategy", ["streamed_wgmma", pytest.param("split_wgmma", marks=pytest.mark.exhaustive)]
)
def test_layers_that_share_kernels_pack_their_own_weights_once(
    toolbox: SimpleNamespace, small_device: Hardware, strategy: str
) -> None:
    task = trace(ALIKE, "/tmp/layers.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire = repertoire_for(task, small_device)
    loops = [one.loop for one in repertoire.options() if one.strategy.name == strategy]
    draft = repertoire.draft({"form": "products", **dict.fromkeys(loops, strategy)})
    prepare, forward = draft.plan.split("def forward")
    assert prepare.count("_once_pack") == 2
    assert "_once_" not in forward
    assert draft.kernel.count("_wgmma(" if strategy == "split_wgmma" else "_streamed(") == 1
    played = _played(toolbox, draft)
    space: dict = {}
    exec(ALIKE, space)
    model, (x,) = space["Model"](), space["get_inputs"]()
    with torch.no_grad():
        got = played(dict(model.state_dict()), x)
        torch.testing.assert_close(got.double(), model.double()(x.double()), rtol=4e-7, atol=4e-7)


def test_a_layer_that_is_called_again_packs_its_weight_once(
    toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    tied = ALIKE.replace("self.second = torch.nn.Linear(72, 72)", "self.second = self.first")
    assert tied != ALIKE
    task = trace(tied, "/tmp/layers.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire, way = repertoire_for(task, small_device), "streamed_wgmma"
    loops = [one.loop for one in repertoire.options() if one.strategy.name == way]
    draft = repertoire.draft({"form": "products", **dict.fromkeys(loops, way)})
    prepare, forward = draft.plan.split("def forward")
    assert prepare.count("_once_pack") == 1
    assert forward.count("_streamed") == 2
    space: dict = {}
    exec(tied, space)
    model, (x,) = space["Model"](), space["get_inputs"]()
    played = _played(toolbox, draft)
    with torch.no_grad():
        got = played(dict(model.state_dict()), x)
        torch.testing.assert_close(got.double(), model.double()(x.double()), rtol=1e-6, atol=1e-6)


DEEP = ALIKE.replace(
    "self.first = torch.nn.Linear(72, 72)", "self.first = torch.nn.Linear(1040, 72)"
)
DEEP = DEEP.replace("torch.randn(33, 72)", "torch.randn(33, 1040)")


@pytest.mark.exhaustive
def test_long_sums_in_parts_take_a_weight_that_was_packed_once(
    toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    task = trace(DEEP, "/tmp/layers.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire, way = repertoire_for(task, small_device), "streamed_wgmma_splits"
    loops = [one.loop for one in repertoire.options() if one.strategy.name == way]
    assert len(loops) == 1
    draft = repertoire.draft({"form": "products", loops[0]: way})
    played = _played(toolbox, draft)
    space: dict = {}
    exec(DEEP, space)
    model, (x,) = space["Model"](), space["get_inputs"]()
    with torch.no_grad():
        got = played(dict(model.state_dict()), x)
        torch.testing.assert_close(got.double(), model.double()(x.double()), rtol=4e-7, atol=4e-7)
