"""Every pointwise operator against PyTorch, on ordinary and on special values."""

from typing import Any

import pytest
import torch

from kernelwright.tools.codegen.ir import OPERATORS

BOOLEAN = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"} | {
    name for name in OPERATORS if name.startswith("logical")
}
WHOLE = {"shift_left", "shift_right"} | {name for name in OPERATORS if name.startswith("bitwise")}
NAMES = {"floordiv": "floor_divide", "truncdiv": "div", "shift_left": "bitwise_left_shift"}
NAMES |= {"shift_right": "bitwise_right_shift"}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-30, 1e12, float("inf"), -float("inf")]
# Operators that integers have too.
ON_INTEGERS = (
    "add sub mul maximum minimum neg abs sign square floordiv truncdiv remainder fmod relu "
    "shift_left shift_right bitwise_and bitwise_or bitwise_xor bitwise_not eq ne lt le gt ge where"
)


def expected(op: str, args: list[torch.Tensor]) -> torch.Tensor:
    """What PyTorch computes."""
    if op == "truncdiv":
        return torch.div(*args, rounding_mode="trunc")
    if op == "fma":
        return args[0] * args[1] + args[2]
    if op == "where":
        return torch.where(args[0].bool(), args[1], args[2])
    if op == "relu":
        return torch.relu(args[0])
    return getattr(torch, NAMES.get(op, op))(*args)


def kernel(build: Any, case: Any, ops: list[str], dtype: str, columns: list[torch.Tensor]) -> Any:
    """One pointwise loop that stores every operator's result."""
    size = columns[0].numel()
    b = build({"n": size}, {})
    loads = [b.load(f"x{k}", dtype, n=1) for k in range(3)]
    outputs = {}
    for op in ops:
        result = "bool" if op in BOOLEAN else dtype
        value = b.op(op, *loads[: OPERATORS[op]], dtype=result)
        b.store(f"y_{op}", value, result, n=1)
        outputs[f"y_{op}"] = (size, getattr(torch, result))
    data = {f"x{k}": column for k, column in enumerate(columns)}
    made = case(b.loop(f"operators_{dtype}"), data, **outputs)
    made.truth = {
        f"y_{op}": expected(
            op, [c.double() if dtype == "float32" else c for c in columns][: OPERATORS[op]]
        ).double()
        for op in ops
    }
    return made


def pairs(values: torch.Tensor) -> list[torch.Tensor]:
    """All pairs of values, and a third column."""
    first, second = (g.reshape(-1) for g in torch.meshgrid(values, values, indexing="ij"))
    return [first.contiguous(), second.contiguous(), second.flip(0).contiguous()]


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float64", marks=pytest.mark.exhaustive)]
)
def test_floating_operators_agree(build: Any, case: Any, everything: Any, check: Any, dtype: str):
    # A sum that cancels is as good as its product, which fma may or may not have rounded.
    ops = [op for op in OPERATORS if op not in WHOLE | {"lgamma", "fma"}]
    torch.manual_seed(0)
    values = torch.cat([torch.tensor(SPECIAL), torch.tensor([float("nan")]), torch.randn(20) * 4])
    made = kernel(build, case, ops, dtype, pairs(values.to(getattr(torch, dtype))))
    check(everything([made], settings=1), 1e-6, each=True)


def test_integer_operators_agree(build: Any, case: Any, everything: Any, check: Any):
    values = torch.tensor([0, 1, -1, 7, -7, 3, -3, 40, 1 << 40, -(1 << 40)])
    columns = pairs(values)
    columns[1] = torch.where(columns[1] == 0, 5, columns[1])
    smooth = [op for op in ON_INTEGERS.split() if not op.startswith("shift")]
    shifts = pairs(torch.tensor([0, 1, 5, -9, 1 << 30]))
    shifts[1] = shifts[1].abs() % 20
    cases = [
        kernel(build, case, smooth, "int64", columns),
        kernel(build, case, ["shift_left", "shift_right"], "int64", shifts),
    ]
    check(everything(cases, settings=1), 0)


@pytest.mark.exhaustive
def test_boolean_operators_agree(build: Any, case: Any, everything: Any, check: Any):
    ops = [op for op in OPERATORS if op.startswith(("logical", "bitwise"))]
    ops = [op for op in ops if op != "bitwise_not"] + ["eq", "ne", "maximum", "where"]
    made = kernel(build, case, ops, "bool", pairs(torch.tensor([True, False, True])))
    check(everything([made], settings=1), 0)


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float64", marks=pytest.mark.exhaustive)]
)
def test_equal_products_cancel_to_zero(
    build: Any, case: Any, everything: Any, check: Any, dtype: str
):
    """Fused into the difference, one of them would be exact and the rest its rounding."""
    size = 1003
    b = build({"n": size}, {})
    x, y, z, w = (b.load(name, dtype, n=1) for name in "xyzw")
    left, right = b.op("mul", x, y, dtype=dtype), b.op("mul", z, w, dtype=dtype)
    b.store("out", b.op("sub", left, right, dtype=dtype), dtype, n=1)
    torch.manual_seed(0)
    one, other = torch.randn(2, size, dtype=getattr(torch, dtype)).unbind()
    data = {"x": one, "y": other, "z": one.clone(), "w": other.clone()}
    made = case(b.loop(f"products_{dtype}"), data, out=(size, getattr(torch, dtype)))
    made.truth = {"out": torch.zeros(size, dtype=torch.float64)}
    check(everything([made], settings=1), 0)
