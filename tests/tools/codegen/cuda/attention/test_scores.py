"""Attention with a score function of its own, from the traced module to the emulated device."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda.attention.split import SPLIT_ATTENTION
from kernelwright.tools.codegen.cuda.attention.warpgroups import WGMMA_ATTENTION
from kernelwright.tools.codegen.cuda.attention.warps import MMA_ATTENTION
from kernelwright.tools.codegen.ir import Emitted
from kernelwright.tools.codegen.library.kernel_library import FORM, repertoire_for
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    new_candidate,
    parse_kernel,
    with_settings,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Setting, Task, TracePolicy

FILE = """
import math

import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.Parameter(torch.randn(2 * {keys} + 1, {heads}))
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, {heads} + 1).float())

    def forward(self, q, k, v, m):
        i, j = torch.arange({queries})[:, None], torch.arange({keys})[None]
        s = q @ k.mT / math.sqrt({width})
{body}

def get_inputs():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, {heads}, n, {width}) for n in ({queries}, {keys}, {keys}))
    keep = torch.rand({queries}, {keys}) < 0.7
    keep[:, 0] = True
    return [*(one.to(torch.{kind}) for one in (q, k, v)), keep]
"""
SOFTCAP = "s = 20.0 * torch.tanh(s / 20.0)"
CAUSAL = "s = s.masked_fill(j > i, float('-inf'))"
SOFTMAX = "return torch.softmax(s, -1) @ v"
MASKED = "s = s.masked_fill(~m, float('-inf'))"
LINEAR = "self.slopes.to(q.dtype)[:, None, None] * (j - i)"
GROUPS = "k, v = (x[:, ::2].repeat_interleave(2, 1) for x in (k, v))\ns = q @ k.mT * 0.1"
HALF, SINGLE, WARPS = WGMMA_ATTENTION, SPLIT_ATTENTION, MMA_ATTENTION


@dataclass
class Module:
    """A forward, its sizes, the kernel that it wants, and what came of it."""

    body: str
    way: str = HALF
    queries: int = 70
    keys: int = 70
    width: int = 32
    heads: int = 4
    kind: str = ""
    settings: dict[str, int] = field(default_factory=dict)
    plan: str = ""
    emitted: Emitted = field(default_factory=lambda: Emitted(source="", plan=()))
    library: list[Path] = field(default_factory=list)

    @property
    def source(self) -> str:
        body = "\n".join(f"        {line}" for line in self.body.splitlines())
        kind = self.kind or ("float32" if self.way == SINGLE else "float16")
        return FILE.format(body=body, queries=self.queries, keys=self.keys, width=self.width,
                           heads=self.heads, kind=kind)  # fmt: skip

    def by(self, way: str, **changes: int | str) -> Module:
        return replace(self, way=way, settings={}, library=[], **changes)

    def draft(self, device: Hardware) -> tuple[str, str]:
        """Kernel and plan; nothing is left to the library but what is beside attention."""
        task = trace(self.source, "/tmp/scores.py", TracePolicy())
        assert isinstance(task, Task), task
        drafts = repertoire_for(task, device)
        ways = [one.strategy.name for one in drafts.options() if one.form == "scored_attention"]
        assert self.way in ways, ways
        made = drafts.draft({FORM: "scored_attention"})
        assert "aten" not in made.plan
        return made.kernel, made.plan


FIRST = {
    "softcap": Module(f"{SOFTCAP}\n{CAUSAL}\n{SOFTMAX}", kind="bfloat16", keys=150, queries=150),
    "relu": Module("return torch.relu(s) @ v", SINGLE),
    "alibi": Module(f"s = s + {LINEAR}\n{CAUSAL}\n{SOFTMAX}", WARPS),
}
EVERY = FIRST | {
    "window": Module(
        f"s = s.masked_fill((j > i) | (i - j > 40), float('-inf'))\n{SOFTMAX}",
        keys=300, queries=300,
    ),
    "window_of_both_sides": Module(
        f"{SOFTCAP}\ns = torch.where((i - j).abs() <= 70, s, -torch.inf)\n{SOFTMAX}",
        keys=260, queries=300,
    ),
    "masked_softcap": Module(f"{SOFTCAP}\n{MASKED}\n{SOFTMAX}", keys=99),
    "sigmoid": Module("return torch.sigmoid(s - math.log(70)) @ v", keys=130),
    "squared_relu": Module("return (torch.relu(s).square() * (j <= i) / 70) @ v"),
    "causal_relu": Module(
        "return torch.relu(s).masked_fill(j > i, 0.0) @ v", keys=140, queries=140
    ),
    "learned_distance": Module(
        f"b = self.table[j - i + {70}].permute(2, 0, 1).to(q.dtype)\ns = s + b\n{SOFTMAX}"
    ),
    "computed_mask": Module(
        "return F.scaled_dot_product_attention(q, k, v, attn_mask="
        "(self.slopes[:, None, None] * (j - i).abs()).to(q.dtype))"
    ),
    "computed_truth": Module("return F.scaled_dot_product_attention(q, k, v, (j <= i) & m)"),
    "grouped": Module(f"{GROUPS}\n{SOFTCAP}\n{SOFTMAX}", keys=90),
    "rows_and_heads": Module(
        "s = torch.tanh(s * self.slopes.to(q.dtype)[:, None, None] + i.to(q.dtype).sin())\n"
        "return torch.softmax(s.float(), -1).to(q.dtype) @ v"
    ),
    "soft_weights": Module("return (F.softplus(s) - 0.5) @ v", keys=90, width=64),
}  # fmt: skip
EVERY |= {f"single_{name}": one.by(SINGLE, kind="float32") for name, one in EVERY.items()}
EVERY |= {
    f"warps_{name}": EVERY[name].by(WARPS)
    for name in ("window", "masked_softcap", "causal_relu", "computed_truth", "rows_and_heads")
}
EVERY |= {
    "one_group": replace(FIRST["softcap"], settings={"ROWS": 64, "KEYS": 64}, library=[]),
    "three_groups": replace(FIRST["softcap"], settings={"ROWS": 192, "KEYS": 64}, library=[]),
    "single_wide_step": replace(
        EVERY["single_soft_weights"], settings={"KEYS": 64, "ROWS": 128}, library=[]
    ),
}  # fmt: skip


def _compiled(modules: dict[str, Module], hopper: Hardware, toolbox: SimpleNamespace) -> None:
    for at, one in enumerate(modules.values()):
        kernel, plan = one.draft(hardware_profile("A100") if one.way == WARPS else hopper)
        # Each has names of its own in the one file that is compiled.
        kernel, plan = (re.sub(r"\bS(?=attention|ATTENTION|L\d)", f"S{at}", text)
                        for text in (kernel, plan))  # fmt: skip
        one.plan, one.emitted = plan, Emitted(source=kernel, plan=())
        parsed = parse_kernel(kernel, "cuda")
        wanted = [Setting(name=f"S{at}ATTENTION_BY_ALGEBRA_1_{k}", value=v)
                  for k, v in one.settings.items()]  # fmt: skip
        one.settings = {s.name: int(s.value) for s in complete_settings(parsed, wanted)}
    toolbox.compile_emulated([*modules.values()])


@pytest.fixture(scope="module")
def every(small_device: Hardware, toolbox: SimpleNamespace) -> dict[str, Module]:
    _compiled(EVERY, small_device, toolbox)
    return EVERY


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EVERY)
def test_a_score_function_is_computed(
    name: str, toolbox: SimpleNamespace, every: dict[str, Module]
) -> None:
    _check(every[name], toolbox)


LARGE = {
    "sm_90a": [Module(f"{SOFTCAP}\n{CAUSAL}\n{SOFTMAX}", way, 4096, 4096, 128)
               for way in (HALF, SINGLE)],
    "sm_80": [Module(f"s = s + {LINEAR}\n{SOFTCAP}\n{SOFTMAX}", WARPS, 4096, 4096, 128)],
    "sm_120": [Module("return torch.relu(s) @ v", WARPS, 4096, 4096, 128)],
}  # fmt: skip
DEVICES = {"sm_90a": "H200", "sm_80": "A100", "sm_120": "RTX 5090"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("architecture", LARGE)
async def test_first_settings_compile_without_spills(
    architecture: str, toolbox: SimpleNamespace
) -> None:
    for one in LARGE[architecture]:
        kernel, plan = one.draft(hardware_profile(DEVICES[architecture]))
        candidate = new_candidate("cuda", kernel, plan)
        chosen = with_settings(candidate, complete_settings(parse_kernel(kernel, "cuda")))
        built = await compile_candidate(chosen, architecture=architecture, timeout_s=120)
        assert isinstance(built, Built), built
        assert not any(report.spill_bytes for report in built.reports)
        assert "C7510" not in built.log


def _check(one: Module, toolbox: SimpleNamespace) -> None:
    space: dict = {}
    exec(one.source, space)
    inputs, module = space["get_inputs"](), space["Model"]()
    names = toolbox.Emulated(ctypes.CDLL(str(one.library[0])), {}, one.settings).names()
    names["weights"] = dict(module.state_dict())
    exec(one.plan, names)
    found = names["forward"](*inputs).double()
    with torch.no_grad():
        own = module(*inputs).double()
        doubled = [x if x.dtype is torch.bool else x.double() for x in inputs]
        wanted = module.double()(*doubled)
        spread = module(*doubled[:2], doubled[2].abs(), doubled[3]).abs().amax(-1, keepdim=True)
    # As exact as the judge asks: not four times as far off as PyTorch's own.
    most = 4 * (own - wanted).abs().max() + torch.finfo(inputs[0].dtype).eps * spread
    assert bool(((found - wanted).abs() <= most).all()), (found - wanted).abs().max()
