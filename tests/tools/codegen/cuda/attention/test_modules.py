"""Modules with attention, from the traced file to what the emulated device returns."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda.attention.split import SPLIT_ATTENTION
from kernelwright.tools.codegen.cuda.attention.warpgroups import WGMMA_ATTENTION
from kernelwright.tools.codegen.ir import Emitted
from kernelwright.tools.codegen.ir.kernel_family import LIBRARY
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    PlaybookRepertoire,
    repertoire_for,
)
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

H200 = hardware_profile("H200")
FILE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x, m):
        q, k, v = x.view(2, 70, 3, 4, 32).permute(2, 0, 3, 1, 4)
        y = {attention}
        return torch.tanh(y.transpose(1, 2).reshape(2, 70, 128))

def get_inputs():
    return [torch.randn(2, 70, 384).half(), torch.rand(2, 1, 1, 70) < 0.7]
"""
CAUSAL = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
WRITTEN = "torch.softmax((q @ k.mT * 0.2).masked_fill(~m, float('-inf')), dim=-1) @ v"
PADDED = "F.scaled_dot_product_attention(q, k, v, attn_mask=m)"
SINGLE = WRITTEN.replace("q @ k", "q.float() @ k.float()").replace("@ v", "@ v.float()")


@dataclass
class Playable:
    """A candidate's kernels as the emulator takes them."""

    emitted: Emitted
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)


def _drafts(attention: str, device: Hardware = H200) -> tuple[str, PlaybookRepertoire]:
    source = FILE.format(attention=attention)
    task = trace(source, "/tmp/layers.py", TracePolicy())
    assert isinstance(task, Task), task
    return source, repertoire_for(task, device)


def _ways(repertoire: PlaybookRepertoire) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for option in repertoire.options():
        found.setdefault(option.loop, []).append(option.strategy.name)
    return found


@pytest.mark.exhaustive  # from the trace on; the family itself in every run
@pytest.mark.parametrize(
    "attention",
    [
        WRITTEN,
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (CAUSAL, PADDED, SINGLE)),
    ],
)
async def test_a_module_computes_what_it_says(
    attention: str, toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    source, repertoire = _drafts(attention, small_device)
    name = SPLIT_ATTENTION if attention is SINGLE else WGMMA_ATTENTION
    taken = next(one for one in repertoire.options() if one.strategy.name == name)
    form = {FORM: taken.form} if taken.form else {}
    draft = repertoire.draft({taken.loop: name} | form)
    assert "aten" not in draft.plan
    built = await compile_candidate(
        new_candidate("cuda", draft.kernel, draft.plan), architecture="sm_90a", timeout_s=120
    )
    assert isinstance(built, Built), built
    chosen = {
        one.name: int(one.value) for one in complete_settings(parse_kernel(draft.kernel, "cuda"))
    }
    playable = Playable(Emitted(source=draft.kernel, plan=()), chosen)
    toolbox.compile_emulated([playable])
    names = toolbox.Emulated(ctypes.CDLL(str(playable.library[0])), {}, chosen).names()
    space: dict = {}
    exec(source, space)
    x, m = space["get_inputs"]()
    exec(draft.plan, names)
    wanted = space["Model"]()(x.double(), m).double()
    torch.testing.assert_close(names["forward"](x, m).double(), wanted, rtol=2e-3, atol=2e-3)


def test_the_library_stays_an_option() -> None:
    _, repertoire = _drafts(CAUSAL)
    (ways,) = [of for of in _ways(repertoire).values() if WGMMA_ATTENTION in of]
    assert ways == [WGMMA_ATTENTION, LIBRARY.name]


def test_float32_is_one_kernel_or_two_products_and_a_softmax() -> None:
    wide = "F.scaled_dot_product_attention(q.float(), k.float(), v.float()).half()"
    _, repertoire = _drafts(wide)
    ways = [of for of in _ways(repertoire).values() if SPLIT_ATTENTION in of]
    assert ways
    assert all(LIBRARY.name in of for of in ways)
    assert not any(WGMMA_ATTENTION in of for of in _ways(repertoire).values())


def test_float32_that_is_written_out_is_one_kernel_too() -> None:
    _, repertoire = _drafts(SINGLE)
    assert any(SPLIT_ATTENTION in of for of in _ways(repertoire).values())
    _, elsewhere = _drafts(SINGLE, hardware_profile("A100"))
    assert not any(SPLIT_ATTENTION in of for of in _ways(elsewhere).values())
