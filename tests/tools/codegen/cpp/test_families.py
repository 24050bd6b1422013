"""The usual families, under every strategy and several settings, against float64."""

from typing import Any

import pytest
import torch

SHAPES = [(1, 1), (7, 33), (3, 4100), (40, 9)]


def softmax(build: Any, rows: int, columns: int, across: bool) -> Any:
    b = build({"r": rows}, {"c": columns})
    steps = {"r": 1, "c": rows} if across else {"r": columns, "c": 1}
    x = b.load("x", **steps)
    e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
    b.store("y", b.op("div", e, b.reduce("sum", e)), **steps)
    return b.loop("softmax")


def online_softmax(build: Any, rows: int, columns: int, across: bool) -> Any:
    b = build({"r": rows}, {"c": columns})
    steps = {"r": 1, "c": rows} if across else {"r": columns, "c": 1}
    x = b.load("x", **steps)
    m = b.reduce("softmax", x)
    b.store("y", b.op("div", b.op("exp", b.op("sub", x, m)), f"{m}_sum"), **steps)
    return b.loop("online_softmax")


def layer_norm_gelu(build: Any, rows: int, columns: int, across: bool) -> Any:
    b = build({"r": rows}, {"c": columns})
    steps = {"r": 1, "c": rows} if across else {"r": columns, "c": 1}
    x = b.op("add", b.load("x", **steps), b.load("r", **steps))
    mean = b.reduce("moments", x)
    variance = b.op("mul", f"{mean}_m2", b.const(1.0 / columns))
    scale = b.op("rsqrt", b.op("add", variance, b.const(1e-5)))
    n = b.op("mul", b.op("sub", x, mean), scale)
    n = b.op("add", b.op("mul", n, b.load("w", c=1)), b.load("b", c=1))
    half = b.op("mul", n, b.const(0.5))
    erf = b.op("erf", b.op("mul", n, b.const(0.7071067811865476)))
    b.store("y", b.op("mul", half, b.op("add", erf, b.const(1.0))), **steps)
    return b.loop("layer_norm_gelu")


@pytest.mark.exhaustive
@pytest.mark.parametrize("across", [False, True])
def test_softmax_in_every_way(build: Any, case: Any, everything: Any, check: Any, across: bool):
    cases = []
    for rows, columns in SHAPES:
        x = torch.randn(rows, columns) * 3
        for family in (softmax, online_softmax):
            loop = family(build, rows, columns, across)
            cases.append(case(loop, {"x": x}, y=(rows * columns, torch.float32)))
    check(everything(cases))


@pytest.mark.parametrize("across", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_layer_norm_in_every_way(build: Any, case: Any, everything: Any, check: Any, across: bool):
    cases = []
    for rows, columns in SHAPES:
        data = {
            "x": torch.randn(rows, columns),
            "r": torch.randn(rows, columns) + 3,
            "w": torch.randn(columns),
            "b": torch.randn(columns),
        }
        loop = layer_norm_gelu(build, rows, columns, across)
        cases.append(case(loop, data, y=(rows * columns, torch.float32)))
    check(everything(cases), 1e-5)
