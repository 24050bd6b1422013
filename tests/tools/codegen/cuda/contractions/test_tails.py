"""What stands around products, from the module to what tensor cores return on the emulator.

Every module is written by the playbook with its products under one strategy and its other loops
under their first; all kernels are compiled together.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir.contraction import PRODUCT
from kernelwright.tools.codegen.library.kernel_library import FORM, repertoire_for
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

_FILE = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(72, 96), nn.Linear(96, 40)
        self.gate, self.groups = nn.Linear(72, 96), nn.GroupNorm(12, 96)
        self.batches = nn.BatchNorm1d(96).eval()
        self.shift = nn.Parameter(torch.randn(96))
        with torch.no_grad():
            self.batches.running_mean.normal_()
            self.batches.running_var.uniform_(0.5, 2)

    def forward(self, {names}):
        return {returned}

def get_inputs():
    torch.manual_seed(1)
    return [{inputs}]
"""
X, XY = ((66, 72),), ((66, 72), (72, 96))
# What is returned, and the shapes of x, y and z.
MODULES: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "groups": ("F.hardtanh(self.groups(self.first(x)), -0.7, 0.7)", X),
    "least": ("self.groups(self.first(x)).amin(1) + self.shift[:, None]", X),
    "batches": ("F.gelu(self.batches(self.first(x) * self.shift))", X),
    "instance": ("F.instance_norm((x @ y)[None]).squeeze(0) * z + z", (*XY, (66, 96))),
    "exponents": ("F.mish(torch.logsumexp((self.first(x) - self.shift).clamp(-1, 1), 1))", X),
    "softmax": ("torch.softmax(F.gelu(self.first(x)), 1)", X),
    "pooled": ("F.max_pool1d(self.first(x)[:, None], 2).squeeze(1).sum(1) * 0.5", X),
    "twice": ("F.hardswish(F.mish(F.mish(self.first(x)))) + x[:, :1]", X),
    "bounded": ("torch.tanh(x @ y * torch.sigmoid(x @ y)).clamp(-0.5, 0.5) / z", (*XY, (96,))),
    "triangles": ("torch.tril(torch.triu(x) @ torch.tril(y))", ((90, 90), (90, 90))),
    "sums": ('torch.tanh(torch.einsum("bijl,lk->bijk", x, y))', ((2, 3, 20, 24), (24, 36))),
    "heads": ('torch.einsum("bqhd,bkhd->bhqk", x, y) / 3', ((2, 21, 3, 24), (2, 35, 3, 24))),
    "added": ("torch.addbmm(z, x, y, beta=0.5, alpha=3.0)", ((5, 40, 30), (5, 30, 33), (33,))),
    "shared": ("torch.relu(x @ y)", ((2, 1, 20, 33), (1, 3, 33, 17))),
    "turned": ("torch.exp(-(x.transpose(1, 2) @ y.mT).square())", ((3, 33, 20), (3, 35, 33))),
    "normed": ("F.normalize(x) @ F.normalize(y).T", ((40, 72), (50, 72))),
    "attention": ("torch.softmax(x @ y.mT * 0.2, -1) @ z", ((2, 40, 24), (2, 50, 24), (2, 50, 36))),
    "attended": (
        "F.scaled_dot_product_attention(x, y, z, is_causal=True)",
        ((2, 80, 72), (2, 90, 72), (2, 90, 64)),
    ),
    "distances": ("(x * x).sum(1, True) - 2 * x @ y.T + (y * y).sum(1)", ((40, 24), (50, 24))),
    "counted": ("(x > 0).float() @ (y * 3).long().float() * 0.5", XY),
    "gated": ("self.second(self.first(x) * torch.sigmoid(self.gate(x)))", X),
}
# Inputs of a half type: products are taken in it, and what is computed before is rounded to it.
HALVES = {
    "half": ("torch.softmax(F.gelu(x @ y), 1).float() * 2", XY),
    "bfloat16": ("torch.tanh(torch.addbmm(z, x, y.mT))", ((5, 40, 32), (5, 48, 32), (48,))),
}
CAST = {
    "cast": (
        "F.linear(x.half(), self.first.weight.half(), self.first.bias.half()).relu().float()",
        X,
    ),
}
FLOAT_WAYS = ("split_mma", "split_wgmma", "simt_tiles")
# Tensor maps describe one axis of the depth alone, and nothing that is computed on the way in.
HALF_WAY, MAPPED, UNMAPPED = "mma_tiles", "wgmma_maps", ("bfloat16",)
# It copies a factor as it lies, in pieces of 16 bytes.
STREAMED, UNSTREAMED = "streamed_wgmma", ("triangles", "added", "shared", "counted")
# Under which strategies each is played every time; under the others by `make test-all`.
QUICK = {"triangles": "split_mma", "half": "wgmma_maps"}
LATER = {"sums": "split_wgmma", "twice": "streamed_wgmma", "cast": "mma_tiles"}
# Each module meets two of the ways to multiply float32, in turn, and the one that streams.
EVERY = [
    *((name, FLOAT_WAYS[(at + more) % 3]) for at, name in enumerate(MODULES) for more in (0, 1)),
    *((name, STREAMED) for at, name in enumerate(MODULES) if name not in UNSTREAMED and at % 2),
    *((name, HALF_WAY) for name in (*HALVES, *CAST)),
    *((name, MAPPED) for name in HALVES if name not in UNMAPPED),
]
EVERY += [pair for pair in LATER.items() if pair not in EVERY]
# Kernels of one library have names of their own.
_OURS = re.compile(r"\b(P?L\d+_)")


@dataclass
class Whole:
    """A module's candidate under one strategy for its products, as the emulator takes it."""

    plan: str
    emitted: SimpleNamespace
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)


def _source(name: str) -> str:
    returned, shapes = (MODULES | HALVES | CAST)[name]
    names = ", ".join("xyz"[: len(shapes)])
    kind = f".{name}()" if name in HALVES else ""
    inputs = ", ".join(f"torch.randn({shape}){kind}" for shape in shapes)
    return _FILE.format(names=names, returned=returned, inputs=inputs)


def _drafted(name: str, way: str, hardware: Hardware) -> Whole:
    """The module with its products under one strategy, in the first setting."""
    task = trace(_source(name), f"/tmp/{name}.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire = repertoire_for(task, hardware)
    options = [one for one in repertoire.options() if one.form in ("", "products")]
    chosen = {one.loop: way for one in options if one.strategy.name == way}
    products = {one.loop for one in options if one.family == PRODUCT}
    assert {*chosen} == products, f"{name} has products without {way}"
    form = {FORM: "products"} if options[0].form else {}
    draft = repertoire.draft({**form, **chosen})
    assert "aten" not in draft.plan, draft.plan
    own = rf"K{EVERY.index((name, way))}\1"
    settings = {
        _OURS.sub(own, one.name): int(one.value)
        for one in complete_settings(parse_kernel(draft.kernel, "cuda"))
    }
    kernel = _OURS.sub(own, draft.kernel).replace(CudaEmitter().header(), "")
    return Whole(_OURS.sub(own, draft.plan), SimpleNamespace(source=kernel), settings)


Wholes = dict[tuple[str, str], Whole]
Compiled = Callable[[Iterable[tuple[str, str]]], Wholes]


@pytest.fixture(scope="module")
def compiled(toolbox: SimpleNamespace, small_device: Hardware) -> Compiled:
    """`compiled(pairs)`: modules under strategies, in one library."""

    def made(pairs: Iterable[tuple[str, str]]) -> Wholes:
        found = {(name, way): _drafted(name, way, small_device) for name, way in pairs}
        toolbox.compile_emulated([*found.values()], shard=8)
        return found

    return made


@pytest.fixture(scope="module")
def quick(compiled: Compiled) -> Wholes:
    return compiled(QUICK.items())


@pytest.fixture(scope="module")
def every(compiled: Compiled) -> Wholes:
    return compiled(EVERY)


@pytest.mark.parametrize("name", QUICK)
def test_a_module_computes_what_it_says(toolbox: SimpleNamespace, quick: Wholes, name: str) -> None:
    _compare(toolbox, quick[name, QUICK[name]], name)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "way"), EVERY)
def test_every_module_under_every_strategy(
    toolbox: SimpleNamespace, every: Wholes, name: str, way: str
) -> None:
    _compare(toolbox, every[name, way], name)


def _compare(toolbox: SimpleNamespace, whole: Whole, name: str) -> None:
    space: dict[str, Any] = {}
    exec(_source(name), space)
    model, inputs = space["Model"](), space["get_inputs"]()
    weights = {key: value.detach().clone() for key, value in model.state_dict().items()}
    wanted = _doubled(model, inputs)
    device = ctypes.CDLL(str(whole.library[0]))
    device.emulate_architecture(90)
    names: dict[str, Any] = toolbox.Emulated(device, {}, whole.settings).names()
    names["weights"] = weights
    exec(whole.plan, names)
    names["prepared"] = names["prepare"](weights) if "prepare" in names else None
    # Half types are rounded after each operator.
    off, scale = 1e-2 if name in HALVES | CAST else 4e-6, float(wanted.abs().max())
    got = names["forward"](*inputs).double()
    assert got.shape == wanted.shape
    torch.testing.assert_close(got, wanted, rtol=off, atol=off * scale)


def _doubled(model: torch.nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.double()(*(one.double() for one in inputs)).double()
    return found
