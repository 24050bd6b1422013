"""Attention in half types whose scores are so large that no product of one with log2 e is a weight.

Queries and keys are small integers, rows of them scaled by powers of two, so that scores are exact
in float32 in any order: weights are known, ties among them too, however far from zero.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.attention.common import AttentionFamily
from kernelwright.tools.codegen.cuda.attention.warpgroups import WGMMA_ATTENTION_FAMILY
from kernelwright.tools.codegen.cuda.attention.warps import MMA_ATTENTION_FAMILY
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Buffer, Emitted, LibraryCall, PlanLine
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import DType, Setting

LENGTH, WIDTH, HEADS = 150, 32, 2
Tensors = dict[str, torch.Tensor]


@dataclass
class Way:
    """A family, a type, and how it is called."""

    family: AttentionFamily
    kind: str
    given: str = ""
    masked: bool = False
    emitted: Emitted = field(default_factory=lambda: Emitted(source="", plan=()))
    settings: dict[str, int] = field(default_factory=dict)
    library: list[Path] = field(default_factory=list)

    @property
    def names(self) -> str:
        return "qkvm" if self.masked else "qkv"

    @property
    def arguments(self) -> str:
        mask = ["attn_mask=m"] if self.masked else []
        return ", ".join(["q", "k", "v", *mask, *([self.given] if self.given else [])])

    def print(self, prefix: str, device: Hardware) -> None:
        """The kernel, with 64 keys a step, so that rows have several."""
        shapes = dict.fromkeys("qkv", (1, HEADS, LENGTH, WIDTH))
        shapes["m"] = (1, HEADS, LENGTH, LENGTH)
        inputs = tuple(
            Buffer(name=name, shape=shapes[name], dtype=DType(self.kind), role="input")
            for name in self.names
        )
        line = PlanLine(
            text=f"y = aten.scaled_dot_product_attention({self.arguments})",
            makes=("y",),
            uses=tuple(self.names),
            operator="aten.scaled_dot_product_attention.default",
            cost_bytes=1,
        )
        result = inputs[0].model_copy(update={"name": "y", "role": "output"})
        call = LibraryCall(line=line, operands=inputs, results=(result,))
        self.emitted = self.family.emit(Case(call, device), self.family.strategy.name, prefix)
        source = parse_kernel(CudaEmitter().header() + self.emitted.source, "cuda")
        chosen = complete_settings(source, [Setting(name=f"{prefix}_KEYS", value=64)])
        self.settings = {one.name: int(one.value) for one in chosen}

    def truth(self, tensors: Tensors) -> torch.Tensor:
        """The same in float64."""
        names = {name: tensor.double() for name, tensor in tensors.items()}
        found = eval(
            f"attention({self.arguments})", {"attention": F.scaled_dot_product_attention, **names}
        )
        assert isinstance(found, torch.Tensor)
        return found

    def run(self, tensors: Tensors, toolbox: SimpleNamespace) -> torch.Tensor:
        library = ctypes.CDLL(str(self.library[0]))
        names = toolbox.Emulated(library, dict(tensors), self.settings).names()
        names["y"] = torch.full((1, HEADS, LENGTH, WIDTH), float("nan"), dtype=tensors["q"].dtype)
        exec("\n".join(self.emitted.plan), names)
        found = names["y"]
        assert isinstance(found, torch.Tensor)
        return found


B, H = "bfloat16", "float16"
WAYS = {
    "warpgroups": Way(WGMMA_ATTENTION_FAMILY, B),
    "warpgroups_causal": Way(WGMMA_ATTENTION_FAMILY, B, "is_causal=True, scale=1.0"),
    "warpgroups_half": Way(WGMMA_ATTENTION_FAMILY, H, "scale=3.0"),
    "warpgroups_bias": Way(WGMMA_ATTENTION_FAMILY, B, "scale=0.25", masked=True),
    "warps": Way(MMA_ATTENTION_FAMILY, B, "is_causal=True"),
}


@pytest.fixture(scope="module")
def ways(small_device: Hardware, toolbox: SimpleNamespace) -> dict[str, Way]:
    for at, way in enumerate(WAYS.values()):
        way.print(f"K{at}", small_device)
    toolbox.compile_emulated([*WAYS.values()])
    return WAYS


def _integers(most: int = 3) -> torch.Tensor:
    return torch.randint(-most, most + 1, (1, HEADS, LENGTH, WIDTH)).double()


def _powers(most: int) -> torch.Tensor:
    """A power of two for every row, from 1 to 2^most."""
    return torch.exp2(torch.randint(0, most + 1, (1, HEADS, LENGTH, 1)).double())


def _far_queries(most: int) -> Tensors:
    return {"q": _integers() * _powers(most), "k": _integers()}


def _far_keys(most: int) -> Tensors:
    return {"q": _integers(), "k": _integers() * _powers(most)}


def _close_to_far_tops(most: int) -> Tensors:
    """Scores are small integers beside some 2^20 that the keys of a step share, of either sign."""
    q, k = _integers(1), _integers(1)
    size = 2.0 ** min(10, most)
    q[..., 0] = size
    k[..., 0] = torch.tensor([-1.0, 0.0, 1.0])[torch.arange(LENGTH) // 64] * size
    q[..., ::2, 0] *= -1
    return {"q": q, "k": k}


def _all_alike(most: int) -> Tensors:
    """Every key is as far, and as good."""
    one = torch.ones(1, HEADS, LENGTH, WIDTH).double()
    return {"q": one * _powers(most), "k": -one * 2.0 ** min(most, 10)}


FAR: dict[str, Callable[[int], Tensors]] = {
    "queries": _far_queries, "keys": _far_keys, "tops": _close_to_far_tops, "alike": _all_alike,
}  # fmt: skip
# Powers of two that the type holds three times of.
MOST = {B: 100, H: 13}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("far", FAR)
def test_weights_are_right_however_far_scores_are(
    name: str, far: str, ways: dict[str, Way], toolbox: SimpleNamespace
) -> None:
    torch.manual_seed(5)
    way, dtype = ways[name], getattr(torch, ways[name].kind)
    tensors = {**FAR[far](MOST[way.kind]), "v": torch.randn(1, HEADS, LENGTH, WIDTH)}
    if way.masked:
        tensors["m"] = torch.zeros(1, HEADS, LENGTH, LENGTH)
        tensors["m"][..., 3:80] = -torch.inf
        tensors["m"][..., 7, :] = -torch.inf
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    wanted, found = way.truth(tensors), way.run(tensors, toolbox)
    if way.masked:  # a row that is masked out altogether is zeros
        wanted[..., 7, :] = 0.0
    spread = way.truth({**tensors, "v": tensors["v"].abs()}).nan_to_num()
    off = (found.double() - wanted).abs()
    assert bool(torch.isfinite(found).all())
    assert bool((off <= torch.finfo(dtype).eps * spread + 1e-6).all()), off.max()
