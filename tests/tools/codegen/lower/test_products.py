"""What stands before and after a product of matrices: what it takes in, and what it stores."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.tools.codegen.ir import Loop
from kernelwright.tools.codegen.ir.contraction import Contraction, contraction_of
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import DType, Task, TracePolicy

Check = Callable[..., Any]
r = torch.randn


def layer(*after: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 24), *after)


class Residual(nn.Module):
    """Scaled, added to itself, bounded: everything but the sum is done before it is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.shift = nn.Linear(12, 12), nn.Parameter(r(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (self.layer(x) - self.shift) * 0.5
        return F.hardtanh(y + y * torch.sigmoid(y), -1, 1) + x


# One loop, the product itself.
ALONE: dict[str, tuple[Any, ...]] = {
    "a residual": (Residual(), r(8, 12)),
    "activations twice": (layer(nn.Mish(), nn.Mish(), nn.Hardtanh()), r(8, 12)),
    "dropout that drops nothing": (layer(nn.Dropout(0.5), nn.ReLU()).eval(), r(8, 12)),
    "rows of three dimensions": (layer(nn.SiLU()), r(2, 4, 12)),
    "a tensor of four dimensions": (
        lambda x, y: torch.tanh(torch.einsum("bijl,lk->bijk", x, y)), r(2, 3, 4, 6), r(6, 5)),
    "heads between rows and columns": (
        lambda x, y: torch.einsum("bqhd,bkhd->bhqk", x, y) / 3, r(2, 5, 3, 6), r(2, 7, 3, 6)),
    "a batch that is broadcast": (
        lambda x, y: torch.relu(x @ y), r(4, 1, 6, 7), r(1, 3, 7, 5)),
    "a batch on the right alone": (lambda x, y: x @ y + 1, r(6, 7), r(3, 7, 5)),
    "both factors turned": (
        lambda x, y: torch.exp(x.transpose(1, 2) @ y.transpose(1, 2)), r(3, 6, 5), r(3, 7, 6)),
    "turned once it is stored": (lambda x, y: torch.relu(x @ y).T + 1, r(6, 7), r(7, 5)),
    "scales and a bias": (
        lambda z, x, y: torch.addmm(z, x, y, beta=0.5, alpha=3.0), r(5), r(4, 6), r(6, 5)),
    "a bias that is multiplied by zero": (
        lambda z, x, y: torch.addmm(z, x, y, beta=0, alpha=3.0),
        torch.full((5,), float("nan")), r(4, 6), r(6, 5)),
    "scales and a bias of a batch": (
        lambda z, x, y: torch.relu(torch.baddbmm(z, x, y, beta=0.5, alpha=3.0)),
        r(3, 1, 5), r(3, 4, 6), r(3, 6, 5)),
    "a batch that is added up": (
        lambda z, x, y: torch.addbmm(z, x, y, beta=0.5, alpha=3.0) * 2,
        r(4, 5), r(3, 4, 6), r(3, 6, 5)),
    "a batch that is added up, turned": (
        lambda z, x, y: torch.addbmm(z, x.permute(2, 1, 0), y.transpose(1, 2)),
        r(5), r(6, 4, 3), r(3, 5, 6)),
    "triangles": (
        lambda x, y: torch.tril(torch.triu(x) @ torch.tril(y, 1), -1), r(7, 7), r(7, 7)),
    "what is masked before": (
        lambda x, m, y: x.masked_fill(m, 0.0) @ y, r(6, 7), r(6, 7) > 0, r(7, 5)),
    "a table's rows": (lambda t, at, y: F.embedding(at, t) @ y,
                       r(9, 6), torch.tensor([[1, 8, 3, 0], [2, 2, 5, 7]]), r(6, 5)),
    "numbers that were integers": (
        lambda x, y: x.float() @ y, torch.arange(42).reshape(6, 7), r(7, 5)),
    "two dimensions of depth": (
        lambda x, y: torch.tensordot(x, y, dims=([1, 2], [0, 1])), r(5, 3, 4), r(3, 4, 6)),
    "itself": (lambda x: torch.relu(x.T @ x), r(6, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_a_product_takes_in_what_is_pointwise(name: str, check: Check) -> None:
    module, *inputs = ALONE[name]
    checked = check(module, *inputs, products=True)
    assert checked.families == ["product"]
    assert checked.library == []


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(12, 24), nn.Linear(12, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.value(x) * torch.sigmoid(self.gate(x))


class LeastOfGroups(nn.Module):
    """Groups, then the least of all of them, then a column added to every row's number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(64, 512), nn.GroupNorm(64, 512)
        self.shift = nn.Parameter(r(512, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x)).amin(1) + self.shift


# Loops of their own, in order.
TAILS: dict[str, tuple[Any, ...]] = {
    "group norm": (
        layer(nn.GroupNorm(3, 24), nn.Hardtanh()), ["product", "normalisation"], r(8, 12)),
    "batch norm with its own statistics": (
        layer(nn.BatchNorm1d(24), nn.GELU()),
        ["product", "pointwise", "normalisation"], r(8, 12)),
    "instance norm": (
        lambda x, y, z: F.instance_norm((x @ y)[None, :, None]).squeeze() * z + z,
        ["product", "normalisation"], r(8, 12), r(12, 24), r(8, 24)),
    "log-sum-exp": (
        lambda x, y: F.mish(torch.logsumexp((x @ y * 2).clamp(-1, 1), 1)),
        ["product", "log-sum-exp"], r(8, 12), r(12, 24)),
    "softmax": (layer(nn.GELU(), nn.Softmax(1)), ["product", "softmax"], r(8, 12)),
    "greatest of neighbours, added up": (
        lambda x, y: F.max_pool1d((x @ y)[:, None], 2).squeeze(1).sum(1) * 0.5,
        ["product", "reduction"], r(8, 12), r(12, 24)),
    "least of groups": (
        LeastOfGroups(), ["product", "reduction", "reduction", "pointwise"], r(512, 64)),
    "cross entropy": (
        lambda x, y: F.cross_entropy(x @ y, torch.tensor([1, 5, 0, 3])),
        ["product", "log-sum-exp", "loss"], r(4, 12), r(12, 24)),
    "softmax before": (
        lambda x, y: torch.softmax(x, 1) @ y + 1, ["softmax", "product"], r(8, 12), r(12, 24)),
    "rows of length one before": (
        lambda x, y: F.normalize(x) @ F.normalize(y).T,
        ["normalisation", "normalisation", "product"], r(8, 12), r(9, 12)),
    "means before": (
        lambda x, y: torch.relu(x.mean(1) @ y), ["reduction", "product"], r(8, 5, 12), r(12, 9)),
    "attention": (
        lambda x, y, z: torch.softmax(x @ y.transpose(1, 2) * 0.3, -1) @ z,
        ["product", "softmax", "product"], r(3, 8, 6), r(3, 9, 6), r(3, 9, 16)),
    "a gate": (Gated(), ["product", "product"], r(8, 12)),
}  # fmt: skip


@pytest.mark.parametrize("name", TAILS)
def test_what_reduces_is_a_loop_of_its_own(name: str, check: Check) -> None:
    module, families, *inputs = TAILS[name]
    checked = check(module, *inputs, products=True)
    assert checked.families == families
    assert checked.library == []


def test_loops_behind_a_product_are_those_behind_a_library_call(check: Check) -> None:
    """That a product is a loop with an inner axis too changes nothing for what reads it."""
    module, x = LeastOfGroups(), r(512, 64)
    called, own = check(module, x), check(module, x, products=True)
    assert own.families == ["product", *called.families]


def _lowered(forward: str, *shapes: tuple[int, ...]) -> tuple[Loop, ...]:
    """The loops of a function of x, w and so on, which need not be computed."""
    inputs = ", ".join(f"torch.randn{shape}" for shape in shapes)
    source = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, {", ".join("xwb"[: len(shapes)])}):
        return {forward}

def get_inputs():
    return [{inputs}]
"""
    task = trace(source, "/tmp/lowered.py", TracePolicy())
    assert isinstance(task, Task), task
    return lower(task.graph, lowering=Lowering(products=True)).loops


def _product(loop: Loop) -> Contraction:
    found = contraction_of(loop)
    assert found is not None
    return found


HALVES = "torch.addmm(b.half(), x.half(), w.half()).float()"


def test_halves_that_are_used_often_are_made_once() -> None:
    size, depth = 4096, 8  # tracing runs it, and the depth is no use of an element
    *before, product = _lowered(HALVES, (size, depth), (depth, size), (size,))
    assert [loop.family for loop in before] == ["copy", "copy"]
    found = _product(product)
    assert found.left.dtype is found.right.dtype is DType.FLOAT16
    # The bias is converted where it is added.
    assert DType.FLOAT32 in {stmt.access.dtype for stmt in found.epilogue if stmt.access}


@pytest.mark.parametrize("rows", [1024, pytest.param(64, marks=pytest.mark.exhaustive)])
def test_halves_that_are_used_less_are_made_on_the_way_in(rows: int) -> None:
    (product,) = _lowered(HALVES, (rows, 8), (8, 4096), (4096,))
    assert _product(product).left.dtype is DType.FLOAT32


def test_halves_made_once_compute_the_same(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def cast(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.relu(x).half() @ w.half()).float()

    # Integers, so that no order of a sum rounds it differently.
    factors = [torch.randint(-4, 5, shape).float() for shape in ((8, 12), (12, 9))]
    assert check(cast, *factors, products=True).families == ["product"]
    monkeypatch.setattr("kernelwright.tools.codegen.lower.fusion.schedule.COPIED_USES", 8)
    families = check(cast, *factors, products=True).families
    assert families == ["pointwise", "copy", "product"]


def _attended(**ways: Any) -> Callable[..., torch.Tensor]:
    return lambda *given: F.scaled_dot_product_attention(*given, **ways)


HEADS = (r(2, 3, 5, 72), r(2, 3, 7, 72), r(2, 3, 7, 64))
ATTENDED: dict[str, tuple[Any, ...]] = {
    "heads": (_attended(), *HEADS),
    "until now, scaled": (_attended(is_causal=True, scale=0.3), *HEADS),
    "a batch that shares keys": (_attended(), r(4, 2, 5, 64), r(1, 2, 7, 64), r(4, 1, 7, 80)),
    "one matrix": (_attended(), r(5, 64), r(7, 64), r(7, 64)),
    "a bias": (lambda q, k, v, m: _attended(attn_mask=m)(q, k, v), *HEADS, r(3, 1, 7)),
    "rows that nothing is left of": (
        lambda q, k, v: _attended(attn_mask=torch.arange(7) < torch.arange(5)[:, None])(q, k, v),
        *HEADS),
    "heads that share keys": (
        lambda q, k, v: _attended(enable_gqa=True, is_causal=True)(q, k, v),
        r(2, 6, 5, 64), r(2, 2, 7, 64), r(2, 2, 7, 72)),
    "one key": (_attended(), r(3, 5, 64), r(3, 1, 64), r(3, 1, 64)),
    "turned": (
        lambda x: F.scaled_dot_product_attention(*x.permute(2, 0, 3, 1, 4).unbind(0)),
        r(2, 6, 3, 2, 64)),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENDED)
def test_attention_is_two_products(name: str, check: Check) -> None:
    module, *inputs = ATTENDED[name]
    checked = check(module, *inputs, products=True)
    assert checked.library == []
    if name != "one key":
        assert checked.families == ["product", "softmax", "product"]


def test_what_the_library_does_otherwise_or_better_stays_with_it(check: Check) -> None:
    narrow = [x[..., :32] for x in HEADS]
    halves = [x.bfloat16() for x in HEADS]
    assert len(check(_attended(), *narrow, products=True).library) == 1
    assert len(check(_attended(), *halves, products=True).library) == 1
    assert len(check(_attended(), *HEADS).library) == 1
