"""Plans as plain Python."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.export.plan_python import prepare_reads, print_plan

POINTERS = {"rows": (True, True, False)}


def printed(body, has_grid=False, **tunables):
    plan = "def forward(x):\n" + "\n".join(f"    {line}" for line in body.splitlines())
    text = print_plan(plan, POINTERS, tunables, has_grid=has_grid)
    ast.parse(text)
    return text


def test_a_launch_becomes_a_call_with_addresses():
    text = printed('y = empty_like(x)\nlaunch("rows", args=(x, y, 3))\nreturn y')
    assert "kernels.rows(x.data_ptr(), y.data_ptr(), 3)" in text
    assert "torch.empty_like(x, memory_format=torch.contiguous_format)" in text


def test_a_cuda_launch_keeps_its_geometry_and_fills_in_what_was_left_out():
    body = 'launch("rows", args=(x, x, 3), block=THREADS, grid=(4, 2))\nreturn x'
    text = printed(body, has_grid=True, THREADS=256)
    assert "kernels.rows((4, 2), 256, 0, 1, x.data_ptr(), x.data_ptr(), 3)" in text


def test_a_temporary_lives_until_the_kernel_has_run():
    text = printed('launch("rows", args=(x.contiguous(), x[0], 3))\nreturn x')
    assert "(held_1 := x.contiguous()).data_ptr()" in text
    assert "x[0].data_ptr()" in text
    lines = [line.strip() for line in text.splitlines()]
    (launch,) = (at for at, line in enumerate(lines) if "data_ptr" in line)
    assert lines[launch + 1] == "del held_1"
    inside = printed('for i in range(2):\n    launch("rows", args=(x.t(), x, 3))\nreturn x')
    assert "held_1" in inside
    assert "del" not in inside, "a loop that makes no round binds no name"


def test_words_for_types_become_torchs_and_tunables_their_values():
    text = printed('y = empty((3,), "float16")\nz = zeros((N,))\nreturn y.to("bfloat16")', N=7)
    assert "torch.empty((3,), dtype=torch.float16, device=kernels.device)" in text
    assert "torch.zeros((7,), dtype=torch.float32, device=kernels.device)" in text
    assert "y.to(torch.bfloat16)" in text


def test_a_weight_may_be_called_like_a_type():
    text = printed('return aten.mul(x, weights["float32"])')
    assert "torch.ops.aten.mul(x, weights['float32'])" in text


def test_library_operators_that_create_are_told_where():
    text = printed("return aten.add(x, aten.arange(4))")
    assert "torch.ops.aten.arange(4, device=kernels.device)" in text
    assert "torch.ops.aten.add(x, " in text


def test_an_update_is_seen_by_later_reads_and_kept_for_the_end():
    text = printed('update("mean", x)\nreturn weights["mean"]')
    assert "updates['mean'] = weights['mean'] = x.to(weights['mean'].dtype)" in text


@pytest.mark.parametrize("name", ["kernels", "updates", "torch", "math"])
def test_a_variable_cannot_take_a_name_of_the_exports(name):
    text = printed(f"{name} = x.shape[0]\ny = empty(({name},))\nreturn y")
    assert f"{name}_ = x.shape[0]" in text
    assert "device=kernels.device" in text


def test_infinity_prod_and_ceil_div_have_meanings():
    text = printed("n = ceil_div(prod(x.shape), 2)\nreturn full((n,), -inf)")
    assert "ceil_div(math.prod(x.shape), 2)" in text
    assert "-math.inf" in text


def test_long_launches_are_broken_between_arguments():
    arguments = ", ".join(f"some_quite_long_name_{i}" for i in range(12))
    pointers = {"rows": (False,) * 12}
    plan = f'def forward(x):\n    launch("rows", args=({arguments}))\n    return x\n'
    text = print_plan(plan, pointers, {}, has_grid=False)
    assert max(map(len, text.splitlines())) <= 100
    ast.parse(text)


def test_prepare_says_what_it_reads():
    plan = """
def prepare(weights):
    return {"w": weights["a"].t(), "v": aten.add(weights["b"], weights["a"])}

def forward(x):
    return aten.mm(x, weights["c"])
"""
    assert prepare_reads(plan) == ("a", "b")
    text = print_plan(plan, {}, {}, has_grid=False)
    assert "def prepare_weights(kernels, weights):" in text
    assert "def run_plan(kernels, weights, prepared, updates, x):" in text


@given(st.lists(st.sampled_from(["+", "-", "*", "//"]), min_size=1, max_size=6), st.integers(1, 9))
def test_arithmetic_means_the_same_afterwards(operators, size):
    expression = "N" + "".join(f" {op} {i + 2}" for i, op in enumerate(operators))
    text = printed(f"n = {expression}\nreturn n", N=size)
    names: dict[str, object] = {}
    exec(text, names)
    assert names["run_plan"](None, {}, None, {}, None) == eval(expression, {"N": size})


def test_a_tensor_map_is_made_by_the_kernels() -> None:
    plan = """def forward(x):
    y = empty_like(x)
    launch("f", grid=1, block=32, args=(tensor_map(x, box=(ROWS, 64), offset=8), y))
    return y
"""
    text = print_plan(plan, {"f": (False, True)}, {"ROWS": 16}, has_grid=True)
    assert (
        "kernels.f(1, 32, 0, 1, kernels.tensor_map(x, box=(16, 64), offset=8), y.data_ptr())"
        in text
    )


def test_where_a_tracer_looks_launches_are_given_the_tensors() -> None:
    plan = """def forward(x):
    y = empty_like(x)
    launch("f", grid=1, block=32, args=(tensor_map(x, box=(16, 64)), y))
    return y
"""
    text = print_plan(plan, {"f": (False, True)}, {}, has_grid=True, by_address=False)
    assert "kernels.f(1, 32, 0, 1, kernels.tensor_map(x, box=(16, 64)), y)" in text
