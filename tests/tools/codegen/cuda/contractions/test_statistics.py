"""Norms whose statistics are taken by the product before them, on emulated tensor cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.library.forms.products import STATISTICS
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
        self.first = torch.nn.{first}
        self.norm = torch.nn.{norm}
        with torch.no_grad():
            for one in self.norm.parameters():
                one.uniform_(0.5, 1.5)

    def forward(self, x):
        return {returned}

def get_inputs():
    torch.manual_seed(1)
    return [torch.randn({shape})]
"""
# The product, the norm, the input's shape, and what is returned.
MODULES: dict[str, tuple[str, str, str, str]] = {
    # Groups of several channels, images that end amid a warp's places, an activation between.
    "group": (
        "Conv2d(16, 40, 3)", "GroupNorm(5, 40)", "3, 16, 11, 13",
        "torch.tanh(self.norm(F.hardswish(self.first(x))))",
    ),
    # One group of all channels: a row of the norm is an image.
    "image": (
        "Conv1d(8, 24, 3, stride=2)", "GroupNorm(1, 24)", "3, 8, 97", "self.norm(self.first(x))",
    ),
    "instance": (
        "Conv2d(8, 24, 3, padding=1)", "InstanceNorm2d(24)", "2, 8, 15, 18",
        "self.norm(self.first(x)) / 2",
    ),
    # Running averages are made where parts are joined; a power of two of results a channel.
    "batch": (
        "Conv2d(16, 36, 3)", "BatchNorm2d(36)", "4, 16, 10, 10", "F.relu(self.norm(self.first(x)))",
    ),
    # Blocks of outputs, all of them, and more than there are.
    "blocks": (
        "ConvTranspose2d(16, 16, 4, stride=2, padding=1)", "GroupNorm(4, 16)", "2, 16, 7, 9",
        "F.gelu(self.norm(self.first(x)))",
    ),
    "blocks_cut": (
        "ConvTranspose2d(16, 24, 3, stride=2, padding=1)", "BatchNorm2d(24)", "2, 16, 9, 8",
        "self.norm(F.leaky_relu(self.first(x)))",
    ),
    "volume": (
        "Conv3d(3, 24, 3)", "GroupNorm(4, 24)", "2, 3, 6, 7, 8",
        "self.norm(F.hardswish(self.first(x)))",
    ),
    # A sum of squares instead of moments.
    "squares": (
        "Conv2d(8, 32, 3)", "Identity()", "2, 8, 12, 13",
        "(lambda y: y * torch.rsqrt((y * y).mean((1, 2, 3), keepdim=True) + 1e-6))(self.first(x))",
    ),
    "largest": (
        "Conv2d(8, 32, 3)", "Identity()", "2, 8, 12, 13",
        "(lambda y: y - y.amax((2, 3), keepdim=True))(self.first(x))",
    ),
    # Nothing but a mean is left of the results, which are never stored.
    "mean": (
        "Conv2d(8, 24, 3)", "Identity()", "3, 8, 11, 13",
        "torch.tanh(F.hardswish(self.first(x)).mean((2, 3)))",
    ),
    "grouped": (
        "Conv2d(32, 32, 3, groups=2)", "GroupNorm(4, 32)", "2, 32, 10, 11",
        "self.norm(self.first(x))",
    ),
    # A row of the norm beside each other, some of them beyond the tile's end.
    "layer": (
        "Linear(72, 100)", "LayerNorm(100)", "37, 72",
        "torch.tanh(self.norm(F.silu(self.first(x))))",
    ),
    # Groups that end amid what a warp has.
    "parts": ("Linear(64, 144)", "GroupNorm(3, 144)", "45, 64", "self.norm(self.first(x))"),
    "down": (
        "Linear(40, 72)", "BatchNorm1d(72)", "83, 40", "F.gelu(self.norm(self.first(x) * 0.5))",
    ),
    "root": (
        "Linear(64, 96)", "RMSNorm(96)", "2, 21, 64", "self.norm(self.first(x))",
    ),
    # Windows of one position.
    "points": (
        "Conv2d(32, 48, 1)", "GroupNorm(6, 48)", "2, 32, 7, 12", "F.relu(self.norm(self.first(x)))",
    ),
}  # fmt: skip
EXACT, HALF, LAST = " exact", " half", " last"
_RULED_OUT = "torch.backends.cudnn.allow_tf32 = False\n\nclass Model"
PRODUCTS = {
    f"{name} {kind}": kind
    for name in ("layer", "parts", "down", "root", "points")
    for kind in ("streamed_wgmma", "split_wgmma")
    if name != "points" or kind == "streamed_wgmma"
}
QUICK = ("layer streamed_wgmma", "group", f"batch{EXACT}", "blocks_cut")
EVERY = (
    *(name for name in MODULES if not any(one.startswith(f"{name} ") for one in PRODUCTS)),
    *PRODUCTS,
    *(f"{name}{EXACT}" for name in ("group", "blocks", "volume")),
    *(f"{name}{HALF}" for name in ("group", "batch", "instance")),
    *(f"{name}{LAST}" for name in ("group", "batch")),
)
MORE: tuple[dict[str, int], ...] = (
    {}, {"TILE": 64128, "STAGES": 2}, {"SPAN": 32}, {"TILE": 128064, "HELD": 0},
)  # fmt: skip


def _plain(name: str) -> str:
    return name.split(" ")[0]


def _source(name: str) -> str:
    first, norm, shape, returned = MODULES[_plain(name)]
    source = FILE.format(first=first, norm=norm, shape=shape, returned=returned)
    if name.endswith(HALF):
        source = source.replace(f"torch.nn.{first}", f"torch.nn.{first}.half()")
        source = source.replace(f"torch.nn.{norm}", f"torch.nn.{norm}.half()")
        source = source.replace(f"torch.randn({shape})", f"torch.randn({shape}).half()")
    if name.endswith(LAST):
        channels_last = f"torch.randn({shape}).to(memory_format=torch.channels_last)"
        source = source.replace(f"torch.randn({shape})", channels_last)
    return source.replace("class Model", _RULED_OUT, 1) if name.endswith(EXACT) else source


def _repertoire(source: str, hardware: Hardware) -> PlaybookRepertoire:
    task = trace(source, "/tmp/norms.py", TracePolicy())
    assert isinstance(task, Task), task
    return repertoire_for(task, hardware)


def _draft(source: str, hardware: Hardware, kind: str) -> Any:
    repertoire = _repertoire(source, hardware)
    options = [one for one in repertoire.options() if one.form == STATISTICS]
    chosen = {one.loop: one.strategy.name for one in options if one.strategy.name == kind}
    assert chosen, {one.strategy.name for one in options}
    return repertoire.draft({"form": STATISTICS, **chosen})


def _settings(kernel: str, more: dict[str, int]) -> list[Setting] | None:
    """A complete setting; None where this kernel has no such."""
    parsed = parse_kernel(kernel, "cuda")
    wanted: list[Setting] = []
    for key, value in more.items():
        named = [one for one in parsed.tunables if one.name == f"NL0_{key}"]
        if not named or value not in named[0].values:
            return None
        wanted.append(Setting(name=named[0].name, value=value))
    try:
        return list(complete_settings(parsed, wanted))
    except ValueError:
        return None


def _kind(name: str) -> str:
    if name in PRODUCTS:
        return PRODUCTS[name]
    return "wgmma_windows_split" if name.endswith(EXACT) else "wgmma_windows"


def _playable(
    toolbox: SimpleNamespace, name: str, hardware: Hardware, number: int, more: dict[str, int]
) -> list[Any]:
    draft = _draft(_source(name), hardware, _kind(name))
    settings = _settings(draft.kernel, more)
    if settings is None:
        return []
    return [toolbox.renamed(name, draft, settings, f"S{number}")]


@pytest.fixture(scope="module")
def quick(toolbox: SimpleNamespace, small_device: Hardware) -> list[Any]:
    made = [
        one for at, n in enumerate(QUICK) for one in _playable(toolbox, n, small_device, at, {})
    ]
    toolbox.compile_emulated(made)
    return made


@pytest.fixture(scope="module")
def every(toolbox: SimpleNamespace, small_device: Hardware) -> list[Any]:
    # Each meets one setting, in turn; the first where it has no such.
    made = [
        one
        for at, name in enumerate(EVERY)
        for one in _playable(toolbox, name, small_device, at, MORE[at % len(MORE)])
        or _playable(toolbox, name, small_device, at, MORE[0])
    ]
    toolbox.compile_emulated(made)
    return made


def _module(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    space: dict[str, Any] = {}
    exec(_source(name).replace(_RULED_OUT, "class Model"), space)
    (x,) = space["get_inputs"]()
    return space["Model"](), x


def _compare(toolbox: SimpleNamespace, made: list[Any], name: str) -> None:
    model, x = _module(name)
    truth = _module(name)[0].double()
    with torch.no_grad():
        wanted = truth(x.double())
    off = (1e-5 if name.endswith(EXACT) or "Linear" in _source(name) else 4e-3) * float(
        wanted.abs().max()
    )
    mine = [one for one in made if one.name == name]
    assert mine
    for one in mine:
        found, updates = toolbox.play(one, model, x)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=off, msg=str(one.settings))
        state = truth.state_dict()
        for key, value in updates.items():
            torch.testing.assert_close(value.double(), state[key].double(), rtol=0, atol=off)


@pytest.mark.parametrize("name", QUICK)
def test_a_norm_has_its_statistics_from_the_product(
    toolbox: SimpleNamespace, quick: list[Any], name: str
) -> None:
    _compare(toolbox, quick, name)


def test_what_is_only_reduced_is_never_stored(small_device: Hardware) -> None:
    assert "convolution" not in _draft(_source("mean"), small_device, "wgmma_windows").plan


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EVERY)
def test_every_norm_in_several_settings(
    toolbox: SimpleNamespace, every: list[Any], name: str
) -> None:
    _compare(toolbox, every, name)


def test_parts_are_joined_in_a_fixed_order(toolbox: SimpleNamespace, quick: list[Any]) -> None:
    one = next(one for one in quick if one.name == "group")
    first, second = (toolbox.play(one, *_module("group"))[0] for _ in range(2))
    assert torch.equal(first, second)


def _far_off(mean: float) -> tuple[torch.nn.Module, torch.Tensor]:
    """The module of a batch norm on results around a large mean."""
    model, x = _module("batch")
    with torch.no_grad():
        model.first.bias.add_(mean)
    return model, x


@pytest.mark.parametrize("mean", [3e3, -1e6])
def test_a_small_variance_about_a_large_mean_is_kept(
    toolbox: SimpleNamespace, quick: list[Any], mean: float
) -> None:
    """As exact as PyTorch's own norm of the same float32 results, whose rounding nobody undoes."""
    model, x = _far_off(mean)
    one = next(one for one in quick if one.name == f"batch{EXACT}")
    found, _ = toolbox.play(one, model, x)
    with torch.no_grad():
        rounded = model.first(x)
        exact = torch.nn.functional.batch_norm(
            rounded.double(), None, None, model.norm.weight.double(), model.norm.bias.double(), True
        ).relu()
        theirs = model(x)
    # Both round the product, each in its own way: a unit in the last place of the mean.
    off = 2.0**-23 * abs(mean) / float(rounded.double().std())
    error = float((theirs.double() - exact).abs().max())
    assert float((found.double() - exact).abs().max()) <= 4 * max(error, off)


def test_what_is_not_finite_reaches_its_own_rows_alone(
    toolbox: SimpleNamespace, quick: list[Any]
) -> None:
    model, x = _module("group")
    x[1, 3, 6, 5], x[2, 7, 2, 6] = float("inf"), float("nan")
    one = next(one for one in quick if one.name == "group")
    found, _ = toolbox.play(one, model, x)
    with torch.no_grad():
        wanted = model(x)
    assert not found[1:].isfinite().any()
    torch.testing.assert_close(found, wanted, rtol=4e-3, atol=4e-3, equal_nan=True)


def test_equal_results_have_no_variance(toolbox: SimpleNamespace, quick: list[Any]) -> None:
    """What is left of them is the norm's own bias, whatever chunks they fall into."""
    model, x = _module("batch")
    with torch.no_grad():
        model.first.weight.zero_()
        model.first.bias.fill_(1000.1)
    one = next(one for one in quick if one.name == f"batch{EXACT}")
    found, updates = toolbox.play(one, model, x)
    wanted = model.norm.bias.detach().relu()[None, :, None, None].expand_as(found)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(updates["norm.running_var"], torch.full((36,), 0.9))


def test_rows_that_are_shorter_than_a_chunk_are_no_form(small_device: Hardware) -> None:
    source = _source("parts").replace("GroupNorm(3", "GroupNorm(12")
    assert STATISTICS not in {one.form for one in _repertoire(source, small_device).options()}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("group", {"3, 16, 11, 13": "16, 16, 256, 256"}),
        (f"batch{EXACT}", {"4, 16, 10, 10": "32, 16, 128, 128"}),
        ("blocks_cut", {"2, 16, 9, 8": "32, 16, 128, 128"}),
        ("layer streamed_wgmma", {"37, 72": "65536, 72"}),
        ("layer split_wgmma", {"37, 72": "65536, 72"}),
    ],
)
async def test_statistics_stay_in_registers(
    toolbox: SimpleNamespace, name: str, shapes: dict[str, str]
) -> None:
    source = _source(name).replace("torch.randn", "torch.empty")
    for few, many in shapes.items():
        source = source.replace(few, many)
    draft = _draft(source, hardware_profile("H200"), _kind(name))
    candidate = new_candidate("cuda", draft.kernel, draft.plan)
    candidate = with_values(candidate, complete_settings(parse_kernel(draft.kernel, "cuda"), []))
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    # Products index the results of a lane that are summed again, with statistics or without.
    most = 32 if name in PRODUCTS else 0
    assert all(report.spill_bytes <= most // 4 for report in built.reports)
    assert all(report.stack_bytes <= most for report in built.reports)
    assert "serialized" not in built.log
    assert not await toolbox.never_runs(built.artifact)
