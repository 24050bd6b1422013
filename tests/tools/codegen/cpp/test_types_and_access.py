"""Element types, gathers, indices, flags, positions and scans, under every strategy."""

from typing import Any

import pytest
import torch


@pytest.mark.parametrize("across", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_positions_flags_and_integer_sums(
    build: Any, case: Any, everything: Any, check: Any, across: bool
):
    rows, columns = 19, 37
    steps = {"r": 1, "c": rows} if across else {"r": columns, "c": 1}
    b = build({"r": rows}, {"c": columns})
    x, k = b.load("x", **steps), b.load("k", "int64", **steps)
    positive = b.op("gt", x, b.const(1.5), dtype="bool")
    stored = {
        "y_argmax": b.reduce("argmax", x, "int64"),
        "y_argmin": b.reduce("argmin", x, "int64"),
        "y_any": b.reduce("any", positive, "bool"),
        "y_all": b.reduce("all", b.op("logical_not", positive, dtype="bool"), "bool"),
        "y_sum": b.reduce("sum", k, "int64"),
        "y_count": b.reduce("sum", b.op("cast", positive, dtype="int64"), "int64"),
        "y_max": b.reduce("max", k, "int64"),
    }
    outputs = {}
    for name, value in stored.items():
        dtype = "bool" if name in ("y_any", "y_all") else "int64"
        b.store(name, value, dtype, r=1)
        outputs[name] = (rows, getattr(torch, dtype))
    x = torch.randn(rows, columns).round(decimals=1)  # ties: the first position must win
    x[3, 5] = x[3, 30] = float("nan")
    x[4] = -float("inf")
    if across:
        x = x.t()
    data = {"x": x, "k": torch.randint(-(1 << 40), 1 << 40, (rows, columns))}
    check(everything([case(b.loop("positions"), data, **outputs)]), 0)


def test_gathered_rows_and_indices(build: Any, case: Any, everything: Any, check: Any):
    rows, columns, vocabulary = 23, 40, 11
    b = build({"r": rows}, {"c": columns})
    row = b.load("at", "int64", r=1)
    x = b.load("table", **{row: columns, "c": 1})
    before = b.op("le", b.index("c"), b.index("r"), dtype="bool")
    masked = b.op("where", before, x, b.const(-float("inf")))
    e = b.op("exp", b.op("sub", masked, b.reduce("max", masked)))
    b.store("y", b.op("div", e, b.reduce("sum", e)), r=columns, c=1)
    data = {
        "at": torch.randint(0, vocabulary, (rows,)),
        "table": torch.randn(vocabulary, columns),
    }
    check(everything([case(b.loop("gather"), data, y=(rows * columns, torch.float32))]))


@pytest.mark.parametrize("computed", [False, True])
def test_positions_that_a_walk_gives_are_the_same_for_neighbouring_rows(
    build: Any, case: Any, everything: Any, check: Any, computed: bool
):
    """What is enlarged: which elements of a row are read follows from the walk alone."""
    rows, columns, width = 70, 30, 15
    b = build({"r": rows}, {"c": columns})
    half = b.op("mul", b.op("cast", b.index("c")), b.const(0.5))
    at = b.op("cast", half, dtype="int64") if computed else b.load("at", "int64", c=1)
    e = b.op("exp", b.load("x", **{at: 1, "r": width}))
    b.store("y", b.op("div", e, b.reduce("sum", e)), r=columns, c=1)
    data = {"at": torch.arange(columns) // 2, "x": torch.randn(rows, width)}
    check(everything([case(b.loop("enlarged"), data, y=(rows * columns, torch.float32))]))


@pytest.mark.exhaustive
def test_reads_on_a_condition(build: Any, case: Any, everything: Any, check: Any):
    """Neighbours of every element, and nothing read beyond either end of a row's buffer."""
    rows, columns = 7, 45
    b = build({"r": rows, "c": columns}, {})
    zero, end = b.const(0, "int64"), b.const(columns, "int64")
    total = b.const(0.0)
    for k in (-2, 0, 3):
        place = b.op("add", b.index("c"), b.const(k, "int64"), dtype="int64")
        low, high = b.op("ge", place, zero, dtype="bool"), b.op("lt", place, end, dtype="bool")
        inside = b.op("logical_and", low, high, dtype="bool")
        total = b.op("add", total, b.load("x", offset=k, when=inside, r=columns, c=1))
    b.store("y", total, r=columns, c=1)
    data = {"x": torch.randn(rows, columns)}
    check(everything([case(b.loop("windows"), data, y=(rows * columns, torch.float32))]))


@pytest.mark.exhaustive
def test_a_loss_picks_its_targets(build: Any, case: Any, everything: Any, check: Any):
    rows, columns = 50, 70
    b = build({"r": rows}, {"c": columns})
    x = b.load("x", r=columns, c=1)
    most = b.reduce("max", x)
    total = b.reduce("sum", b.op("exp", b.op("sub", x, most)))
    target = b.load("t", "int64", r=1)
    picked = b.load("x", r=columns, **{target: 1})
    loss = b.op("sub", b.op("add", b.op("log", total), most), picked)
    b.store("y", loss, r=1)
    data = {"x": torch.randn(rows, columns) * 5, "t": torch.randint(0, columns, (rows,))}
    check(everything([case(b.loop("cross_entropy"), data, y=(rows, torch.float32))]))


REST = ("prod", "max", "min")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["sum", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in REST)]
)
def test_scans_in_every_way(build: Any, case: Any, everything: Any, check: Any, kind: str):
    cases = []
    for rows, columns, across in [(3, 5000, False), (9, 77, False), (70, 60, True)]:
        steps = {"r": 1, "c": rows} if across else {"r": columns, "c": 1}
        b = build({"r": rows}, {"c": columns})
        x = b.load("x", **steps)
        b.store("y", b.op("mul", b.scan(kind, x), x), **steps)
        x = torch.randn(rows, columns)
        data = {"x": 1 + x / columns if kind == "prod" else x}
        loop = b.loop(f"scan_{rows}")
        cases.append(case(loop, data, y=(rows * columns, torch.float32)))
    check(everything(cases, settings=1), 3e-6)


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", pytest.param("bfloat16", marks=pytest.mark.exhaustive)]
)
def test_norms_in_every_float_type(build: Any, case: Any, everything: Any, check: Any, dtype: str):
    rows, columns = 12, 100
    b = build({"r": rows}, {"c": columns})
    wide = "float64" if dtype == "float64" else "float32"
    x = b.load("x", dtype, r=columns, c=1)
    mean = b.reduce("moments", x, wide)
    variance = b.op("div", f"{mean}_m2", b.const(float(columns), wide), dtype=wide)
    scale = b.op("rsqrt", b.op("add", variance, b.const(1e-5, wide), dtype=wide), dtype=wide)
    centred = b.op("sub", x, mean, dtype=wide)
    b.store("y", b.op("mul", centred, scale, dtype=wide), dtype, r=columns, c=1)
    torch_dtype = getattr(torch, dtype)
    data = {"x": torch.randn(rows, columns).to(torch_dtype) * 3 + 100}
    made = case(b.loop(f"norm_{dtype}"), data, y=(rows * columns, torch_dtype))
    check(everything([made]), 1e-12 if dtype == "float64" else 3e-6)


@pytest.mark.exhaustive
def test_group_norm_with_weights_by_channel(build: Any, case: Any, everything: Any, check: Any):
    cases = []
    for side in (3, 50):
        n, g, c, hw = 2, 3, 4, side * side
        b = build({"n": n, "g": g}, {"c": c, "p": hw})
        steps = {"n": g * c * hw, "g": c * hw, "c": hw, "p": 1}
        x = b.load("x", **steps)
        mean = b.reduce("moments", x)
        scale = b.op("rsqrt", b.op("mul", f"{mean}_m2", b.const(1.0 / (c * hw))))
        norm = b.op("mul", b.op("sub", x, mean), scale)
        norm = b.op("add", b.op("mul", norm, b.load("w", g=c, c=1)), b.load("b", g=c, c=1))
        b.store("y", b.op("mul", norm, b.op("sigmoid", norm)), **steps)
        b.store("m", mean, n=g, g=1)
        size = n * g * c * hw
        data = {"x": torch.randn(size), "w": torch.randn(g * c), "b": torch.randn(g * c)}
        outputs = {"y": (size, torch.float32), "m": (n * g, torch.float32)}
        cases.append(case(b.loop(f"group_norm_{side}"), data, **outputs))
    check(everything(cases), 5e-6)


def test_infinities_and_nan_go_where_pytorch_puts_them(
    build: Any, case: Any, everything: Any, check: Any
):
    rows, columns = 5, 3000
    x = torch.randn(rows, columns)
    x[0] = -float("inf")
    x[1, :2500] = -float("inf")
    x[2, 77] = float("nan")
    x[3, 2999] = float("inf")
    b = build({"r": rows}, {"c": columns})
    v = b.load("x", r=columns, c=1)
    most = b.reduce("max", v)
    e = b.op("exp", b.op("sub", v, most))
    b.store("y", b.op("div", e, b.reduce("sum", e)), r=columns, c=1)
    b.store("m", most, r=1)
    b.store("low", b.reduce("min", v), r=1)
    outputs = dict.fromkeys(("m", "low"), (rows, torch.float32))
    made = case(b.loop("masked"), {"x": x}, y=(rows * columns, torch.float32), **outputs)
    check(everything([made]))


@pytest.mark.exhaustive
def test_large_offsets_do_not_spoil_a_variance(build: Any, case: Any, everything: Any, check: Any):
    rows, columns = 3, 5000
    b = build({"r": rows}, {"c": columns})
    mean = b.reduce("moments", b.load("x", r=columns, c=1))
    b.store("y", f"{mean}_m2", r=1)
    data = {"x": torch.randn(rows, columns) + 1e4}
    check(everything([case(b.loop("variance"), data, y=(rows, torch.float32))]), 1e-6)


@pytest.mark.exhaustive
def test_narrow_columns_are_reduced_in_segments(build: Any, case: Any, everything: Any, check: Any):
    inner, columns = 6000, 5
    b = build({"c": columns}, {"k": inner})
    x = b.load("x", c=1, k=columns)
    total = b.reduce("sum", b.op("mul", x, x))
    b.store("y", b.op("sqrt", b.op("add", total, b.load("bias", c=1))), c=1)
    b.store("low", b.reduce("min", x), c=1)
    data = {"x": torch.randn(inner, columns), "bias": torch.rand(columns)}
    outputs = dict.fromkeys(("y", "low"), (columns, torch.float32))
    kernels = everything([case(b.loop("narrow"), data, **outputs)], settings=1)
    assert kernels[0].strategy.name == "columns_split"
    check(kernels)


def test_a_row_s_value_may_be_saved_for_one_that_is_saved_later(
    build: Any, case: Any, everything: Any, check: Any
):
    """A gradient of a norm: what a later walk needs of a row is computed from an earlier one."""
    rows, columns = 33, 9
    b = build({"r": rows}, {"c": columns})
    x = b.load("x", r=1, c=rows)
    length = b.op("sqrt", b.reduce("sum", b.op("square", x)))
    long = b.op("gt", length, b.const(2.5), dtype="bool")
    total = b.reduce("sum", b.op("div", x, length))
    chosen = b.op("where", long, total, b.const(0.0))
    b.store("y", b.op("mul", x, chosen), r=1, c=rows)
    data = {"x": torch.randn(columns, rows)}
    check(everything([case(b.loop("saved"), data, y=(rows * columns, torch.float32))]))
