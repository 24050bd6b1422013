"""What is worked out at loading is what every call would work out, and nothing else is."""

import ast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.candidates.run.guards import GUARDS, shape_of
from kernelwright.tools.candidates.run.rewrite import ALLOCATE, Folder, Rewriter

OPERATORS = st.sampled_from(["+", "-", "*", "//", "%", "**", "<<", "<", "==", "and", "or"])
LEAVES = st.sampled_from(["A", "B", "n", "1", "2", "3.5", "(1, 2)", "'float32'", "x.shape[0]"])


def folded(text: str, values: dict[str, object]) -> tuple[ast.Module, Folder]:
    """A function as the runner would make it."""
    tree = ast.parse(text)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    folder = Folder(values)
    tree.body = [folder.visit(Rewriter(function, frozenset(values)).visit(function))]
    return ast.fix_missing_locations(tree), folder


def run(text: str, values: dict[str, object], fold: bool, **more: object) -> object:
    """What the function gives, or in which words it is refused."""
    tree, folder = folded(text, values if fold else {})
    space: dict[str, object] = {"__builtins__": {}, "__slice": slice, **GUARDS, **values, **more}
    space |= folder.held
    exec(compile(tree, "<plan>", "exec"), space)
    forward = space["forward"]
    assert callable(forward)
    try:
        return forward(torch.empty(4, 5))
    except (LaunchRefused, ArithmeticError, TypeError, ValueError) as error:
        return type(error), str(error)


def _join(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, OPERATORS, inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda text: f"(-{text})"),
        inner.map(lambda text: f"(not {text})"),
        inner.map(lambda text: f"int({text})"),
        inner.map(lambda text: f"len({text})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"ceil_div({p[0]}, {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"prod(({p[0]}, {p[1]}))"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}, {p[1]})"),
    )


@given(
    st.recursive(LEAVES, _join, max_leaves=8),
    st.integers(-70, 70),
    st.floats(-8, 8, allow_nan=False, width=16),
)
def test_a_folded_plan_gives_and_refuses_what_it_did(text: str, a: int, b: float) -> None:
    body = f"def forward(x):\n    n = A\n    return {text}\n"
    values: dict[str, object] = {"A": a, "B": b}
    assert repr(run(body, values, fold=True)) == repr(run(body, values, fold=False))


def test_a_plan_of_settings_and_numbers_calls_nothing_but_allocations_and_launches() -> None:
    text = (
        "def forward(x):\n"
        "    y = empty((16, 4 * ROWS), dtype='float16')\n"
        "    c = zeros((ceil_div(100, ROWS),))\n"
        "    launch('f', grid=(min(ROWS, 4) * 16, 1 << ROWS), block=ROWS, args=(x, y, c, -1.5))\n"
        "    return y\n"
    )
    tree, folder = folded(text, {"ROWS": 8})
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [node.func.id for node in calls if isinstance(node.func, ast.Name)]
    assert sorted(called) == [ALLOCATE, ALLOCATE, "__launch_f"]
    sizes = {torch.Size((16, 32)), torch.Size((13,))}
    assert set(folder.held.values()) == {torch.float16, torch.float32, *sizes}
    (launch,) = [node for node in calls if getattr(node.func, "id", "") == "__launch_f"]
    assert ast.literal_eval(launch.args[1]) == (64, 256)


def test_an_allocator_is_asked_at_once_where_size_and_type_were_checked() -> None:
    asked: list[object] = []

    def allocate(shape: object, dtype: torch.dtype) -> torch.Tensor:
        asked.append((type(shape), shape, dtype))
        return torch.full(tuple(shape), 7, dtype=dtype)  # type: ignore[call-overload]

    def checked(shape: object, dtype: object = "float32") -> torch.Tensor:
        return allocate(torch.Size(shape_of(shape)), GUARDS["__dtype_or_value"](dtype))  # type: ignore[arg-type]

    names = {
        ALLOCATE: allocate,
        "empty": checked,
        "zeros": lambda *a, **k: checked(*a, **k).zero_(),
    }
    for line in (
        "empty((A, 2))",
        "empty((A, 2), 'int64')",
        "empty((A, 2), dtype='int64')",
        "zeros((A,), dtype='bool')",
        "empty(x.shape)",
        "empty((2,), dtype=x.dtype)",
    ):
        body = f"def forward(x):\n    return {line}\n"
        plain = run(body, {"A": 3}, fold=False, **names)
        folded = run(body, {"A": 3}, fold=True, **names)
        assert isinstance(plain, torch.Tensor)
        assert isinstance(folded, torch.Tensor)
        assert torch.equal(plain, folded)
        assert asked[-1] == asked[-2], line


@pytest.mark.parametrize(
    "line", ["empty((2, -1))", "empty((1.5,))", "ceil_div(1, 0)", "empty((2,), dtype='float7')"]
)
def test_what_is_refused_is_refused_when_it_is_called(line: str) -> None:
    def empty(shape: object, dtype: object = "float32") -> object:
        return shape_of(shape), GUARDS["__dtype_or_value"](dtype)

    body = f"def forward(x):\n    return {line}\n"
    plain = run(body, {}, fold=False, empty=empty)
    assert run(body, {}, fold=True, empty=empty) == plain


def test_nothing_of_a_tensor_is_touched() -> None:
    body = (
        "def forward(x):\n    return (x[1:, 0], x.shape[1] * ROWS, x.reshape(20), x.to('int32'))\n"
    )
    view, extent, flat, whole = run(body, {"ROWS": 3}, fold=True)  # type: ignore[misc]
    assert view.shape == (3,)
    assert extent == 15
    assert flat.shape == (20,)
    assert whole.dtype == torch.int32
