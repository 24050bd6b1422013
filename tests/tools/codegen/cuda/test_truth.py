"""Sums of products may be as wrong as float32 makes them, each by its own bound, and no more."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Loop

M, N, K = 40, 48, 517
Arithmetic = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _build(toolbox: SimpleNamespace, depth: int = K, kind: str = "float32") -> Any:
    """tanh(x w + bias) over some of a depth of K: sums that cancel, and slopes of one."""
    b = toolbox.Build({"m": M, "n": N}, {"k": depth})
    factors = (b.load("x", m=K, k=1), b.load("w", k=N, n=1))
    total = b.reduce("sum", b.op("mul", *factors))
    b.store("y", b.op("tanh", b.op("add", total, b.load("bias", n=1))), kind, m=N, n=1)
    return b


def _check(toolbox: SimpleNamespace, arithmetic: Arithmetic) -> None:
    """What arithmetic makes of the loop, against the loop's truth."""
    build = _build(toolbox)
    loop: Loop = build.loop("p")
    for seed in range(5):
        buffers = build.buffers(seed)
        x, w = buffers["x"].reshape(M, K), buffers["w"].reshape(K, N)
        y = torch.tanh(arithmetic(x, w) + buffers["bias"]).float()
        toolbox.check({"y": y.reshape(-1)}, toolbox.truth(loop, buffers), loop)


def _one_after_the_other(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(M, N)
    for at in range(K):
        total = total + x[:, at : at + 1] * w[at : at + 1]
    return total


def test_float32_is_right_in_any_order(toolbox: SimpleNamespace) -> None:
    _check(toolbox, torch.matmul)
    _check(toolbox, _one_after_the_other)
    _check(toolbox, lambda x, w: x.flip(1) @ w.flip(0))


def _parts(x: torch.Tensor, count: int) -> torch.Tensor:
    """A factor as so many bfloat16 parts."""
    found = torch.zeros_like(x)
    for _ in range(count):
        found = found + (x - found).bfloat16().float()
    return found


def _one_wrong(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One summand of one result is missing: one of the smallest tenth."""
    total, terms = x.double() @ w.double(), x[7] * w[:, 5]
    total[7, 5] -= terms[terms.abs().argsort()[K // 10]]
    return total


WRONG: dict[str, Arithmetic] = {
    "half": lambda x, w: x.half().double() @ w.half().double(),
    "two parts": lambda x, w: _parts(x, 2).double() @ _parts(w, 2).double(),
    "no low part": lambda x, w: x.double() @ w.half().double(),
    "one missing": _one_wrong,
    "no number": lambda x, w: (x @ w).index_fill(0, torch.tensor(3), float("nan")),
}


@pytest.mark.parametrize("name", WRONG)
def test_less_than_float32_is_wrong(toolbox: SimpleNamespace, name: str) -> None:
    with pytest.raises(AssertionError, match="further off"):
        _check(toolbox, WRONG[name])


def test_a_bound_knows_its_own_sum(toolbox: SimpleNamespace) -> None:
    """Results of small factors must be as right as those of large ones are."""
    build = _build(toolbox)
    build.fills["x"] = lambda x: x.reshape(M, K)[::2].mul_(1e-3)
    slack = toolbox.truth(build.loop("p"), build.buffers()).slack["y"].reshape(M, N)
    assert slack[::2].amax() < 1e-2 * slack[1::2].amax()
    build = _build(toolbox, kind="bfloat16")
    assert toolbox.truth(build.loop("p"), build.buffers()).slack["y"].amax() < 2e-4


def test_only_products_have_one(toolbox: SimpleNamespace) -> None:
    b = toolbox.Build({"n": 8}, {"c": 64})
    b.store("y", b.reduce("sum", b.load("x", n=64, c=1)), n=1)
    assert toolbox.truth(b.loop("rows"), b.buffers()).slack == {}


@pytest.mark.parametrize(
    "strategy", ["simt_tiles", pytest.param("split_mma", marks=pytest.mark.exhaustive)]
)
def test_a_kernel_that_forgets_a_summand_is_found(
    strategy: str, toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    """The same kernels, made for the whole depth and for one summand less."""
    builds = {"whole": _build(toolbox), "short": _build(toolbox, K - 1)}
    variants = toolbox.make_variants(builds, small_device, settings=1, names=(strategy,))
    toolbox.compile_emulated(variants)
    assert len(variants) == 2
    for variant in variants:
        label, full = variant.label.split("-")[0], _build(toolbox)
        # A short one is handed all of the factors, and does not read the last of each row.
        variant.build = full
        got, _ = variant.run()
        wanted = toolbox.truth(full.loop("p"), full.buffers())
        if label == "whole":
            toolbox.check(got, wanted, variant.loop)
            continue
        with pytest.raises(AssertionError, match="further off"):
            toolbox.check(got, wanted, variant.loop)
