"""Axes, vectors and passes: what the emitter decides before it prints anything."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import expression, literal
from kernelwright.tools.codegen.ir import OPERATORS, Stmt
from kernelwright.tools.types import DType

H200 = hardware_profile("H200")


@pytest.fixture
def case(builds: dict[str, Any]) -> Any:
    return lambda name: Case(builds[name].loop(name), H200)


def test_a_contiguous_chain_becomes_one_axis(case):
    assert case("swish").nest.walked == (35 * 101,)


def test_a_broadcast_keeps_only_the_axes_it_needs(case):
    assert case("channel_scale").nest.walked == (3, 5, 96)


def test_batch_norm_walks_two_axes_and_merges_the_image(case):
    nest = case("batch_norm").nest
    assert (nest.kept, nest.walked) == ((3,), (4, 320))


def test_walked_axes_are_reordered_but_an_argmax_counts_as_before(case):
    nest = case("argmax_strided").nest
    position = nest.places[nest.loop.body[1].name]
    assert nest.walked == (40, 6)
    assert position.inner == (1, 40)


def test_a_scan_keeps_the_order_of_its_axes(toolbox: SimpleNamespace):
    b = toolbox.Build({}, {"c": 6, "d": 40})
    b.store("y", b.scan("sum", b.load("x", c=1, d=6)), c=40, d=1)
    assert Case(b.loop("scan"), H200).nest.walked == (6, 40)


@pytest.mark.parametrize(
    ("name", "contiguous"), [("softmax", True), ("sum_columns", False), ("batch_norm", True)]
)
def test_the_contiguous_axis_decides_between_rows_and_columns(case, name, contiguous):
    assert case(name).contiguous_rows is contiguous


def test_reads_on_a_condition_leave_what_is_written_its_vectors(case):
    vectors = case("scan_behind_a_constant").along_rows
    assert vectors.widths[0] == 4
    assert (vectors.loads, vectors.stores) == (frozenset(), frozenset({0}))


def test_what_is_found_by_a_gather_narrows_vectors_to_single_elements(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 64})
    at = b.op("minimum", b.index("n"), b.const(40, "int64"), dtype="int64")
    b.store("y", b.load("x", n=1, **{at: 3}), n=1)
    vectors = Case(b.loop("gather"), H200).along_rows
    assert (vectors.widths, vectors.loads) == ((1,), frozenset())


def test_vectors_are_sixteen_bytes_where_shape_and_offset_allow(case):
    assert case("softmax").along_rows.widths[0] == 4
    assert case("layer_norm").along_rows.widths[0] == 8
    assert case("sum_all").along_rows.widths == (2, 1)
    assert case("extremes").along_rows.widths[0] == 4
    assert case("flip_double").along_rows.widths[0] == 2


def test_an_odd_offset_makes_accesses_scalar(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 64})
    b.store("y", b.op("neg", b.load("x", offset=1, n=1)), n=1)
    vectors = Case(b.loop("shifted"), H200).along_rows
    assert vectors.widths == (1,)


def test_a_small_weight_does_not_narrow_the_rest(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 64, "c": 32})
    scaled = b.op("mul", b.load("x", n=32, c=1), b.load("w", offset=3, c=1))
    b.store("y", scaled, n=32, c=1)
    vectors = Case(b.loop("scaled"), H200).along_rows
    assert vectors.widths[0] == 4
    assert len(vectors.loads) == 1


def test_softmax_takes_three_passes_and_keeps_its_input(case):
    one = case("softmax")
    assert len(one.schedule.passes) == 3
    assert [k.stmt.op for k in one.keeps(one.along_rows)] == ["load"]


def test_a_sum_of_two_loads_is_kept_as_one_value(case):
    one = case("rms_residual")
    assert [k.stmt.op for k in one.keeps(one.along_rows)] == ["add"]
    loads = one.keeps(one.along_rows, loads_only=True)
    assert [k.stmt.op for k in loads] == ["load", "load"]


def test_a_store_that_is_ready_early_is_written_in_the_first_pass(case):
    first, second = case("rms_residual").schedule.passes
    assert (first.stores, first.row_stores, second.stores) == ((0,), (1,), (2,))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, DType.FLOAT32, "1.0f"),
        (0.1, DType.FLOAT64, "0.1"),
        (float("-inf"), DType.FLOAT32, "kw::least<float>()"),
        (1e300, DType.FLOAT32, "kw::greatest<float>()"),
        (1e-5, DType.FLOAT32, "1e-05f"),
        (0.0, DType.FLOAT32, "0.0f"),
        (-0.0, DType.FLOAT32, "-0.0f"),
        (-(1 << 63), DType.INT64, "(-9223372036854775807LL - 1)"),
        (True, DType.BOOL, "true"),
    ],
)
def test_constants_are_spelled_exactly(value, dtype, text):
    assert literal(value, dtype) == text


@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_every_operator_has_an_expression(op):
    dtype = DType.INT64 if op.startswith(("bitwise", "shift")) else DType.FLOAT32
    args = [(name, dtype) for name in "abc"[: OPERATORS[op]]]
    text = expression(Stmt(name="s", op=op, dtype=dtype), args)
    assert all(name in text for name, _ in args)


def test_an_unknown_operator_is_refused():
    with pytest.raises(ValueError, match="no operator 'frobnicate'"):
        expression(Stmt(name="s", op="frobnicate", dtype=DType.FLOAT32), [])
