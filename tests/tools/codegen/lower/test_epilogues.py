"""What follows convolutions, taken into their loops, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.tools.codegen.ir import Program
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.codegen.lower.epilogues import with_epilogues

Interpret = Callable[..., tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]]


def _convolved(recorder: Any, x: torch.Tensor, weight: torch.Tensor, *numbers: object) -> str:
    named = [recorder.input(one) for one in (x, weight)]
    return str(recorder.call("convolution.default", *named, None, *numbers))


def _turned(recorder: Any) -> str:
    """17 x 23 outputs of two images, of blocks of 2 x 2."""
    x, weight = torch.randn(2, 6, 9, 12), torch.randn(6, 5, 3, 3)
    return _convolved(recorder, x, weight, [2, 2], [1, 1], [1, 1], True, [0, 0], 1)


def _program(recorder: Any, interpret: Interpret, *outputs: str, folds: bool = False) -> Program:
    """Lowered, and right."""
    program = lower(
        recorder.graph(*outputs), lowering=Lowering(products=True, convolutions=True, folds=folds)
    )
    found = with_epilogues(program, lambda loop: True, folds=folds)
    results, _ = interpret(found, list(recorder.inputs.values()), {})
    for mine, name in zip(results, outputs, strict=True):
        torch.testing.assert_close(mine, recorder.values[name], rtol=1e-4, atol=1e-4)
    return found


def test_a_crop_and_what_follows_it_are_stores_on_a_condition(
    recorder: Callable[[], Any], interpret: Interpret
) -> None:
    made = recorder()
    out = made.call("tanh.default", _turned(made))
    out = made.call("mul.Tensor", out, made.input(torch.randn(5, 1, 23)))
    program = _program(made, interpret, out)
    (loop,) = program.loops
    assert loop.stores[0].when
    assert [one.name for one in program.buffers if one.role == "temporary"] == []


def test_what_has_two_readers_stays(recorder: Callable[[], Any], interpret: Interpret) -> None:
    made = recorder()
    whole = _turned(made)
    mean = made.call("mean.dim", whole, [2, 3], True)
    program = _program(made, interpret, made.call("sub.Tensor", whole, mean), folds=True)
    assert not any(store.when for loop in program.loops for store in loop.stores)


@pytest.mark.parametrize("folds", [False, True])
def test_reductions_over_channels_become_folds(
    recorder: Callable[[], Any], interpret: Interpret, folds: bool
) -> None:
    made = recorder()
    out = made.call("amin.default", _turned(made), [1], True)
    program = _program(made, interpret, made.call("tanh.default", out), folds=folds)
    assert len(program.loops) == (1 if folds else 2)
    kinds = [stmt.reduce for loop in program.loops for stmt in loop.body if stmt.op == "fold"]
    assert len(kinds) == int(folds)


def test_a_softmax_over_channels_is_two_folds(
    recorder: Callable[[], Any], interpret: Interpret
) -> None:
    made = recorder()
    x, weight = torch.randn(2, 6, 9, 12), torch.randn(8, 6, 3, 3)
    out = _convolved(made, x, weight, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    program = _program(made, interpret, made.call("_softmax.default", out, 1, False), folds=True)
    (loop,) = program.loops
    assert [s.reduce for s in loop.body if s.op == "fold"] == ["max", "sum"]


WINDOWS = {
    "plain": (torch.randn(2, 6, 11, 15), torch.randn(5, 6, 3, 2), [1, 1], [1, 0], False),
    "channels": (torch.randn(2, 20, 12, 14), torch.randn(5, 20, 3, 3), [1, 1], [0, 0], False),
    "strided": (torch.randn(2, 20, 12, 17), torch.randn(5, 20, 3, 3), [2, 1], [1, 0], False),
    "turned": (torch.randn(2, 6, 9, 12), torch.randn(6, 5, 3, 4), [1, 1], [1, 1], True),
    "turned by steps": (torch.randn(2, 6, 9, 12), torch.randn(6, 5, 3, 3), [2, 2], [1, 1], True),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_behind_a_convolution_become_folds_over_blocks(
    recorder: Callable[[], Any], interpret: Interpret, name: str
) -> None:
    x, weight, steps, low, turned = WINDOWS[name]
    made = recorder()
    out = _convolved(made, x, weight, steps, low, [1, 1], turned, [0, 0], 1)
    out = made.call("sigmoid.default", made.call("mul.Tensor", out, made.call("tanh.default", out)))
    out = made.call("avg_pool2d.default", out, [2, 2])
    program = _program(made, interpret, made.call("exp.default", out), folds=True)
    (loop,) = program.loops
    assert [one.reduce for one in loop.body if one.op == "fold"] == ["sum"]
