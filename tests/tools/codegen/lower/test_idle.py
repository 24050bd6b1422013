"""Operators that change nothing vanish, bit for bit: infinities and NaN included."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

Check = Callable[..., Any]
X = torch.tensor([[0.5, -2.0, 3.0, -0.0], [float("inf"), float("-inf"), float("nan"), 1e30]])

IDLE = {
    "relu of relu": (lambda x: x.relu().relu(), ["relu"]),
    "relu of a sigmoid": (lambda x: x.sigmoid().relu(), ["sigmoid"]),
    "abs of a square": (lambda x: x.square().abs(), ["square"]),
    "hard tanh of tanh": (lambda x: F.hardtanh(x.tanh()), ["tanh"]),
    "a wider clamp": (lambda x: x.clamp(0, 1).clamp(-2, 3), ["maximum", "minimum"]),
    "the larger of one": (lambda x: torch.maximum(x, x), []),
    "logsumexp of one": (lambda x: x.unsqueeze(1).logsumexp(1), []),
    "twice": (lambda x: x.unsqueeze(1).logsumexp(1, True).logsumexp(1), []),
}
AT_WORK = {
    "a clamp that reaches in": (
        lambda x: x.tanh().clamp(-0.5, 0.5),
        ["tanh", "maximum", "minimum"],
    ),
    "relu of a tanh": (lambda x: x.tanh().relu(), ["tanh", "relu"]),
    "the other bound": (lambda x: x.sigmoid().clamp(min=0.5), ["sigmoid", "maximum"]),
}


@pytest.mark.parametrize("name", [*IDLE, *AT_WORK])
def test_only_operators_that_work_are_left(name: str, check: Check) -> None:
    function, left = {**IDLE, **AT_WORK}[name]
    checked = check(function, X)
    if checked.program.loops:
        (loop,) = checked.program.loops
        words = [stmt.op for stmt in loop.body if stmt.op not in ("load", "const")]
        assert words == left
    else:
        assert left == []
