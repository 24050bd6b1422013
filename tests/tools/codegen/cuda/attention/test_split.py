"""Attention in float32 by parts: as exact as float32, whatever lies in the tensors."""

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
from kernelwright.tools.codegen.cuda.attention.split import SPLIT_ATTENTION
from kernelwright.tools.codegen.ir import Buffer, Emitted, LibraryCall, PlanLine
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import DType

QUERIES, KEYS, WIDTH = 70, 200, 32
SIZES = {"q": QUERIES, "k": KEYS, "v": KEYS}
# What the judge allows, in PyTorch's own errors.
BOUND = 4.0
EPS = torch.finfo(torch.float32).eps
Tensors = dict[str, torch.Tensor]


@dataclass
class Call:
    """The call, its kernels, and what they said of rows that parts cannot give."""

    emitted: Emitted
    settings: dict[str, int]
    toolbox: SimpleNamespace
    library: list[Path] = field(default_factory=list)

    def run(self, tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        names = self.toolbox.Emulated(
            ctypes.CDLL(str(self.library[0])), dict(tensors), self.settings
        ).names()
        names["y"] = torch.full((1, 2, QUERIES, WIDTH), float("nan"))
        exec("\n".join(self.emitted.plan), names)
        return names["y"], names["k_doubts"]


@pytest.fixture(scope="module")
def call(small_device: Hardware, toolbox: SimpleNamespace) -> Call:
    inputs = tuple(
        Buffer(name=name, shape=(1, 2, size, WIDTH), dtype=DType.FLOAT32, role="input")
        for name, size in SIZES.items()
    )
    line = PlanLine(
        text="y = aten.scaled_dot_product_attention(q, k, v)",
        makes=("y",),
        uses=("q", "k", "v"),
        operator="aten.scaled_dot_product_attention.default",
        cost_bytes=1,
    )
    result = inputs[0].model_copy(update={"name": "y", "role": "output"})
    emitter, node = CudaEmitter(), LibraryCall(line=line, operands=inputs, results=(result,))
    (strategy,) = emitter.strategies(node, small_device)
    assert strategy.name == SPLIT_ATTENTION
    emitted = emitter.emit(node, strategy, "k", small_device)
    chosen = complete_settings(parse_kernel(emitter.header() + emitted.source, "cuda"))
    made = Call(emitted, {one.name: int(one.value) for one in chosen}, toolbox)
    toolbox.compile_emulated([made])
    return made


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(1, 2, *shape)


def _extremes(*shape: int) -> torch.Tensor:
    kind = torch.randint(0, 32, (1, 2, *shape))
    x = _normal(*shape)
    x = torch.where(kind == 0, x * 1e4, x)
    return torch.where(kind == 2, x * 1e-30, x) * (kind != 1)


def _per_row(*shape: int) -> torch.Tensor:
    return _normal(*shape) * torch.exp2(torch.randint(-12, 12, (1, 2, shape[0], 1)).float())


DISTRIBUTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "normal": _normal,
    "uniform": lambda *shape: torch.rand(1, 2, *shape),
    "large_offset": lambda *shape: _normal(*shape) + 1000,
    "tiny": lambda *shape: _normal(*shape) * 1e-6,
    "tiniest": lambda *shape: _normal(*shape) * 1e-41,
    "large": lambda *shape: _normal(*shape) * 1e5,
    "extremes": _extremes,
    "constant_rows": lambda *shape: _normal(shape[0], 1).expand(1, 2, *shape).contiguous(),
    "per_row": _per_row,
    "zeros": lambda *shape: torch.zeros(1, 2, *shape),
}


def _drawn(make: Callable[..., torch.Tensor]) -> Tensors:
    torch.manual_seed(3)
    return {name: make(size, WIDTH) for name, size in SIZES.items()}


def _ratio(found: torch.Tensor, tensors: Tensors) -> float:
    """The error over PyTorch's own, in norm and at the worst element, as the judge takes it."""
    own = F.scaled_dot_product_attention(*tensors.values())
    truth = F.scaled_dot_product_attention(*(one.double() for one in tensors.values()))
    size = truth.abs() + truth.abs().mean() + 1e-300
    errors = [(one.double() - truth).abs() / size for one in (found, own)]
    assert bool(torch.isfinite(errors[0]).all())
    worst = [max(one.max().item(), EPS) for one in errors]
    norms = [max((one * size).norm().item() / (truth.norm().item() + 1e-300), EPS)
             for one in errors]  # fmt: skip
    return max(worst[0] / worst[1], norms[0] / norms[1])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_error_stays_within_that_of_float32(name: str, call: Call) -> None:
    tensors = _drawn(DISTRIBUTIONS[name])
    found, _ = call.run(tensors)
    assert _ratio(found, tensors) <= BOUND


@pytest.mark.parametrize("name", ["normal", "uniform", "large_offset", "tiny", "zeros"])
def test_nothing_usual_is_in_doubt(name: str, call: Call) -> None:
    assert not call.run(_drawn(DISTRIBUTIONS[name]))[1].any()


@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("what", [float("inf"), float("nan")])
def test_what_is_not_finite_comes_out_as_it_should(where: str, what: float, call: Call) -> None:
    tensors = _drawn(_normal)
    tensors[where][0, 1, 20, 3] = what
    found, doubts = call.run(tensors)
    wanted = F.scaled_dot_product_attention(*(one.double() for one in tensors.values()))
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert doubts.any()
    assert not doubts.all()


def test_products_beyond_float32_are_not_finite(call: Call) -> None:
    tensors = _drawn(_normal)
    tensors["q"][0, 0, 5] *= 1e25
    tensors["k"][0, 0, 7] *= 1e25
    found, _ = call.run(tensors)
    wanted = F.scaled_dot_product_attention(*tensors.values())
    assert bool(found[0, 0, 5].isnan().all()) == bool(wanted[0, 0, 5].isnan().all())
    torch.testing.assert_close(found[0, 1], wanted[0, 1], rtol=1e-4, atol=1e-5)


def test_factors_that_balance_each_other_count(call: Call) -> None:
    """One number of a row is 1e40 times the others, where the other factor is as much smaller."""
    tensors = _drawn(_normal)
    tensors["q"][..., ::2] *= 1e20
    tensors["k"][..., ::2] *= 1e-20
    found, doubts = call.run(tensors)
    assert _ratio(found, tensors) <= BOUND
    assert doubts.all()


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_values_far_smaller_than_others_keep_their_digits(side: str, call: Call) -> None:
    """Rows of them for the first keys, which alone have weights here, or columns."""
    tensors = _drawn(_normal)
    small = tensors["v"][0, 0, :50] if side == "rows" else tensors["v"][0, 0, :, :9]
    small *= 1e-20
    tensors["k"][0, 0, 50:] = 0.0
    tensors["k"][0, 0, :50] = tensors["k"][0, 0, :1]
    tensors["q"][0, 0] = tensors["k"][0, 0, :1] * 100
    found, _ = call.run(tensors)
    wanted = F.scaled_dot_product_attention(*(one.double() for one in tensors.values()))
    columns = slice(0, 9) if side == "columns" else slice(None)
    torch.testing.assert_close(
        found[0, 0, :, columns].double(), wanted[0, 0, :, columns], rtol=1e-4, atol=0.0
    )


@pytest.mark.parametrize("side", ["q", "k"])
def test_scores_far_beyond_two_parts_are_right(side: str, call: Call) -> None:
    """Integers, rows of them up to 1e15 times as large: exact in float32, one key weighs all."""
    tensors = _drawn(lambda *shape: torch.randint(-3, 4, (1, 2, *shape)).float())
    powers = torch.exp2(torch.randint(0, 50, (1, 2, SIZES[side], 1)).float())
    tensors[side] *= powers
    found, doubts = call.run(tensors)
    assert _ratio(found, tensors) <= BOUND
    assert doubts.any()
