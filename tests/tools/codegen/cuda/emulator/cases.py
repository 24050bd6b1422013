"""The loops that every strategy is tried on: small, odd-sized, and one of each idea."""

from __future__ import annotations

from typing import Any

import torch

INF = float("inf")


def cases(build: Any) -> dict[str, Any]:
    """Every case by name; `build` is the class that writes loops."""
    made = {name: make(build) for name, make in globals().items() if name.startswith("case_")}
    return {name.removeprefix("case_"): one for name, one in made.items()}


def case_swish(build: Any) -> Any:
    b = build({"n": 35, "c": 101})
    x = b.load("x", n=101, c=1)
    b.store("y", b.op("mul", x, b.op("sigmoid", x)), n=101, c=1)
    return b


def case_bias_gelu_half(build: Any) -> Any:
    b = build({"n": 24, "c": 48})
    x = b.op("add", b.load("x", "float16", n=48, c=1), b.load("bias", "float16", c=1))
    inside = b.op("mul", x, b.const(0.7071067811865476))
    half = b.op("mul", x, b.const(0.5))
    y = b.op("mul", half, b.op("add", b.op("erf", inside), b.const(1.0)))
    b.store("y", y, "float16", n=48, c=1)
    b.store("z", b.op("relu", y), "bfloat16", n=48, c=1)
    return b


def case_channel_scale(build: Any) -> Any:
    b = build({"n": 3, "c": 5, "h": 8, "w": 12})
    x = b.load("x", n=480, c=96, h=12, w=1)
    y = b.op("fma", x, b.load("scale", c=1), b.load("shift", c=1))
    b.store("y", y, n=480, c=96, h=12, w=1)
    return b


def case_transpose(build: Any) -> Any:
    b = build({"n": 20, "c": 36})
    x = b.load("x", offset=4, n=1, c=20)
    b.store("y", b.op("exp", x), n=36, c=1)
    return b


def case_scalar(build: Any) -> Any:
    b = build({})
    b.store("y", b.op("div", b.load("x"), b.const(3.0)))
    return b


def case_gather_mask(build: Any) -> Any:
    b = build({"n": 19, "c": 32})
    token = b.load("token", "int64", n=1)
    b.highs |= {token: 50, "token": 50}
    row = b.load("table", c=1, **{token: 32})
    keep = b.op("le", b.index("c"), b.index("n"), dtype="bool")
    b.store("y", b.op("where", keep, row, b.const(-INF)), n=32, c=1)
    b.store("kept", keep, "bool", n=32, c=1)
    return b


def case_gather_in_padding(build: Any) -> Any:
    """Rows picked by positions that are read only where they lie inside."""
    b = build({"n": 19, "c": 32})
    zero = b.const(0, "int64")
    place = b.op("sub", b.index("n"), b.const(2, "int64"), dtype="int64")
    inside = b.op("ge", place, zero, dtype="bool")
    token = b.load("token", "int64", offset=-2, when=inside, n=1)
    b.highs |= {token: 50, "token": 50}
    row = b.load("table", c=1, **{token: 32})
    b.store("y", b.op("where", inside, row, b.const(0.0)), n=32, c=1)
    return b


def case_integers(build: Any) -> Any:
    b = build({"n": 500})
    x = b.load("x", "int32", n=1)
    minus = b.op("sub", x, b.const(3, "int64"), dtype="int64")
    two = b.const(2, "int64")
    for at, op in enumerate(("floordiv", "truncdiv", "remainder", "fmod", "shift_left", "maximum")):
        b.store(f"y{at}", b.op(op, minus, two, dtype="int64"), "int64", n=1)
    odd = b.op("ne", b.op("bitwise_and", x, b.const(1, "int64"), dtype="int64"),
               b.const(0, "int64"), dtype="bool")  # fmt: skip
    b.store("odd", b.op("logical_xor", odd, b.load("m", "bool", n=1), dtype="bool"), "bool", n=1)
    b.store("f", b.op("sqrt", b.op("cast", x)), n=1)
    return b


def case_flip_double(build: Any) -> Any:
    b = build({"n": 6, "c": 64})
    x = b.load("x", "float64", offset=63, n=64, c=-1)
    b.store("y", b.op("tanh", x, dtype="float64"), "float64", n=64, c=1)
    return b


def case_softmax(build: Any) -> Any:
    b = build({"n": 9}, {"c": 300})
    x = b.load("x", n=300, c=1)
    e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
    b.store("y", b.op("div", e, b.reduce("sum", e)), n=300, c=1)
    return b


def case_softmax_online(build: Any) -> Any:
    b = build({"n": 7}, {"c": 20480})
    x = b.load("x", n=20480, c=1)
    top = b.reduce("softmax", x)
    e = b.op("exp", b.op("sub", x, top))
    b.store("y", b.op("div", e, f"{top}_sum"), n=20480, c=1)

    def extremes(tensor: torch.Tensor) -> None:
        rows = tensor.view(7, 20480)
        rows[1] = -INF
        rows[2, 7] = float("nan")
        rows[3, ::2] = -INF
        rows[4] *= 50

    b.fills["x"] = extremes
    return b


def case_weighted_long(build: Any) -> Any:
    b = build({"n": 3}, {"c": 40004})
    x = b.load("x", n=40004, c=1)
    mean = b.op("div", b.reduce("sum", x), b.const(40004.0))
    b.store("y", b.op("mul", b.op("sub", x, mean), b.load("w", c=1)), n=40004, c=1)
    return b


def case_layer_norm(build: Any) -> Any:
    b = build({"n": 11}, {"c": 9216})
    x = b.load("x", "bfloat16", n=9216, c=1)
    mean = b.reduce("moments", x)
    variance = b.op("div", f"{mean}_m2", b.const(9216.0))
    scale = b.op("rsqrt", b.op("add", variance, b.const(1e-5)))
    y = b.op("mul", b.op("sub", x, mean), scale)
    y = b.op("fma", y, b.load("w", "bfloat16", c=1), b.load("bias", c=1))
    b.store("y", y, "bfloat16", n=9216, c=1)
    return b


def case_rms_residual(build: Any) -> Any:
    b = build({"n": 5}, {"c": 132})
    h = b.op("add", b.load("x", n=132, c=1), b.load("r", n=132, c=1))
    mean = b.op("div", b.reduce("sum", b.op("square", h)), b.const(132.0))
    scale = b.op("rsqrt", b.op("add", mean, b.const(1e-6)))
    b.store("h", h, n=132, c=1)
    b.store("scale", scale, n=1)
    b.store("y", b.op("mul", b.op("mul", h, scale), b.load("w", c=1)), n=132, c=1)
    return b


def case_group_norm(build: Any) -> Any:
    b = build({"n": 2, "g": 3}, {"c": 4, "s": 3600})
    steps = {"n": 43200, "g": 14400, "c": 3600, "s": 1}
    x = b.load("x", **steps)
    mean = b.reduce("moments", x)
    variance = b.op("div", f"{mean}_m2", b.const(14400.0))
    y = b.op("mul", b.op("sub", x, mean), b.op("rsqrt", b.op("add", variance, b.const(1e-5))))
    y = b.op("fma", y, b.load("w", g=4, c=1), b.load("bias", g=4, c=1))
    b.store("y", b.op("mul", y, b.op("sigmoid", y)), **steps)
    b.fills["x"] = lambda tensor: tensor.add_(30.0)
    return b


def case_group_sums_channels_last(build: Any) -> Any:
    b = build({"n": 3, "g": 4}, {"hw": 35, "c": 5})
    x = b.op("add", b.load("x", n=700, hw=20, g=5, c=1), b.load("bias", g=5, c=1))
    b.store("mean", b.op("div", b.reduce("sum", x), b.const(175.0)), n=4, g=1)
    return b


def case_group_norm_turned(build: Any) -> Any:
    """Groups of channels last, normalised with what was reduced before and stored first."""
    b = build({"n": 3, "hw": 35, "g": 4, "c": 5})
    x = b.load("x", n=700, hw=20, g=5, c=1)
    y = b.op("mul", b.op("sub", x, b.load("mean", n=4, g=1)), b.load("scale", g=5, c=1))
    b.store("y", y, n=700, hw=1, g=175, c=35)
    return b


def case_batch_norm(build: Any) -> Any:
    b = build({"c": 3}, {"n": 4, "h": 16, "w": 20})
    steps = {"n": 960, "c": 320, "h": 20, "w": 1}
    x = b.load("x", **steps)
    mean = b.reduce("moments", x)
    variance = b.op("div", f"{mean}_m2", b.const(1280.0))
    y = b.op("mul", b.op("sub", x, mean), b.op("rsqrt", b.op("add", variance, b.const(1e-5))))
    b.store("y", b.op("fma", y, b.load("w", c=1), b.load("bias", c=1)), **steps)
    b.store("mean", mean, c=1)
    b.store("variance", b.op("div", f"{mean}_m2", b.const(1279.0)), c=1)
    return b


def case_sum_all(build: Any) -> Any:
    b = build({}, {"n": 50, "c": 1021})
    b.store("y", b.reduce("sum", b.load("x", n=1021, c=1)))
    return b


def case_huber(build: Any) -> Any:
    b = build({}, {"n": 64, "c": 512})
    gap = b.op("sub", b.load("x", n=512, c=1), b.load("t", n=512, c=1))
    size = b.op("abs", gap)
    near = b.op("lt", size, b.const(1.0), dtype="bool")
    inside = b.op("mul", b.op("square", gap), b.const(0.5))
    loss = b.op("where", near, inside, b.op("sub", size, b.const(0.5)))
    b.store("y", b.op("div", b.reduce("sum", loss), b.const(32768.0)))
    return b


def case_frobenius(build: Any) -> Any:
    b = build({}, {"n": 30, "c": 1000})
    x = b.load("x", "float64", n=1000, c=1)
    total = b.reduce("sum", b.op("square", x, dtype="float64"), "float64")
    norm = b.op("sqrt", total, dtype="float64")
    b.store("y", b.op("div", x, norm, dtype="float64"), "float64", n=1000, c=1)
    b.store("norm", norm, "float64")
    return b


def case_cross_entropy(build: Any) -> Any:
    b = build({"n": 13}, {"c": 77})
    x = b.load("x", n=77, c=1)
    top = b.reduce("softmax", x)
    target = b.load("t", "int64", n=1)
    b.highs |= {target: 77, "t": 77}
    chosen = b.load("x", n=77, **{target: 1})
    total = b.op("add", top, b.op("log", f"{top}_sum"))
    b.store("y", b.op("sub", total, chosen), n=1)
    return b


def case_extremes(build: Any) -> Any:
    b = build({"n": 10}, {"c": 60, "d": 3})
    x = b.load("x", n=180, c=3, d=1)
    b.store("top", b.reduce("max", x), n=1)
    b.store("low", b.reduce("min", x), n=1)
    b.store("at", b.reduce("argmax", x, "int64"), "int64", n=1)
    b.store("under", b.reduce("argmin", x, "int64"), "int64", n=1)
    large = b.op("gt", x, b.const(2.5), dtype="bool")
    b.store("any", b.reduce("any", large, "bool"), "bool", n=1)
    b.store("all", b.reduce("all", b.op("logical_not", large, dtype="bool"), "bool"), "bool", n=1)
    b.store("count", b.reduce("sum", b.op("cast", large, dtype="int64"), "int64"), "int64", n=1)

    def ties(tensor: torch.Tensor) -> None:
        rows = tensor.view(10, 180)
        rows[1, 50::7] = 9.0
        rows[1, 3::11] = -9.0
        rows[2, 100] = float("nan")
        rows[3] = 1.0
        rows[4] = -INF

    b.fills["x"] = ties
    return b


def case_argmax_strided(build: Any) -> Any:
    # The walked axes are stored in the other order than they are counted.
    b = build({"n": 4}, {"c": 6, "d": 40})
    x = b.load("x", n=240, c=1, d=6)
    b.store("at", b.reduce("argmax", x, "int64"), "int64", n=1)
    b.fills["x"] = lambda tensor: tensor.round_()
    return b


def case_row_broadcast(build: Any) -> Any:
    b = build({"n": 6}, {"c": 40})
    total = b.reduce("sum", b.load("x", n=40, c=1))
    b.store("y", total, n=40, c=1)
    b.store("same", b.load("r", n=1), n=1)
    return b


def case_product_rows(build: Any) -> Any:
    b = build({"n": 200}, {"c": 5})
    x = b.load("x", n=5, c=1)
    b.store("y", b.reduce("prod", x), n=1)
    return b


def case_sum_columns(build: Any) -> Any:
    b = build({"n": 3, "c": 72}, {"r": 90})
    x = b.load("x", "float16", n=6480, r=72, c=1)
    b.store("y", b.op("div", b.reduce("sum", x), b.const(90.0)), "float16", n=72, c=1)
    return b


def case_argmin_columns(build: Any) -> Any:
    b = build({"n": 2, "c": 33}, {"r": 100})
    x = b.load("x", n=3300, r=33, c=1)
    b.store("at", b.reduce("argmin", x, "int64"), "int64", n=33, c=1)
    b.store("low", b.reduce("min", x), n=33, c=1)
    b.fills["x"] = lambda tensor: tensor.round_()
    return b


def case_softmax_columns(build: Any) -> Any:
    b = build({"n": 2, "s": 40}, {"c": 24})
    x = b.load("x", n=960, c=40, s=1)
    e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
    b.store("y", b.op("div", e, b.reduce("sum", e)), n=960, c=40, s=1)
    return b


def case_batch_norm_columns(build: Any) -> Any:
    b = build({"c": 20}, {"n": 700})
    x = b.load("x", n=20, c=1)
    mean = b.reduce("moments", x)
    variance = b.op("div", f"{mean}_m2", b.const(700.0))
    scale = b.op("mul", b.op("rsqrt", b.op("add", variance, b.const(1e-5))), b.load("w", c=1))
    y = b.op("mul", b.op("sub", x, mean), scale)
    b.store("y", b.op("maximum", y, b.const(0.0)), n=20, c=1)
    b.store("mean", mean, c=1)
    return b


def case_cumsum(build: Any) -> Any:
    b = build({"n": 5}, {"c": 9001})
    b.store("y", b.scan("sum", b.load("x", n=9001, c=1)), n=9001, c=1)
    return b


def case_cumsum_masked_reverse(build: Any) -> Any:
    b = build({"n": 6}, {"c": 1024})
    x = b.load("x", offset=1023, n=1024, c=-1)
    kept = b.op("where", b.load("m", "bool", offset=1023, n=1024, c=-1), x, b.const(0.0))
    total = b.op("mul", b.scan("sum", kept), b.const(0.5))
    b.store("y", b.op("add", total, x), offset=1023, n=1024, c=-1)
    return b


def case_cumprod_beyond_single(build: Any) -> Any:
    b = build({"n": 5}, {"c": 300})
    b.store("y", b.scan("prod", b.load("x", n=300, c=1)), n=300, c=1)

    def rows_whose_parts_overflow(tensor: torch.Tensor) -> None:
        rows = tensor.view(5, 300).fill_(1.0)
        rows[:, 40:46], rows[:, 46:52] = 1e20, 1e-20  # 1e120 by themselves
        rows[0, 3] = 0.0
        rows[1, 2:6] = 1e-30  # 0 in single precision, 1e0 in order with what follows
        rows[2, 2:4], rows[2, 40:52] = 1e-15, 3.0
        rows[3, 40:52] = 0.5
        rows[4, 40:52] = -1.0

    b.fills["x"] = rows_whose_parts_overflow
    return b


def case_cumprod_short(build: Any) -> Any:
    b = build({"n": 50}, {"c": 24})
    x = b.load("x", "bfloat16", n=24, c=1)
    b.store("y", b.scan("prod", x), n=24, c=1)
    b.store("top", b.scan("max", x), "bfloat16", n=24, c=1)
    return b


def case_cumsum_columns(build: Any) -> Any:
    b = build({"n": 3, "c": 44}, {"r": 130})
    x = b.load("x", "int32", n=5720, r=44, c=1)
    b.store("y", b.scan("sum", x, "int64"), "int64", n=5720, r=44, c=1)
    return b


def case_scan_behind_a_constant(build: Any) -> Any:
    """What is scanned begins at element 3 of an aligned row; its own rows are of odd length."""
    b = build({"n": 5}, {"c": 260})
    inside = b.op("ge", b.index("c"), b.const(3, "int64"), dtype="bool")
    x = b.op("where", inside, b.load("x", offset=-3, when=inside, n=257, c=1), b.const(0.0))
    b.store("y", b.scan("sum", x), n=260, c=1)
    return b


def case_short_rows_across_two(build: Any) -> Any:
    """Rows of three that lie across two others, written into two parts of one tensor."""
    b = build({"n": 40, "w": 2}, {"c": 3})
    total = b.reduce("sum", b.load("x", n=6, c=2, w=1))
    b.store("y", total, n=2, w=1)
    b.store("y", total, offset=80, n=2, w=1)
    return b


def case_scan_and_reduce(build: Any) -> Any:
    b = build({"n": 70}, {"c": 36})
    x = b.load("x", n=36, c=1)
    share = b.op("div", b.scan("sum", b.op("abs", x)), b.reduce("sum", b.op("abs", x)))
    b.store("y", b.scan("max", b.op("sub", share, b.scan("min", x))), n=36, c=1)
    b.store("top", b.reduce("max", share), n=1)
    return b


def case_window_of_rows(build: Any) -> Any:
    """Overlapping reads of one buffer, two elements apart, as a pool of stride 2 makes them."""
    b = build({"n": 6, "w": 70})
    total = ""
    for row in (0, 1):
        for k in (0, 1, 2):
            x = b.load("x", offset=141 * row + k, n=282, w=2)
            total = b.op("maximum", total, x) if total else x
    b.store("y", b.op("tanh", total), n=70, w=1)
    return b


def case_window_on_condition(build: Any) -> Any:
    """The same, each read made only where it lies inside; no buffer reaches beyond the row."""
    b = build({"c": 5, "w": 64})
    total = b.load("bias", c=1)
    zero, end = b.const(0, "int64"), b.const(64, "int64")
    for k in (-1, 0, 1):
        place = b.op("add", b.index("w"), b.const(k, "int64"), dtype="int64")
        low, high = b.op("ge", place, zero, dtype="bool"), b.op("lt", place, end, dtype="bool")
        inside = b.op("logical_and", low, high, dtype="bool")
        x = b.load("x", offset=k, when=inside, c=64, w=1)
        total = b.op("fma", x, b.load("w", offset=k + 1, c=3), total)
    b.store("y", total, c=64, w=1)
    return b


def case_window_in_padding(build: Any) -> Any:
    """A window whose ends are clamped into range and chosen by a `where`; a weight a channel."""
    b = build({"c": 5, "w": 67})
    total = b.load("bias", c=1)
    for k in (-1, 0, 1):
        place = b.op("add", b.index("w"), b.const(k, "int64"), dtype="int64")
        low = b.op("maximum", place, b.const(0, "int64"), dtype="int64")
        at = b.op("minimum", low, b.const(66, "int64"), dtype="int64")
        b.highs[at] = 67
        inside = b.op("eq", at, place, dtype="bool")
        x = b.op("where", inside, b.load("x", c=67, **{at: 1}), b.const(0.0))
        total = b.op("fma", x, b.load("w", offset=k + 1, c=3), total)
    b.store("y", total, c=67, w=1)
    return b
