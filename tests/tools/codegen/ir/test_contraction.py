"""A product of matrices is read off a loop, whatever stands around it; nothing else is."""

import operator
from collections.abc import Mapping

import pytest

from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store, Stride
from kernelwright.tools.codegen.ir.contraction import (
    Contraction,
    contraction_of,
    needed_where,
)
from kernelwright.tools.codegen.ir.merged_axes import with_merged_axes
from kernelwright.tools.types import DType

F, H = DType.FLOAT32, DType.FLOAT16
M, N, K = 6, 10, 7


def access(buffer: str, dtype: DType = F, **steps: int) -> Access:
    strides = tuple(Stride(by=by, step=step) for by, step in steps.items())
    return Access(buffer=buffer, dtype=dtype, strides=strides)


def load(name: str, where: Access, *args: str) -> Stmt:
    return Stmt(name=name, op="load", dtype=F, access=where, args=args)


def op(name: str, word: str, *args: str, dtype: DType = F) -> Stmt:
    return Stmt(name=name, op=word, dtype=dtype, args=args)


PRODUCT = op("p", "mul", "a", "b")
TOTAL = Stmt(name="t", op="reduce", dtype=F, args=("p",), reduce=ReduceKind.SUM)
A, B = load("a", access("x", m=K, k=1)), load("b", access("w", k=N, n=1))


def loop(
    *body: Stmt,
    out: Mapping[str, int] | None = None,
    value: str = "t",
    outer: Mapping[str, int] | None = None,
    inner: Mapping[str, int] | None = None,
) -> Loop:
    sizes = {"m": M, "n": N} if outer is None else outer
    return Loop(
        name="L0",
        outer=tuple(Axis(name=name, size=size) for name, size in sizes.items()),
        inner=tuple(Axis(name=name, size=size) for name, size in (inner or {"k": K}).items()),
        body=body,
        stores=(Store(access=access("y", **(out or {"m": N, "n": 1})), value=value),),
    )


def read(found: Loop) -> Contraction:
    contraction = contraction_of(found)
    assert contraction is not None
    return contraction


def names(axes: tuple[Axis, ...]) -> list[str]:
    return [axis.name for axis in axes]


def test_a_plain_product_has_rows_columns_and_a_depth() -> None:
    found = read(loop(A, B, PRODUCT, TOTAL))
    assert (found.batches, found.m, found.n, found.k) == (1, M, N, K)
    assert found.flops == 2 * M * N * K
    assert found.left.access == A.access
    assert found.right.access == B.access
    assert found.left.contiguous(found.depth)
    assert found.right.contiguous(found.columns)
    assert not found.right.contiguous(found.depth)
    assert (found.total, found.epilogue) == ("t", ())
    assert found.is_matrix_product


def test_the_operand_along_which_results_lie_is_the_right_one() -> None:
    found = read(loop(A, B, op("p", "mul", "b", "a"), TOTAL))
    assert (found.left.value, found.right.value) == ("a", "b")
    turned = read(loop(A, B, PRODUCT, TOTAL, out={"n": M, "m": 1}))
    assert (turned.left.value, turned.right.value) == ("b", "a")
    assert (turned.m, turned.n) == (N, M)


def test_what_both_operands_vary_with_is_the_batch() -> None:
    a, b = load("a", access("x", z=M * K, m=K, k=1)), load("b", access("w", z=K * N, k=N, n=1))
    found = read(
        loop(a, b, PRODUCT, TOTAL, outer={"z": 3, "m": M, "n": N}, out={"z": M * N, "m": N, "n": 1})
    )
    assert (names(found.batch), names(found.rows), names(found.columns)) == (["z"], ["m"], ["n"])
    shared = read(
        loop(a, B, PRODUCT, TOTAL, outer={"z": 3, "m": M, "n": N}, out={"z": M * N, "m": N, "n": 1})
    )
    # A matrix that every batch shares makes one product of more rows, walked as one axis.
    assert (names(shared.batch), shared.m) == ([], 3 * M)
    assert len(shared.rows) == 1


def test_statements_before_and_after_the_product_are_told_apart() -> None:
    scale, bias = load("s", access("scale", m=1)), load("c", access("bias", n=1))
    body = (
        Stmt(name="i", op="index", dtype=DType.INT64, args=("k",)),
        Stmt(name="j", op="index", dtype=DType.INT64, args=("m",)),
        op("inside", "ge", "i", "j", dtype=DType.BOOL),
        load("x", access("x", H, m=K, k=1), "inside"),
        scale,
        op("a", "mul", "x", "s"),
        B,
        PRODUCT,
        TOTAL,
        bias,
        op("sum", "add", "t", "c"),
        op("y", "relu", "sum"),
    )
    found = read(loop(*body, value="y"))
    assert [stmt.name for stmt in found.left.body] == ["i", "j", "inside", "x", "s", "a"]
    assert found.left.access is None
    assert found.left.dtype is None
    assert [stmt.name for stmt in found.epilogue] == ["c", "sum", "y"]
    assert found.right.dtype is F


def test_half_precision_is_what_lies_in_memory_or_what_the_module_rounds_to() -> None:
    found = read(loop(load("a", access("x", H, m=K, k=1)), B, PRODUCT, TOTAL))
    assert found.left.dtype is H
    assert found.left.access is not None
    assert found.precision is F
    rounded = (op("ra", "cast", "a", dtype=H), op("rb", "cast", "b", dtype=H))
    halves = read(loop(A, B, *rounded, op("p", "mul", "ra", "rb"), TOTAL))
    assert halves.precision is H
    assert (halves.left.access, halves.right.dtype) == (A.access, F)


def test_a_matrix_times_a_vector_has_one_column() -> None:
    vector = load("b", access("w", k=1))
    found = read(loop(A, vector, PRODUCT, TOTAL, outer={"m": M}, out={"m": 1}))
    assert sorted((found.m, found.n)) == [1, M]
    assert not found.is_matrix_product


@pytest.mark.parametrize(
    "other",
    [
        loop(A, B, PRODUCT, TOTAL.model_copy(update={"reduce": ReduceKind.MAX})),
        loop(A, B, op("p", "add", "a", "b"), TOTAL),
        loop(A, op("p", "mul", "a", "a"), TOTAL, outer={"m": M}, out={"m": 1}),
        # A factor that stands still along the depth, and results repeated along a third axis.
        loop(A, load("b", access("w", n=1)), PRODUCT, TOTAL),
        loop(A, B, PRODUCT, TOTAL, outer={"m": M, "n": N, "r": 2}, out={"m": N, "n": 1, "r": 60}),
        # Something of the depth is stored besides the sum.
        loop(A, B, PRODUCT, TOTAL, op("y", "add", "t", "a"), value="y"),
        loop(A, B, PRODUCT, TOTAL, op("e", "exp", "a"),
             TOTAL.model_copy(update={"name": "u", "args": ("e",)})),
    ],
    ids=["maximum", "sum", "square", "scaled", "repeated", "kept", "two"],
)  # fmt: skip
def test_other_loops_are_none(other: Loop) -> None:
    assert contraction_of(other) is None


def _triangle(word: str, *, kept: bool) -> Loop:
    row, column = (Stmt(name=n, op="index", dtype=DType.INT64, args=(n[0],)) for n in ("mi", "ni"))
    one = Stmt(name="one", op="const", dtype=DType.INT64, value=1)
    zero = Stmt(name="zero", op="const", dtype=F, value=0.0)
    far = op("far", "sub", "ni", "mi", dtype=DType.INT64)
    test = op("test", word, "far", "one", dtype=DType.BOOL)
    chosen = ("t", "zero") if kept else ("zero", "t")
    end = (row, column, one, zero, far, test, op("y", "where", "test", *chosen))
    return loop(A, B, PRODUCT, TOTAL, *end, value="y")


@pytest.mark.parametrize("word", ["ge", "gt", "le", "lt"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_triangle_needs_no_sum_beyond_its_diagonal(word: str, kept: bool) -> None:
    found = read(_triangle(word, kept=kept))
    (bound,) = needed_where(found)
    for m in range(M):
        for n in range(N):
            inside = getattr(operator, word)(n - m, 1)
            assert bound.holds({"m": m, "n": n}) is (inside if kept else not inside)
    assert 0.1 < found.needed_share < 0.9


def test_what_is_read_of_every_sum_has_no_bound() -> None:
    both = _triangle("ge", kept=True)
    body = (*both.body, op("z", "add", "y", "t"))
    stores = (both.stores[0].model_copy(update={"value": "z"}),)
    found = read(both.model_copy(update={"body": body, "stores": stores}))
    assert needed_where(found) == ()
    assert found.needed_share == 1.0


def test_axes_walked_as_one_are_one() -> None:
    a = load("a", access("x", q=3 * K, m=K, k=1, one=5))
    sizes = {"q": 4, "m": 3, "n": N, "one": 1}
    product = loop(a, B, PRODUCT, TOTAL, outer=sizes, out={"q": 3 * N, "m": N, "n": 1})
    merged = with_merged_axes(product)
    assert [(axis.name, axis.size) for axis in merged.outer] == [("m", 12), ("n", N)]
    # Not where a position is computed with.
    counted = Stmt(name="i", op="index", dtype=DType.INT64, args=("m",))
    kept = with_merged_axes(loop(counted, a, B, PRODUCT, TOTAL, outer=sizes, out={"m": N, "n": 1}))
    assert [axis.name for axis in kept.outer] == ["q", "m", "n"]


IMAGES, TOKENS = 4, 3
GATED = load("g", access("gate", q=N, n=1))


def _images(*epilogue: Stmt, out: Mapping[str, int], value: str) -> Loop:
    """Rows of two axes that the left factor walks as one."""
    a = load("a", access("x", q=TOKENS * K, m=K, k=1))
    sizes = {"q": IMAGES, "m": TOKENS, "n": N}
    return loop(a, B, PRODUCT, TOTAL, *epilogue, outer=sizes, out=out, value=value)


DENSE = {"q": TOKENS * N, "m": N, "n": 1}


def test_rows_that_a_factor_walks_as_one_are_one_and_the_epilogue_knows_their_parts() -> None:
    found = read(_images(GATED, op("y", "mul", "t", "g"), out=DENSE, value="y"))
    (rows,) = found.rows
    assert (rows.size, found.m) == (IMAGES * TOKENS, IMAGES * TOKENS)
    assert found.left.access is not None
    assert (found.left.access.step(rows.name), found.left.access.step("q")) == (K, 0)
    assert found.stores[0].access.step(rows.name) == N
    gate = next(stmt.access for stmt in found.epilogue if stmt.access is not None)
    assert (gate.step(rows.name), gate.step("q")) == (0, N)
    assert [(part.name, part.size) for part in found.parts_of(rows)] == [
        ("q", IMAGES),
        ("m", TOKENS),
    ]
    assert found.names_of(found.rows) == {rows.name, "q", "m"}


def test_results_may_lie_by_parts() -> None:
    """As those of a transformer's heads do."""
    found = read(_images(out={"q": TOKENS * N, "m": 1, "n": TOKENS}, value="t"))
    # They lie together along the rows' last part: what was left is right.
    (columns,) = found.columns
    assert columns.size == IMAGES * TOKENS
    assert found.stores[0].access.step(columns.name) == 0
    assert [found.stores[0].access.step(name) for name in "qm"] == [TOKENS * N, 1]


def test_rows_are_not_merged_where_a_position_is_computed_with_or_a_factor_skips_some() -> None:
    counted = Stmt(name="i", op="index", dtype=DType.INT64, args=("q",))
    cast = op("f", "cast", "i")
    kept = read(_images(counted, cast, op("y", "mul", "t", "f"), out=DENSE, value="y"))
    assert [axis.name for axis in kept.rows] == ["q", "m"]
    a = load("a", access("x", q=TOKENS * K + 5, m=K, k=1))
    sizes = {"q": IMAGES, "m": TOKENS, "n": N}
    skipping = read(loop(a, B, PRODUCT, TOTAL, outer=sizes, out=DENSE))
    assert [axis.name for axis in skipping.rows] == ["q", "m"]
    assert kept.merged == skipping.merged == ()
