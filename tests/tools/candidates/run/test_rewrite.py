"""The guards change nothing for numbers, and stand wherever a tensor could be."""

import ast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.candidates.run.guards import GUARDS
from kernelwright.tools.candidates.run.rewrite import Rewriter


def run(text: str, *args: object) -> object:
    """Run a function as the runner would, without kernels."""
    tree = ast.parse(text)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    tree.body = [Rewriter(function, frozenset()).visit(function)]
    space: dict[str, object] = {"__builtins__": {}, "__slice": slice, **GUARDS}
    exec(compile(ast.fix_missing_locations(tree), "<plan>", "exec"), space)
    forward = space["forward"]
    assert callable(forward)
    return forward(*args)


leaves = st.sampled_from(["a", "b", "n", "1", "2", "3.5", "shape[0]"])


def _join(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"])
    return st.one_of(
        st.tuples(inner, operators, inner).map(lambda p: f"({' '.join(p)})"),
        inner.map(lambda text: f"(-{text})"),
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"max({p[0]}, {p[1]})"),
    )


@given(
    st.recursive(leaves, _join, max_leaves=8),
    st.integers(-9, 9),
    st.floats(-8, 8, allow_nan=False, width=16),
)
def test_arithmetic_on_numbers_means_what_python_means(text: str, a: int, b: float) -> None:
    body = f"def forward(a, b, shape):\n    n = a\n    n += 2\n    return {text}\n"
    names = {"a": a, "b": b, "n": a + 2, "shape": (4, 5), "max": max, "__builtins__": {}}
    try:
        expected = eval(text, names)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            run(body, a, b, (4, 5))
        return
    assert run(body, a, b, (4, 5)) == expected


@pytest.mark.parametrize(
    "line",
    [
        "y = x + 1",
        "y = 1 + x",
        "y = x * x",
        "y = -x",
        "y = x ** 2",
        "y = x",
        "y = x[0] + 1",
        "y = (x, x)[0] * 2",
        "y = x < 1",
        "y = x == x",
        "y = not x",
        "y = 1 if x else 2",
        "y = x and 1",
        "y = int(x)",
        "y = float(x)",
        "y = min(x, 1)",
        "y = len(x)",
        "y = prod(x)",
        "y = ceil_div(x, 2)",
        "y = x[x]",
        "y = (1, 2)[x]",
    ],
)
def test_a_tensor_is_opaque_to_arithmetic_and_branches(line: str) -> None:
    text = f"def forward(x):\n    {line}\n    y += 1\n    return y\n"
    with pytest.raises((LaunchRefused, TypeError)):
        run(text, torch.ones(1))


def test_an_assignment_in_place_never_writes_to_a_list_or_tensor() -> None:
    shape = [1, 2]
    text = "def forward(s):\n    t = s\n    t += [3]\n    return t\n"
    assert run(text, shape) == [1, 2, 3]
    assert shape == [1, 2]


def test_plain_arithmetic_on_shapes_has_no_guard_to_pay_for() -> None:
    text = "def forward(x):\n    r, c = x.shape\n    n = r - c // 2\n    return n + x.shape[0]\n"
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    called = ast.unparse(Rewriter(function, frozenset()).visit(function))
    assert "__" not in called


@pytest.mark.parametrize(
    "text",
    [
        "10 ** 10 ** 10",
        "2 ** 100000",
        "1 << 100000",
        "(1, 2) * 1000000000",
        "'%1000000000d' % 5",
        "'a' * 1000000000",
        "prod((1 << 60,) + (1 << 60,)) ** 64",
    ],
)
def test_no_expression_eats_time_or_memory(text: str) -> None:
    with pytest.raises(LaunchRefused):
        run(f"def forward():\n    return {text}\n")


def test_loops_are_bounded() -> None:
    text = "def forward(n):\n    y = 0\n    for i in range(n):\n        y += i\n    return y\n"
    assert run(text, 1000) == 499500
    with pytest.raises(LaunchRefused, match="too long"):
        run(text, 10**9)
    growing = (
        "def forward():\n    y = 3\n    for i in range(99):\n        y = y * y\n    return y\n"
    )
    with pytest.raises(LaunchRefused, match="1024 bits"):
        run(growing)
