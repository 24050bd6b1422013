"""Convolutions whose results are reduced where they are made, on emulated tensor cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda.contractions.convolutions import convolution
from kernelwright.tools.codegen.cuda.contractions.convolutions.convolution import (
    CONVOLUTION,
    SPLIT_CONVOLUTION,
)
from kernelwright.tools.codegen.ir.contraction import Contraction, Statistics
from kernelwright.tools.codegen.ir.loops import ReduceKind
from kernelwright.tools.codegen.library.kernel_library import PlaybookRepertoire, repertoire_for
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.languages import with_settings as with_values
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Setting, Task, TracePolicy

FOLDED = "folded_convolutions"
FILE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.{conv}
        self.bias = torch.nn.Parameter(torch.randn({bias}))

    def forward(self, x):
        return {returned}

def get_inputs():
    torch.manual_seed(1)
    return [torch.randn({shape})]
"""
# The module, the input's shape, the shape of another weight, and what is returned.
MODULES: dict[str, tuple[str, str, str, str]] = {
    # All columns of a tile, some of them beyond the product's.
    "least": (
        "Conv2d(16, 40, 3)", "2, 16, 11, 13", "40, 1, 1",
        "torch.tanh((self.conv(x) * self.bias).amin(1, keepdim=True))",
    ),
    # A fold a block of outputs, which are fewer than blocks hold; 24 columns a fold leave warps no
    # more than 8 at a time.
    "log_sum": (
        "ConvTranspose3d(3, 24, 3, stride=2, padding=1)", "2, 3, 4, 5, 6", "1, 1, 1, 1",
        "F.hardswish(torch.logsumexp(self.conv(x), 1, keepdim=True)) - self.bias",
    ),
    # Three passes.
    "softmax": (
        "ConvTranspose2d(16, 32, 4, stride=2, padding=1)", "2, 16, 7, 9", "32, 1, 1",
        "torch.sigmoid(F.softmax(self.conv(x), 1) + self.bias)",
    ),
    # Windows of what blocks hold, which is more than there is, and of blocks made for them.
    "blocks": (
        "ConvTranspose3d(3, 16, 3, stride=2, padding=1)", "2, 3, 4, 5, 6", "16, 1, 1, 1",
        "F.max_pool3d(F.leaky_relu(self.conv(x)) * self.bias, 2)",
    ),
    "windows": (
        "Conv2d(8, 24, 3, padding=1)", "2, 8, 15, 18", "24, 1, 1",
        "F.avg_pool2d(torch.tanh(self.conv(x)), 4) - self.bias",
    ),
    # Four columns, which a lane has at once.
    "fours": (
        "Conv2d(8, 24, 3)", "2, 8, 17, 13", "24, 1, 1",
        "F.silu(F.max_pool2d(F.hardswish(self.conv(x) - self.bias), 2))",
    ),
    # Outputs of a window one after the other, those along the last direction beside each other.
    "turns": (
        "Conv2d(16, 24, 3)", "2, 16, 17, 12", "24, 1, 1",
        "F.silu(F.max_pool2d(F.hardswish(self.conv(x) - self.bias), 2))",
    ),
    "turns_only": (
        "ConvTranspose2d(20, 24, 3, padding=1)", "2, 20, 13, 14", "1, 4, 4",
        "F.avg_pool2d(torch.tanh(self.conv(x)), 3) + self.bias",
    ),
    "turns_volume": (
        "Conv3d(16, 33, (3, 2, 3), padding=(1, 0, 1))", "2, 16, 5, 7, 12", "33, 1, 1, 1",
        "F.avg_pool3d(self.conv(x) * self.bias, (2, 3, 4))",
    ),
    # Both what is reduced and what it is reduced from.
    "centred": (
        "Conv1d(16, 32, 3, stride=2)", "3, 16, 65", "32, 1",
        "(self.conv(x) - self.conv(x).mean(1, keepdim=True)) * self.bias",
    ),
}  # fmt: skip
EXACT = " exact"
_RULED_OUT = "torch.backends.cudnn.allow_tf32 = False\n\nclass Model"
QUICK = (f"softmax{EXACT}",)
# No tile of two parts has 192 columns.
EVERY = (*MODULES, *(f"{name}{EXACT}" for name in MODULES if name != "log_sum"))
MORE: tuple[dict[str, int], ...] = (
    {}, {"TILE": 64192, "STAGES": 2}, {"SPAN": 32}, {"TILE": 128064, "HELD": 0},
)  # fmt: skip


def _source(name: str) -> str:
    conv, shape, bias, returned = MODULES[name.removesuffix(EXACT)]
    source = FILE.format(conv=conv, shape=shape, bias=bias, returned=returned)
    return source.replace("class Model", _RULED_OUT, 1) if name.endswith(EXACT) else source


def _repertoire(source: str, hardware: Hardware) -> PlaybookRepertoire:
    task = trace(source, "/tmp/folds.py", TracePolicy())
    assert isinstance(task, Task), task
    return repertoire_for(task, hardware)


def _draft(source: str, hardware: Hardware, strategy: str) -> Any:
    repertoire = _repertoire(source, hardware)
    options = [one for one in repertoire.options() if one.form == FOLDED]
    assert len({one.loop for one in options}) == 1, "everything is one loop"
    assert strategy in [one.strategy.name for one in options]
    return repertoire.draft({"form": FOLDED, options[0].loop: strategy})


def _settings(kernel: str, more: dict[str, int]) -> list[Setting] | None:
    """A complete setting; None where this kernel has no such."""
    parsed = parse_kernel(kernel, "cuda")
    names = {one.name.rsplit("_", 1)[1]: one for one in parsed.tunables}
    if any(key not in names or value not in names[key].values for key, value in more.items()):
        return None
    chosen = [Setting(name=names[key].name, value=value) for key, value in more.items()]
    return list(complete_settings(parsed, chosen))


def _playable(
    toolbox: SimpleNamespace, name: str, hardware: Hardware, number: int, more: dict[str, int]
) -> list[Any]:
    strategy = SPLIT_CONVOLUTION if name.endswith(EXACT) else CONVOLUTION
    draft = _draft(_source(name), hardware, strategy)
    settings = _settings(draft.kernel, more)
    if settings is None:
        return []
    return [toolbox.renamed(name, draft, settings, f"F{number}")]


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
    exec(_source(name.removesuffix(EXACT)), space)
    (x,) = space["get_inputs"]()
    return space["Model"](), x


def _compare(toolbox: SimpleNamespace, made: list[Any], name: str) -> None:
    model, x = _module(name)
    with torch.no_grad():
        wanted = _module(name)[0].double()(x.double())
    off = (2e-6 if name.endswith(EXACT) else 1e-3) * float(wanted.abs().max())
    mine = [one for one in made if one.name == name]
    assert mine
    for one in mine:
        found = toolbox.play(one, model, x)[0].double()
        torch.testing.assert_close(found, wanted, rtol=0, atol=off, msg=str(one.settings))


@pytest.mark.parametrize("name", QUICK)
def test_results_are_reduced_where_they_are_made(
    toolbox: SimpleNamespace, quick: list[Any], name: str
) -> None:
    _compare(toolbox, quick, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EVERY)
def test_every_fold_in_several_settings(
    toolbox: SimpleNamespace, every: list[Any], name: str
) -> None:
    _compare(toolbox, every, name)


@pytest.mark.parametrize("name", QUICK)
def test_what_halves_cannot_hold_is_reduced_as_it_should_be(
    toolbox: SimpleNamespace, quick: list[Any], name: str
) -> None:
    _compare_beyond_halves(toolbox, quick, name)


@pytest.mark.exhaustive
def test_what_halves_cannot_hold_is_reduced_in_turns(
    toolbox: SimpleNamespace, every: list[Any]
) -> None:
    _compare_beyond_halves(toolbox, every, "turns")


def _compare_beyond_halves(toolbox: SimpleNamespace, made: list[Any], name: str) -> None:
    """Images 1e30 apart, pixels far apart within one, an infinity and NaN."""
    model, x = _module(name)
    x[0] *= 1e-30
    x[1, :, 4:] *= 1e-12
    if not name.startswith("softmax"):  # zero weights of a block's other outputs would spread these
        x[1, 3, 6, 5], x[1, 7, 2, 6] = float("inf"), float("nan")
    found = toolbox.play(next(one for one in made if one.name == name), model, x)[0]
    with torch.no_grad():
        wanted = model(x)
    bound = 2e-6 if name.endswith(EXACT) else 2e-3
    torch.testing.assert_close(found, wanted, rtol=bound, atol=bound, equal_nan=True)


def test_a_fold_that_no_tile_holds_is_no_form(small_device: Hardware) -> None:
    source = _source("least").replace("40", "300")
    assert FOLDED not in {one.form for one in _repertoire(source, small_device).options()}


def test_statistics_of_what_is_folded_are_no_form(
    small_device: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, Contraction]] = []
    kinds_of = convolution._kinds

    def kinds(case: Any, contraction: Contraction) -> list[Any]:
        asked.append((case, contraction))
        return kinds_of(case, contraction)

    monkeypatch.setattr(convolution, "_kinds", kinds)
    _repertoire(_source("least"), small_device).options()
    case, folded = next(one for one in asked if one[1].folds and kinds_of(*one))
    taken = Statistics(
        name="mean", kind=ReduceKind.MOMENTS, dtype=folded.dtype, value=folded.total, when="",
        along=tuple(axis.name for axis in folded.columns), body=(), stores=(),
    )  # fmt: skip
    assert kinds_of(case, folded.model_copy(update={"statistics": taken})) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["least", "log_sum", "turns"])
async def test_folds_stay_in_registers(toolbox: SimpleNamespace, name: str) -> None:
    source = _source(name).replace("2, 16, 11, 13", "64, 16, 256, 256").replace("40", "128")
    source = source.replace("2, 3, 4, 5, 6", "64, 3, 16, 32, 32").replace("randn", "empty")
    source = source.replace("2, 16, 17, 12", "64, 16, 130, 130")
    draft = _draft(source, hardware_profile("H200"), CONVOLUTION)
    candidate = new_candidate("cuda", draft.kernel, draft.plan)
    candidate = with_values(candidate, complete_settings(parse_kernel(draft.kernel, "cuda"), []))
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built
    assert not any(report.spill_bytes + report.stack_bytes for report in built.reports)
    assert "serialized" not in built.log
    assert not await toolbox.never_runs(built.artifact)


def test_a_mean_over_one_of_the_windows_directions_is_no_fold(small_device: Hardware) -> None:
    """Its outputs are those of no window that moves along it."""
    conv, shape, bias, _ = MODULES["turns_volume"]
    source = FILE.format(conv=conv, shape=shape, bias=bias, returned="self.conv(x).mean(2)")
    assert FOLDED not in {one.form for one in _repertoire(source, small_device).options()}
