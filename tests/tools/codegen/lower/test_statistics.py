"""Norms behind products, whose statistics the products take, against PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.tools.codegen.ir import Loop, Program
from kernelwright.tools.codegen.ir.contraction import contraction_of
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.codegen.lower.statistics import with_statistics

Interpret = Callable[..., tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]]


def _convolved(
    recorder: Any, channels: int = 6, *, turned: bool = False, half: bool = False
) -> str:
    """Two images of that many channels, 9 x 12 or (of blocks of 2 x 2, cut) 17 x 23."""
    shapes = ((2, 4, 9, 12), (4, channels, 3, 3) if turned else (channels, 4, 3, 3))
    data = [torch.randn(shape).to(torch.float16 if half else torch.float32) for shape in shapes]
    steps = [2, 2] if turned else [1, 1]
    named = [recorder.input(one) for one in data]
    numbers = (steps, [1, 1], [1, 1], turned, [0, 0], 1)
    return str(recorder.call("convolution.default", *named, None, *numbers))


def _plain(recorder: Any, *outputs: str) -> Program:
    return lower(recorder.graph(*outputs), lowering=Lowering(products=True, convolutions=True))


def _program(recorder: Any, interpret: Interpret, *outputs: str, off: float = 1e-4) -> Program:
    """With statistics, and right."""
    found = with_statistics(_plain(recorder, *outputs), lambda loop: True)
    assert found is not None
    results, _ = interpret(found, list(recorder.inputs.values()), {})
    for mine, name in zip(results, outputs, strict=True):
        torch.testing.assert_close(mine, recorder.values[name], rtol=off, atol=off)
    return found


def _taken(loop: Loop) -> list[str]:
    return [str(stmt.reduce) for stmt in loop.body if stmt.op == "statistic"]


def test_a_norm_reads_what_was_made_once(recorder: Callable[[], Any], interpret: Interpret) -> None:
    made = recorder()
    x = made.call("tanh.default", _convolved(made))
    mean = made.call("mean.dim", x, [2, 3], True)
    out = made.call("sub.Tensor", x, mean)
    program = _program(made, interpret, out)
    product, rest = program.loops
    assert _taken(product) == ["sum"]
    assert not rest.inner
    found = contraction_of(product)
    assert found is not None
    assert found.statistics is not None
    assert len(found.stores) == 1


def test_what_follows_of_a_row_is_computed_once(
    recorder: Callable[[], Any], interpret: Interpret
) -> None:
    made = recorder()
    x = _convolved(made)
    square = made.call("mean.dim", made.call("mul.Tensor", x, x), [0, 2, 3], True)
    out = made.call("mul.Tensor", x, made.call("rsqrt.default", square))
    product, rest = _program(made, interpret, out).loops
    assert _taken(product) == ["sum"]
    assert any(stmt.op == "rsqrt" for stmt in product.body)
    assert not any(stmt.op == "rsqrt" for stmt in rest.body)


def test_what_a_crop_leaves_out_is_not_counted(
    recorder: Callable[[], Any], interpret: Interpret
) -> None:
    made = recorder()
    x = _convolved(made, turned=True)
    out = made.call("div.Tensor", x, made.call("amax.default", x, [2, 3], True))
    product, _ = _program(made, interpret, out).loops
    (taken,) = (stmt for stmt in product.body if stmt.op == "statistic")
    assert len(taken.args) == 2


def test_statistics_are_of_what_memory_holds(
    recorder: Callable[[], Any], interpret: Interpret
) -> None:
    made = recorder()
    x = _convolved(made, half=True)
    out = made.call("sub.Tensor", x, made.call("mean.dim", x, [2, 3], True))
    product, _ = _program(made, interpret, out, off=1e-2).loops
    assert any(stmt.op == "to_float16" for stmt in product.body)


def test_rows_of_a_linear_layer(recorder: Callable[[], Any], interpret: Interpret) -> None:
    made = recorder()
    named = [made.input(torch.randn(shape)) for shape in ((20, 8), (8, 12))]
    x = made.call("mm.default", *named)
    out = made.call("sub.Tensor", x, made.call("mean.dim", x, [1], True))
    product, rest = _program(made, interpret, out).loops
    assert _taken(product) == ["sum"]
    assert not rest.inner


def test_what_waits_for_a_statistic_stays_behind(
    recorder: Callable[[], Any], interpret: Interpret
) -> None:
    """Of a softmax the maximum is taken; the sum needs it."""
    made = recorder()
    named = [made.input(torch.randn(shape)) for shape in ((20, 8), (8, 12))]
    out = made.call("_softmax.default", made.call("mm.default", *named), 1, False)
    product, rest = _program(made, interpret, out).loops
    assert _taken(product) == ["max"]
    assert [str(stmt.reduce) for stmt in rest.body if stmt.op == "reduce"] == ["sum"]


@pytest.mark.parametrize("takes", [True, False])
def test_none_are_taken_where_no_kernel_does(recorder: Callable[[], Any], takes: bool) -> None:
    made = recorder()
    x = _convolved(made)
    if takes:  # and none where nothing is reduced
        out = made.call("tanh.default", x)
    else:
        out = made.call("sub.Tensor", x, made.call("mean.dim", x, [2, 3], True))
    assert with_statistics(_plain(made, out), lambda loop: takes) is None


_CHAIN = ("tanh.default", "relu.default", "sigmoid.default", "neg.default", "abs.default")
_DIMS = ([2, 3], [0, 2, 3], [1, 2, 3], [0, 1, 2, 3], [1], [3], [0, 2])


@pytest.mark.parametrize("seed", range(16))
def test_random_chains_of_products_reductions_and_what_reads_both(
    recorder: Callable[[], Any], interpret: Interpret, seed: int
) -> None:
    """Whatever is taken, the module is the same; most reductions are."""
    drawn, made = random.Random(seed), recorder()
    torch.manual_seed(seed)
    x = _convolved(made, drawn.choice([2, 5, 6]), turned=drawn.random() < 0.5)
    for _ in range(drawn.randrange(3)):
        x = made.call(drawn.choice(_CHAIN), x)
    dims, inside = drawn.choice(_DIMS), x
    if drawn.random() < 0.4:
        inside = made.call("mul.Tensor", x, x)
    kind = drawn.choice(["mean.dim", "sum.dim_IntList", "amax.default", "amin.default"])
    row = made.call(kind, inside, dims, True)
    if drawn.random() < 0.5:
        row = made.call("sigmoid.default", row)
    out = made.call(drawn.choice(["sub.Tensor", "mul.Tensor"]), x, row)
    wanted = (out, row) if drawn.random() < 0.3 else (out,)
    program = with_statistics(_plain(made, *wanted), lambda loop: True)
    if program is None:
        return
    results, _ = interpret(program, list(made.inputs.values()), {})
    for mine, name in zip(results, wanted, strict=True):
        torch.testing.assert_close(mine, made.values[name], rtol=1e-4, atol=1e-4)
