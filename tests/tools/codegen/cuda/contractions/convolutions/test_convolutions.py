"""Convolutions, from the traced module to what the emulated tensor cores return."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda.contractions.convolutions import window_ways
from kernelwright.tools.codegen.cuda.contractions.convolutions.convolution import (
    CONVOLUTION,
    SPLIT_CONVOLUTION,
)
from kernelwright.tools.codegen.cuda.contractions.float32.streamed import STREAMED
from kernelwright.tools.codegen.library.kernel_library import PlaybookRepertoire, repertoire_for
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.languages import with_settings as with_values
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Setting, Task, TracePolicy

FILE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.{conv}

    def forward(self, x):
        return {returned}

def get_inputs():
    torch.manual_seed(1)
    return [torch.randn({shape})]
"""
# The module, the input's shape, and what is returned where it is more than the convolution.
MODULES: dict[str, tuple[str, str, str]] = {
    "plain": ("Conv2d(64, 40, 3, padding=1)", "2, 64, 13, 18", "F.relu(self.conv(x)) * 0.5"),
    "strided": ("Conv2d(32, 24, 3, stride=2, padding=1, bias=False)", "3, 32, 17, 14", ""),
    "few_channels": ("Conv2d(3, 32, 7, stride=2, padding=3)", "2, 3, 30, 34", ""),
    "dilated": ("Conv2d(16, 70, (3, 5), padding=(2, 6), dilation=(2, 3))", "1, 16, 15, 33", ""),
    "grouped": ("Conv2d(32, 48, 3, groups=4, padding=1)", "2, 32, 9, 11", ""),
    "wide": ("Conv1d(20, 36, 5, stride=3, dilation=2)", "3, 20, 97", "torch.tanh(self.conv(x))"),
    "volume": ("Conv3d(8, 33, (3, 2, 3), padding=(1, 0, 1))", "2, 8, 5, 7, 9", ""),
    "turned": ("ConvTranspose2d(24, 32, 3, padding=1)", "2, 24, 9, 12", ""),
    "turned_wide": ("ConvTranspose1d(32, 64, 5, dilation=3)", "2, 32, 61", ""),
    "turned_steps": ("ConvTranspose2d(24, 20, 3, stride=2, padding=1)", "2, 24, 9, 12", ""),
    "turned_even": (
        "ConvTranspose2d(16, 24, 4, stride=2, padding=1)", "2, 16, 9, 12", "F.relu(self.conv(x))",
    ),
    # Fewer outputs than whole blocks hold, and what follows reads a value a column.
    "turned_cut": (
        "ConvTranspose2d(24, 20, 3, stride=2, padding=1)", "2, 24, 9, 12",
        "torch.tanh(self.conv(x)) * torch.arange(23)",
    ),
    "turned_gaps": (
        "ConvTranspose2d(32, 32, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=4)",
        "2, 32, 7, 10", "",
    ),
    "turned_far": (
        "ConvTranspose1d(16, 24, 3, stride=5, padding=1, dilation=2, output_padding=1)",
        "3, 16, 23", "",
    ),
    "patches": ("Conv2d(3, 64, 4, stride=4)", "2, 3, 24, 32", ""),
    "pointwise": ("Conv2d(48, 64, 1)", "2, 48, 9, 15", "self.conv(x) + 1"),
    "pointwise_even": ("Conv2d(72, 40, 1)", "3, 72, 8, 14", "F.relu(self.conv(x))"),
    "halves": ("Conv2d(64, 40, 3, padding=1).half()", "2, 64, 13, 18, dtype=torch.half", ""),
    "bfloat16": (
        "Conv2d(24, 48, 3, stride=2).bfloat16()", "2, 24, 19, 18, dtype=torch.bfloat16", "",
    ),
    # What is computed of a weight is computed, and packed, in every call.
    "computed_weight": (
        "Conv2d(16, 24, 3, bias=False)", "2, 16, 9, 11",
        "F.conv2d(x, torch.tanh(self.conv.weight))",
    ),
    "channels_last": (
        "Conv2d(32, 64, 3, padding=1)", "2, 11, 14, 32",
        "self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).contiguous()",
    ),
}  # fmt: skip
# The same in files that rule TF32 out.
EXACT = " exact"
QUICK = ("strided", "turned_cut", "computed_weight", f"strided{EXACT}")
_SPLIT = ("plain", "wide", "volume", "turned", "turned_even")
EVERY = (*MODULES, *(f"{name}{EXACT}" for name in _SPLIT))
# Of what the library itself multiplies in float32, TF32 or not.
_ALWAYS_EXACT = ("turned_gaps",)
_RULED_OUT = "torch.backends.cudnn.allow_tf32 = False\n\nclass Model"
# Eleven significant bits of each factor, times a few products; those of the half types' results.
_ROUGH = {"halves": 2e-3, "bfloat16": 1.5e-2}
# The first setting of each reuse, and others.
MORE = (
    {},
    {"SPAN": 32, "STAGES": 2},
    {"TOGETHER": 0},
    {"TOGETHER": 1, "SPAN": 32, "TILE": 64064, "GROUPS": 3},
    {"REUSE": 1, "TILE": 64032, "HELD": 0, "SPAN": 32, "GROUPS": 3},
    {"TILE": 128064, "STAGES": 2, "HELD": 0, "GROUPS": 2},
    {"TILE": 192064, "STAGES": 2, "HELD": 0, "GROUPS": 2},
)


swept = partial(pytest.param, marks=pytest.mark.exhaustive)
# These meet every setting; the others meet the first and one more, in turn.
EVERY_SETTING = ("plain", "turned_even", f"plain{EXACT}")


def _turn(at: int) -> tuple[dict[str, int], ...]:
    return MORE[0], MORE[1 + at % (len(MORE) - 1)]


def _source(name: str) -> str:
    conv, shape, returned = MODULES[name.removesuffix(EXACT)]
    source = FILE.format(conv=conv, shape=shape, returned=returned or "self.conv(x)")
    return source.replace("class Model", _RULED_OUT, 1) if name.endswith(EXACT) else source


def _is_exact(name: str) -> bool:
    return name.endswith(EXACT) or name in _ALWAYS_EXACT


def _repertoire(name: str, hardware: Hardware) -> PlaybookRepertoire:
    task = trace(_source(name), f"/tmp/{name}.py", TracePolicy())
    assert isinstance(task, Task), task
    return repertoire_for(task, hardware)


def _wanted(name: str) -> str:
    # Nothing slides there, and the input is read as it lies.
    if name == "pointwise_even":
        return STREAMED
    return SPLIT_CONVOLUTION if _is_exact(name) else CONVOLUTION


def _draft(name: str, hardware: Hardware) -> Any:
    repertoire = _repertoire(name, hardware)
    wanted = _wanted(name)
    # Single positions have a form of their own besides, with channels last.
    options = [one for one in repertoire.options() if one.form in ("", "convolutions")]
    ours = [one for one in options if one.strategy.name == wanted]
    assert len(ours) == 1, [one.strategy.name for one in options]
    form = {"form": ours[0].form} if ours[0].form else {}
    return repertoire.draft({**form, ours[0].loop: wanted})


def _settings(kernel: str, more: dict[str, int]) -> Sequence[Setting] | None:
    """A complete setting; None where this kernel has no such."""
    parsed = parse_kernel(kernel, "cuda")
    names = {one.name.rsplit("_", 1)[1]: one for one in parsed.tunables}
    if any(key not in names or value not in names[key].values for key, value in more.items()):
        return None
    return complete_settings(parsed, _chosen(parsed, more))


def _chosen(parsed: Any, more: dict[str, int]) -> list[Setting]:
    names = {one.name.rsplit("_", 1)[1]: one.name for one in parsed.tunables}
    return [Setting(name=names[key], value=value) for key, value in more.items()]


def _playable(
    toolbox: SimpleNamespace, name: str, hardware: Hardware, more: Sequence[dict[str, int]]
) -> list[Any]:
    found, draft = [], _draft(name, hardware)
    assert "aten" not in draft.plan, draft.plan
    for at, one in enumerate(more):
        settings = _settings(draft.kernel, one)
        if settings is None:
            continue
        own = f"{[*MODULES].index(name.removesuffix(EXACT))}{'x' * name.endswith(EXACT)}{at}"
        found.append(toolbox.renamed(name, draft, settings, f"K{own}"))
    return found


@pytest.fixture(scope="module")
def quick(toolbox: SimpleNamespace, small_device: Hardware) -> list[Any]:
    found = [one for name in QUICK for one in _playable(toolbox, name, small_device, MORE[:1])]
    toolbox.compile_emulated(found)
    return found


@pytest.fixture(scope="module")
def every(toolbox: SimpleNamespace, small_device: Hardware) -> list[Any]:
    found = [
        one
        for at, name in enumerate(EVERY)
        for one in _playable(
            toolbox, name, small_device, MORE if name in EVERY_SETTING else _turn(at)
        )
    ]
    toolbox.compile_emulated(found)
    return found


def _compare(toolbox: SimpleNamespace, made: list[Any], name: str) -> None:
    space: dict[str, Any] = {}
    exec(_source(name.removesuffix(EXACT)), space)
    model, (x,) = space["Model"](), space["get_inputs"]()
    for one in (one for one in made if one.name == name):
        found = toolbox.play(one, model, x)[0].double()
        with torch.no_grad():
            wanted = space["Model"]().double()(x.double())
        rough = 1e-6 if _is_exact(name) else _ROUGH.get(name, 1e-3)
        off = rough * float(wanted.abs().max())
        torch.testing.assert_close(found, wanted, rtol=0, atol=off, msg=str(one.settings))


@pytest.mark.parametrize(
    ("name", "once", "every_call"),
    [
        ("strided", ["once"], ["prepare", "pack", "windows"]),
        ("bfloat16", ["once"], ["pack", "windows"]),
        ("computed_weight", [], ["map", "prepare", "pack", "windows"]),
    ],
)
def test_a_weight_is_packed_once_for_all_calls(
    small_device: Hardware, name: str, once: list[str], every_call: list[str]
) -> None:
    prepare, _, forward = _draft(name, small_device).plan.partition("def forward")
    if not once:
        prepare, forward = "", prepare + forward
    launched = re.compile(r"launch\(.\w+?_(\w+).,")
    assert launched.findall(prepare) == once
    assert launched.findall(forward) == every_call


@pytest.mark.parametrize("name", QUICK)
def test_a_convolution_computes_what_the_module_does(
    toolbox: SimpleNamespace, quick: list[Any], name: str
) -> None:
    _compare(toolbox, quick, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EVERY)
def test_every_convolution_in_several_settings(
    toolbox: SimpleNamespace, every: list[Any], name: str
) -> None:
    _compare(toolbox, every, name)


@pytest.mark.parametrize("name", ["strided", f"strided{EXACT}"])
def test_what_halves_cannot_hold_is_summed_from_the_factors(
    toolbox: SimpleNamespace, quick: list[Any], name: str
) -> None:
    """Images 1e30 apart, pixels 1e12 apart within one, infinities and NaN."""
    bound = 2e-6 if _is_exact(name) else 2e-3
    space: dict[str, Any] = {}
    exec(_source("strided"), space)
    model, (x,) = space["Model"](), space["get_inputs"]()
    x[0] *= 1e-30
    x[1] *= 1e12
    x[1, :, 8:] = 1e-12 * torch.randn(32, 9, 14)
    x[2, 3, 4, 5], x[2, 7, 12, 9] = float("inf"), float("nan")
    (one,) = (one for one in quick if one.name == name)
    found = toolbox.play(one, model, x)[0]
    with torch.no_grad():
        wanted = model(x)
    scales = wanted.abs().nan_to_num(0.0, 0.0).amax(dim=(1, 2, 3), keepdim=True)
    torch.testing.assert_close(
        found / scales, wanted / scales, rtol=bound, atol=bound, equal_nan=True
    )
    # What lies below the border is tiny, and as exact as the rest.
    torch.testing.assert_close(found[1, :, 5:], wanted[1, :, 5:], rtol=bound, atol=bound * 5e-12)


@pytest.mark.exhaustive
def test_outputs_that_no_tap_reaches_are_never_in_doubt(
    toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    """Their sums are zero, which is below any bound: on a device they took 300 times as long."""
    (one,) = _playable(toolbox, "turned_gaps", small_device, MORE[:1])
    source = one.emitted.source
    assert "const float value = from_factors(" in source
    source = source.replace("value = from_factors(", "value = NAN * from_factors(")
    one.emitted = SimpleNamespace(source=source)
    toolbox.compile_emulated([one])
    space: dict[str, Any] = {}
    exec(_source("turned_gaps"), space)
    model, (x,) = space["Model"](), space["get_inputs"]()
    x[:, 0, 3, 4] = 1e-9  # a number that halves hold too few bits of
    found = toolbox.play(one, model, x)[0]
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=2e-6, atol=2e-6)


@pytest.fixture(scope="module")
def sampled(toolbox: SimpleNamespace, small_device: Hardware) -> Callable[[str], Any]:
    """`sampled(name)`: a convolution that looks at one number in 16 before it packs."""

    @cache
    def made(name: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(window_ways, "_SAMPLED", 64)
            (one,) = _playable(toolbox, name, small_device, MORE[:1])
        assert "_repack" in one.plan
        one.settings |= {key: 16 for key in one.settings if key.endswith("_EVERY")}
        toolbox.compile_emulated([one])
        return one

    return made


def _surprises(x: torch.Tensor) -> None:
    """Images of which a sample says little: one number beyond all others, nearly none, all tiny."""
    place = tuple(size // 2 for size in x.shape[1:])
    x[-1] *= 1e-36
    x[-1][place] = float("-inf")
    x[1] = 0.0
    x[1][place] = 1e-30
    x[0][place] = 1e20


@pytest.mark.parametrize("name", ["strided", swept(f"strided{EXACT}"), swept("channels_last")])
@pytest.mark.parametrize("surprises", [False, True])
def test_what_a_sample_misses_is_packed_again(
    toolbox: SimpleNamespace, sampled: Callable[[str], Any], name: str, surprises: bool
) -> None:
    space: dict[str, Any] = {}
    exec(_source(name.removesuffix(EXACT)), space)
    model, (x,) = space["Model"](), space["get_inputs"]()
    if surprises:
        _surprises(x)
    one = sampled(name)
    found, again = (toolbox.play(one, model, x)[0] for _ in range(2))
    assert torch.equal(found.view(torch.int32), again.view(torch.int32))
    with torch.no_grad():
        wanted = model.double()(x.double())
    # What a number that drowns all others does not reach is as exact as elsewhere.
    size = wanted.abs().nan_to_num(0.0, 0.0)
    size = size.where(size < 1e10, 0.0).flatten(1).amax(1).view(-1, *[1] * (x.dim() - 1))
    bound = (2e-6 if _is_exact(name) else 2e-3) * torch.maximum(wanted.abs(), size)
    is_close = (found.double() - wanted).abs() <= bound
    assert (is_close | (found.double() == wanted) | (found.isnan() & wanted.isnan())).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_loops_of_convolutions_are_right(
    toolbox: SimpleNamespace, small_device: Hardware, kind: str
) -> None:
    """The twin of the test on a device."""
    loops = {
        f"{kind}_{step}_{gap}_{channels}": toolbox.convolution(
            toolbox.Build, kind, step, gap, channels
        )
        for step, gap in ((1, 1), (2, 1), (1, 2))
        for channels in (3, 80)
    }
    made = toolbox.make_variants(
        loops, small_device, settings=1, most_threads=640, names=(CONVOLUTION,)
    )
    assert len(made) == len(loops)
    toolbox.compile_emulated(made)
    for one in made:
        toolbox.check(*one.run(), one.loop)


def _forms(source: str, device: Hardware) -> set[str]:
    task = trace(source, "/tmp/forms.py", TracePolicy())
    assert isinstance(task, Task), task
    return {one.form for one in repertoire_for(task, device).options()}


def test_convolutions_are_a_form_where_kernels_for_them_are() -> None:
    source = _source("plain").replace("2, 64, 13, 18", "32, 64, 56, 56")
    assert "convolutions" in _forms(source, hardware_profile("H200"))
    assert "convolutions" not in _forms(source, hardware_profile("A100"))
    assert "convolutions" not in _forms(source, hardware_profile("cpu"))
    # Three channels are what the library is worst at, and no reason to leave it to it.
    first = (
        _source("volume")
        .replace("Conv3d(8", "Conv3d(3")
        .replace("2, 8, 5, 7, 9", "8, 3, 16, 99, 99")
    )
    task = trace(first, "/tmp/first.py", TracePolicy())
    assert isinstance(task, Task), task
    options = repertoire_for(task, hardware_profile("H200")).options()
    assert [one.strategy.name for one in options][:1] == [CONVOLUTION]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("plain", [CONVOLUTION, SPLIT_CONVOLUTION]),
        # Where float32 is meant as IEEE says, or the library takes it so, one half is not enough.
        (f"plain{EXACT}", [SPLIT_CONVOLUTION]),
        ("turned_gaps", [SPLIT_CONVOLUTION]),
    ],
)
def test_what_a_file_says_of_tf32_decides_the_products(name: str, wanted: list[str]) -> None:
    large = _source(name).replace("2, 64, 13, 18", "32, 64, 56, 56")
    task = trace(large.replace("2, 32, 7, 10", "32, 32, 70, 100"), "/tmp/x.py", TracePolicy())
    assert isinstance(task, Task), task
    # What a file sets is its own.
    assert torch.backends.cudnn.allow_tf32
    options = repertoire_for(task, hardware_profile("H200")).options()
    assert [n for one in options if (n := one.strategy.name) in wanted] == wanted
    assert not any(one.strategy.name == CONVOLUTION for one in options if CONVOLUTION not in wanted)


LARGE = {
    "images": ("Conv2d(64, 128, 3, padding=1)", "16, 64, 256, 256"),
    "first": ("Conv2d(3, 64, 7, stride=2, padding=3)", "64, 3, 224, 224"),
    "volumes": ("Conv3d(32, 64, 3, padding=1)", "8, 32, 48, 48, 48"),
}


SETTINGS = ({}, {"SPAN": 32}, {"TILE": 128128, "GROUPS": 2}, {"TILE": 64064, "GROUPS": 4})
SPLIT_SETTINGS = ({}, {"TILE": 64128, "GROUPS": 2}, {"TILE": 64064, "GROUPS": 3, "HELD": 0})


@pytest.mark.parametrize(
    ("name", "strategy", "more"),
    [
        swept(name, strategy, more)
        for name in LARGE
        for strategy, tried in ((CONVOLUTION, SETTINGS), (SPLIT_CONVOLUTION, SPLIT_SETTINGS))
        for more in tried
    ],
)
async def test_sums_stay_in_registers(
    toolbox: SimpleNamespace, name: str, strategy: str, more: dict[str, int]
) -> None:
    conv, shape = LARGE[name]
    source = FILE.format(conv=conv, shape=shape, returned="F.relu(self.conv(x))")
    source = source.replace("torch.randn(", "torch.empty(")
    task = trace(source, f"/tmp/{name}.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire = repertoire_for(task, hardware_profile("H200"))
    (ours,) = (one for one in repertoire.options() if one.strategy.name == strategy)
    draft = repertoire.draft({"form": ours.form, ours.loop: strategy})
    candidate = new_candidate("cuda", draft.kernel, draft.plan)
    parsed = parse_kernel(draft.kernel, "cuda")
    candidate = with_values(candidate, complete_settings(parsed, _chosen(parsed, more)))
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    # Sums that are indexed at run time would lie on the stack, and products wait for each other.
    assert not any(report.spill_bytes + report.stack_bytes for report in built.reports)
    assert "serialized" not in built.log
    assert not await toolbox.never_runs(built.artifact)
