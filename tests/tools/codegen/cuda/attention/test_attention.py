"""Attention in one kernel, on the emulated device: masks, heads that share keys, odd lengths."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.attention.split import (
    SPLIT_ATTENTION,
    SPLIT_ATTENTION_FAMILY,
)
from kernelwright.tools.codegen.cuda.attention.warpgroups import (
    WGMMA_ATTENTION,
    WGMMA_ATTENTION_FAMILY,
)
from kernelwright.tools.codegen.cuda.attention.warps import MMA_ATTENTION, MMA_ATTENTION_FAMILY
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Buffer, Emitted, LibraryCall, PlanLine
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.languages import with_settings as with_values
from kernelwright.tools.types import DType, Setting

EMITTER = CudaEmitter()
Shape = tuple[int, ...]
Compile = Callable[[Sequence["Tried"]], None]


@dataclass
class Tried:
    """A call, what it reads, and the settings that it is tried under."""

    shapes: Sequence[Shape]
    given: str = ""
    kind: str = "float16"
    mask: tuple[Shape, str] | None = None
    settings: dict[str, int] = field(default_factory=dict)
    views: tuple[str, str, str] = ("q", "k", "v")
    by_warps: bool = False
    emitted: Emitted = field(default_factory=lambda: Emitted(source="", plan=()))
    library: list[Path] = field(default_factory=list)

    def buffers(self) -> tuple[Buffer, ...]:
        kinds = [(name, shape, self.kind) for name, shape in zip("qkv", self.shapes, strict=True)]
        if self.mask is not None:
            kinds.append(("mask", *self.mask))
        return tuple(
            Buffer(name=name, shape=shape, dtype=DType(kind), role="input")
            for name, shape, kind in kinds
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        torch.manual_seed(prod(self.shapes[0]))
        return {one.name: _filled(one) for one in self.buffers()}

    def in_warps(self, **settings: int) -> Tried:
        """The same, by products of warps."""
        return replace(self, settings=settings, by_warps=True, library=[])

    def in_single(self, **settings: int) -> Tried:
        """The same in float32, by parts."""
        mask = self.mask
        if mask is not None and mask[1] != "bool":
            mask = (mask[0], "float32")
        return replace(self, kind="float32", mask=mask, settings=settings, library=[])

    def printed(self, prefix: str, device: Hardware) -> Emitted:
        """The call's kernel: that for Hopper, or that of warps."""
        call = self.call()
        if self.by_warps:
            return MMA_ATTENTION_FAMILY.emit(Case(call, device), MMA_ATTENTION, prefix)
        (strategy,) = EMITTER.strategies(call, device)
        assert strategy.name == (SPLIT_ATTENTION if self.kind == "float32" else WGMMA_ATTENTION)
        return EMITTER.emit(call, strategy, prefix, device)

    def call(self) -> LibraryCall:
        inputs = self.buffers()
        out = _result(
            self, {one.name: torch.zeros(one.shape) for one in inputs if one.name != "mask"}
        )
        line = PlanLine(
            text=f"y = aten.scaled_dot_product_attention({self.arguments()})",
            makes=("y",),
            uses=tuple(one.name for one in inputs),
            operator="aten.scaled_dot_product_attention.default",
            cost_bytes=1,
        )
        result = Buffer(name="y", shape=tuple(out.shape), dtype=DType(self.kind), role="output")
        return LibraryCall(line=line, operands=inputs, results=(result,))

    def arguments(self, mask: bool = True) -> str:
        named = ["attn_mask=mask"] if self.mask is not None and mask else []
        return ", ".join([*self.views, *named, *([self.given] if self.given else [])])


def _filled(buffer: Buffer) -> torch.Tensor:
    dtype = getattr(torch, buffer.dtype.value)
    if dtype is torch.bool:
        made = torch.rand(buffer.shape) < 0.6
        # Of the first of many rows nothing is left.
        rows = made.view(-1, buffer.shape[-1])
        rows[: 2 if len(rows) > 2 else 0] = False
        return made
    return torch.randn(buffer.shape).to(dtype)


def _result(tried: Tried, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    given = tried.arguments(mask="mask" in tensors)
    names = {"attention": torch.nn.functional.scaled_dot_product_attention, **tensors}
    found = eval(f"attention({given})", names)
    assert isinstance(found, torch.Tensor)
    return found


H, B = "float16", "bfloat16"
QUICK: dict[str, Tried] = {
    "plain": Tried([(2, 2, 130, 64), (2, 2, 150, 64), (2, 2, 150, 64)]),
    "causal": Tried([(1, 3, 200, 64)] * 3, "is_causal=True", B, settings={"KEYS": 64}),
    "boolean": Tried(
        [(2, 3, 100, 32), (2, 3, 90, 32), (2, 3, 90, 32)], mask=((2, 1, 100, 90), "bool")
    ),
    "bias": Tried(
        [(2, 2, 80, 72), (2, 2, 104, 72), (2, 2, 104, 72)], kind=B, mask=((1, 2, 80, 104), B)
    ),
    "shared_heads": Tried(
        [(2, 6, 70, 64), (2, 2, 90, 64), (2, 2, 90, 64)], "is_causal=True, enable_gqa=True"
    ),
}
THOROUGH: dict[str, Tried] = {
    "far_apart": Tried([(1, 2, 100, 64), (1, 2, 400, 64), (1, 2, 400, 64)], "scale=2.0"),
    "far_apart_bias": Tried(
        [(1, 2, 70, 64), (1, 2, 400, 64), (1, 2, 400, 64)], "scale=2.0", mask=((70, 400), H)
    ),
    "bias_over_tiles": Tried(
        [(2, 2, 200, 64), (2, 2, 300, 64), (2, 2, 300, 64)],
        "scale=-0.2",
        mask=((2, 1, 200, 300), H),
        settings={"KEYS": 64},
    ),
    "bias_odd": Tried([(1, 2, 80, 72), (1, 2, 99, 72), (1, 2, 99, 72)], mask=((1, 2, 80, 99), H)),
    "boolean_in_pairs": Tried(
        [(2, 3, 100, 32), (2, 3, 200, 32), (2, 3, 200, 32)], mask=((1, 3, 100, 200), "bool")
    ),
    "bias_of_keys": Tried(
        [(2, 2, 65, 32), (2, 2, 136, 32), (2, 2, 136, 32)],
        "is_causal=False",
        mask=((2, 1, 1, 136), H),
    ),
    "causal_wide": Tried([(1, 2, 140, 128)] * 3, "is_causal=True"),
    "causal_long_keys": Tried([(1, 2, 70, 40), (1, 2, 300, 40), (1, 2, 300, 40)], "is_causal=True"),
    "causal_short_keys": Tried(
        [(1, 2, 300, 40), (1, 2, 70, 40), (1, 2, 70, 40)], "is_causal=True", settings={"KEYS": 64}
    ),
    "padding": Tried(
        [(2, 2, 65, 32), (2, 2, 129, 32), (2, 2, 129, 32)],
        "scale=-0.3",
        mask=((2, 1, 1, 129), "bool"),
    ),
    "bias_single": Tried([(1, 1, 33, 16)] * 3, "scale=0.7", mask=((33, 33), "float32")),
    "values_unlike": Tried([(1, 2, 66, 192), (1, 2, 77, 192), (1, 2, 77, 128)]),
    "widest": Tried([(1, 1, 130, 256), (1, 1, 70, 256), (1, 1, 70, 256)], kind=B),
    "one_query": Tried([(2, 2, 1, 64), (2, 2, 200, 64), (2, 2, 200, 64)]),
    "no_batch": Tried([(40, 64), (50, 64), (50, 64)]),
    "rows_last": Tried(
        [(2, 50, 2, 32), (2, 60, 2, 32), (2, 60, 2, 32)],
        views=tuple(f"{name}.permute((0, 2, 1, 3))" for name in "qkv"),
    ),
    "parts_of_one": Tried(
        [(2, 50, 3, 2, 32), (1,), (1,)],
        "is_causal=True",
        views=tuple(f"q.narrow(2, {at}, 1).squeeze(2).permute((0, 2, 1, 3))" for at in range(3)),
    ),
    "repeated": Tried(
        [(2, 4, 40, 32), (2, 2, 1, 50, 32), (2, 2, 1, 50, 32)],
        views=("q", *(f"{n}.expand((2, 2, 2, 50, 32)).reshape((2, 4, 50, 32))" for n in "kv")),
    ),
    "three_groups": Tried(
        [(1, 3, 400, 64)] * 3, "is_causal=True", settings={"ROWS": 192, "KEYS": 64, "STAGES": 3}
    ),
    "no_turns": Tried([(1, 3, 200, 64)] * 3, settings={"TURNS": 0, "KEYS": 64, "STAGES": 2}),
    "block_a_tile": Tried(
        [(1, 5, 200, 64)] * 3, "is_causal=True", settings={"PERSISTENT": 0, "TOGETHER": 4}
    ),
}


QUICK |= {
    "warps_causal": QUICK["causal"].in_warps(),
    "warps_bias": QUICK["bias"].in_warps(),
    "single_causal": QUICK["causal"].in_single(KEYS=64, STAGES=1),
    "single_bias": QUICK["bias"].in_single(),
}
NARROW = {
    name: one
    for name, one in (QUICK | THOROUGH).items()
    if not one.by_warps and max(shape[-1] for shape in one.shapes) <= 128
}
THOROUGH |= {f"warps_{name}": one.in_warps(WARPS=8, KEYS=32, STAGES=3)
             for name, one in NARROW.items() if one.kind != "float32"}  # fmt: skip
THOROUGH |= {f"single_{name}": one.in_single() for name, one in NARROW.items()}
THOROUGH |= {
    "single_three_groups": Tried([(1, 3, 400, 64)] * 3, kind="float32",
                                 settings={"ROWS": 192, "KEYS": 64}),
    "single_one_group": Tried([(1, 3, 100, 64)] * 3, kind="float32", settings={"ROWS": 64}),
    "single_turned": Tried([(1, 2, 64, 40), (1, 2, 50, 64), (1, 2, 50, 64)], kind="float32",
                           views=("q.permute((0, 1, 3, 2))", "k", "v")),
    "single_shifted": Tried([(1, 2, 40, 67), (1, 2, 50, 64), (1, 2, 50, 64)], kind="float32",
                            views=("q.narrow(3, 3, 64)", "k", "v")),
}  # fmt: skip


# What the emulator plays every time, and in the sweep; a device plays all of them.
# One in warpgroups, in warps and in float32; what else is QUICK is swept with the rest.
_TRIED = ("plain", "bias", "warps_causal", "single_causal")
TRIED = {name: one for name, one in QUICK.items() if name in _TRIED}
_REST = {name: one for name, one in (QUICK | THOROUGH).items() if name not in TRIED}
_BY_WARPS = [name for name in _REST if name.startswith("warps_")]
SWEPT = {name: one for name, one in _REST.items() if name not in _BY_WARPS[1::2]}


def _compiled(tried: dict[str, Tried], device: Hardware, emulated: Compile) -> None:
    for at, one in enumerate(tried.values()):
        prefix = f"K{at}"
        one.emitted = one.printed(prefix, device)
        wanted = [
            Setting(name=f"{prefix}_{name}", value=value) for name, value in one.settings.items()
        ]
        source = parse_kernel(EMITTER.header() + one.emitted.source, "cuda")
        one.settings = {s.name: int(s.value) for s in complete_settings(source, wanted)}
    emulated([*tried.values()])


@pytest.fixture(scope="module")
def quick(small_device: Hardware, toolbox: SimpleNamespace) -> dict[str, Tried]:
    _compiled(TRIED, small_device, toolbox.compile_emulated)
    return TRIED


@pytest.fixture(scope="module")
def thorough(small_device: Hardware, toolbox: SimpleNamespace) -> dict[str, Tried]:
    _compiled(SWEPT, small_device, toolbox.compile_emulated)
    return SWEPT


@pytest.mark.parametrize("name", TRIED)
def test_attention_is_right(name: str, toolbox: SimpleNamespace, quick: dict[str, Tried]) -> None:
    _check(quick[name], toolbox)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SWEPT)
def test_attention_is_right_in_every_way(
    name: str, toolbox: SimpleNamespace, thorough: dict[str, Tried]
) -> None:
    _check(thorough[name], toolbox)


def _check(one: Tried, toolbox: SimpleNamespace) -> None:
    tensors = one.tensors()
    wanted, most = _truth(one, tensors)
    library = ctypes.CDLL(str(one.library[0]))
    names = toolbox.Emulated(library, dict(tensors), one.settings).names()
    names["y"] = torch.full(wanted.shape, float("nan"), dtype=tensors["q"].dtype)
    exec("\n".join(one.emitted.plan), names)
    assert names["y"].shape == wanted.shape
    off = (names["y"].double() - wanted).abs() / most
    assert bool((off <= 1).all()), off.max()


def _truth(one: Tried, tensors: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """In float64, and how far off a result may be: weights and the result are rounded once."""
    doubled = {n: t if t.dtype is torch.bool else t.double() for n, t in tensors.items()}
    wanted = _result(one, doubled)
    # Where queries and values are parts of one tensor, its largest magnitudes bound the values.
    shared = "q" in one.views[2]
    spread = 3.0 if shared else _result(one, doubled | {"v": doubled["v"].abs()})
    if one.kind == "float32":
        # Nor is it further off than the judge allows, four times as far as PyTorch's own.
        own = (_result(one, tensors) - wanted).abs().max()
        return wanted, torch.finfo(torch.float32).eps * spread + 4 * own + 1e-9
    return wanted, torch.finfo(tensors["q"].dtype).eps * spread + 1e-6


H200 = hardware_profile("H200")
REFUSED = {
    "all of one type, half or single": Tried([(1, 2, 40, 64)] * 3, kind="float64"),
    "drops weights at random": Tried([(1, 2, 40, 64)] * 3, "dropout_p=0.1"),
    "20 wide, which is no multiple of 8": Tried([(1, 2, 40, 20)] * 3),
    "264 wide": Tried([(1, 2, 40, 264)] * 3),
    "elements of a row are not neighbours": Tried(
        [(1, 2, 64, 40), (1, 2, 50, 64), (1, 2, 50, 64)],
        views=("q.permute((0, 1, 3, 2))", "k", "v"),
    ),
    "rows begin at no multiples of 16 bytes": Tried(
        [(1, 2, 40, 68), (1, 2, 50, 64), (1, 2, 50, 64)], views=("q.narrow(3, 4, 64)", "k", "v")
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_stays_with_the_library_says_why(why: str) -> None:
    call = REFUSED[why].call()
    assert not EMITTER.strategies(call, H200)
    with pytest.raises(ValueError, match=why):
        WGMMA_ATTENTION_FAMILY.emit(Case(call, H200), WGMMA_ATTENTION, "k")


@pytest.mark.parametrize(("kind", "on_hopper", "elsewhere"), [
    ("float16", [WGMMA_ATTENTION], [MMA_ATTENTION]), ("float32", [SPLIT_ATTENTION], []),
])  # fmt: skip
def test_every_device_has_its_own_way(
    kind: str, on_hopper: list[str], elsewhere: list[str]
) -> None:
    call = Tried([(1, 2, 40, 64)] * 3, kind=kind).call()
    names = {
        device: [one.name for one in EMITTER.strategies(call, hardware_profile(device))]
        for device in ("H200", "A100", "L40S")
    }
    assert names == {"H200": on_hopper, "A100": elsewhere, "L40S": elsewhere}


def test_wide_heads_in_float32_stay_with_the_library() -> None:
    case = Case(Tried([(1, 2, 40, 136)] * 3, kind="float32").call(), H200)
    with pytest.raises(ValueError, match="136 wide, and both parts of more than 128"):
        SPLIT_ATTENTION_FAMILY.emit(case, SPLIT_ATTENTION, "k")


LARGE: dict[str, Tried] = {
    "causal": Tried([(4, 16, 4096, 128)] * 3, "is_causal=True"),
    "narrow": Tried([(4, 16, 4096, 64)] * 3, kind=B),
    "bias": Tried([(2, 16, 4096, 128)] * 3, mask=((1, 16, 4096, 4096), H)),
    "widest": Tried([(4, 16, 4096, 256)] * 3),
    "warps": Tried([(4, 16, 4096, 128)] * 3, "is_causal=True", by_warps=True),
    "single": Tried([(4, 16, 2048, 64)] * 3, kind="float32"),
    "single_wide": Tried([(4, 16, 2048, 128)] * 3, "is_causal=True", kind="float32"),
    "single_bias": Tried([(64, 3, 49, 32)] * 3, kind="float32", mask=((1, 3, 49, 49), "float32")),
    "single_bias_long": Tried([(4, 16, 512, 64)] * 3, kind="float32",
                              mask=((1, 16, 512, 512), "float32")),
}  # fmt: skip
FIRST, *REST = LARGE


@pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in REST)]
)
async def test_first_settings_compile_without_spills(name: str, toolbox: SimpleNamespace) -> None:
    source = EMITTER.header() + LARGE[name].printed("k", H200).source
    candidate = new_candidate("cuda", source, "def forward(x):\n    return x\n")
    chosen = with_values(candidate, complete_settings(parse_kernel(source, "cuda")))
    built = await compile_candidate(chosen, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    assert not any(report.spill_bytes for report in built.reports)
    assert "C7510" not in built.log
    assert not await toolbox.never_runs(built.artifact)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*QUICK, *THOROUGH])
async def test_attention_is_right_on_a_device(name: str) -> None:
    one = (QUICK | THOROUGH)[name]
    call, emitted = one.call(), one.printed("k", H200)
    inputs = [buffer.name for buffer in call.operands]
    made = f'y = empty({call.results[0].shape}, dtype="{one.kind}")'
    lines = "".join(f"    {line}\n" for line in (made, *emitted.plan, "return y"))
    plan = f"def forward({', '.join(inputs)}):\n{lines}"
    tensors = one.tensors()
    candidate = new_candidate("cuda", EMITTER.header() + emitted.source, plan)
    chosen = with_values(candidate, complete_settings(parse_kernel(candidate.kernel, "cuda")))
    built = await compile_candidate(chosen, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    tensors = one.tensors()
    runner = load_candidate(chosen, built, "cuda:0")
    (found,) = runner([tensors[name].cuda() for name in inputs], {})
    wanted, most = _truth(one, tensors)
    assert bool(((found.cpu().double() - wanted).abs() <= most).all())
