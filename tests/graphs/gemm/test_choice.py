"""What runs where by a grid's records, what that comes to, and what is expected in between."""

from types import SimpleNamespace

import pytest

from kernelwright.graphs.gemm.maps import heat_maps, in_common, strategies
from kernelwright.tools.evaluate.rules import FAST, WIDER
from kernelwright.tools.gemm.choice import (
    AUTOTUNED,
    EAGER,
    FASTEST,
    compared,
    geometric,
    guess,
    hardest,
    is_ours,
    means,
    quality,
)
from kernelwright.tools.gemm.problem import Arithmetic
from kernelwright.tools.gemm.record import GemmRecord
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import Comparison
from kernelwright.tools.types.measurement import ModeTiming


def changed(record: GemmRecord, mode: str, low: float, high: float) -> GemmRecord:
    """The same with another interval beside the autotuned library."""

    def moved(one: Comparison) -> Comparison:
        given = {"ratio": (low + high) / 2, "ci95_low": low, "ci95_high": high}
        return one.model_copy(update=given) if one.baseline == AUTOTUNED else one

    found = record.evaluation
    assert found is not None
    if mode == "offline":
        update = {"comparisons": tuple(map(moved, found.comparisons))}
    else:
        served = tuple(ModeTiming(mode="server", comparison=moved(one)) for one in record.server)
        update = {"modes": served}
    return record.model_copy(update={"evaluation": found.model_copy(update=update)})


@pytest.mark.parametrize(
    ("mode", "low", "high", "ours"),
    [
        ("offline", 1.01, 1.05, True),
        ("offline", 0.99, 1.05, False),  # not certainly faster: the library keeps it
        ("offline", 0.90, 0.95, False),
        ("offline", 1.01, 1.40, False),  # too wide to settle anything
        ("server", 0.98, 1.02, True),
        ("server", 0.90, 0.95, False),  # certainly slower
    ],
)
def test_ours_is_certainly_faster_queued_and_not_slower_as_a_server_calls(
    records: tuple[GemmRecord, ...], mode: str, low: float, high: float, ours: bool
) -> None:
    assert is_ours(records[0])
    assert is_ours(changed(records[0], mode, low, high)) == ours


def test_the_dispatch_never_loses_what_was_measured(records: tuple[GemmRecord, ...]) -> None:
    for one in means(records, AUTOTUNED):
        assert one.dispatched >= max(1.0, one.bare) - 1e-9
    whole = means(records, AUTOTUNED)[0]
    assert (whole.mode, whole.size_class, whole.shapes) == ("offline", None, len(records))
    ratios = [next(c.ratio for c in r.offline if c.baseline == AUTOTUNED) for r in records]
    assert whole.bare == pytest.approx(geometric(ratios))
    assert whole.lost == sum(ratio < 0.99 for ratio in ratios) > 0
    assert {one.size_class for one in means(records, AUTOTUNED)} >= {None, "small", "medium"}


def test_a_shape_without_a_right_kernel_counts_as_the_librarys(
    records: tuple[GemmRecord, ...],
) -> None:
    lost = records[0].model_copy(update={"evaluation": None, "best": None})
    whole = means((lost, records[1]), AUTOTUNED)[0]
    assert (whole.shapes, whole.without) == (2, 1)
    assert whole.dispatched < whole.bare


async def test_without_the_binding_nothing_is_said_of_it(formula: SimpleNamespace) -> None:
    found = await formula.measure(formula.judge(lacks_binding=True), "64x64x64")
    assert hardest(found) == EAGER
    assert means(found, AUTOTUNED) == ()
    assert len(means(found, EAGER)) == 4
    assert found[0].absent == (
        "cublaslt: the binding is missing", "cublaslt-autotuned: the binding is missing",
    )  # fmt: skip


async def test_sums_in_fp16_are_held_against_both_libraries(formula: SimpleNamespace) -> None:
    terms = formula.terms.model_copy(update={"arithmetic": Arithmetic(accumulate="fp16")})
    (ahead,) = await formula.measure(formula.judge(), "64x2048x256", terms=terms)
    (behind,) = await formula.measure(formula.judge(wider=0.5), "64x2048x256", terms=terms)
    assert is_ours(ahead)
    assert not is_ours(behind)  # the library is faster with sums in float32
    for found, beside in ((ahead, AUTOTUNED), (behind, WIDER[0])):
        assert hardest([found]) == FASTEST
        against = compared(found, FASTEST, "offline")
        assert against is not None
        assert against.baseline == beside
        assert means([found], FASTEST)[0].dispatched >= 1.0
    assert ahead.overflown == ("large",)


async def test_fast_sums_of_eight_bits_are_shown_and_nobodys_rival(
    formula: SimpleNamespace,
) -> None:
    terms = formula.terms.model_copy(update={"arithmetic": Arithmetic(dtype="fp8")})
    (found,) = await formula.measure(formula.judge(fast=0.1), "64x256x256", terms=terms)
    assert [one.outcome for one in found.offline if one.baseline == FAST] == ["slower"]
    assert is_ours(found)
    assert hardest([found]) == AUTOTUNED
    assert means([found], FAST)[0].bare < 1.0


def test_a_guess_is_the_nearest_shapes(records: tuple[GemmRecord, ...]) -> None:
    shape = GemmShape(m=128, n=2048, k=256)
    found = guess(shape, records[0].model, records)
    assert found is not None
    assert found.of.name == "64x2048x256_nt"
    assert found.ours
    other = guess(shape.model_copy(update={"layout": "nn"}), None, records)
    assert other is None  # of that layout nothing was measured
    checked = quality(records)
    assert checked.shapes == len(records)
    assert checked.loss >= 1.0


def test_maps_have_a_cell_a_shape(records: tuple[GemmRecord, ...]) -> None:
    maps = heat_maps(records, AUTOTUNED, "offline")
    assert [one.title for one in maps] == ["K = 256, nt", "K = 2048, nt"]
    assert all(len(one.cells) == 2 for one in maps)
    assert {(cell.row, cell.column) for cell in maps[0].cells} == {(0, 0), (1, 0)}
    runs = heat_maps(records, AUTOTUNED, "strategy")
    assert any(cell.words == "library" for one in runs for cell in one.cells)
    assert len(strategies(records)) >= 1


def test_winners_are_contrasted_within_each_shape(records: tuple[GemmRecord, ...]) -> None:
    common = in_common(records)
    assert common[0].ratio <= common[-1].ratio
    assert all(one.shapes >= 3 and 0 <= one.wins <= one.shapes for one in common)
