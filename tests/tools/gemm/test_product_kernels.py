"""What is tried for a product, and in which order; that it compiles for the device it is for."""

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.gemm.candidates import ProductKernels, Proposal
from kernelwright.tools.gemm.problem import arithmetic_of, task_of
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.languages import Built, compile_candidate, shutdown_compilers
from kernelwright.tools.types import Setting

H200 = hardware_profile("H200")


def kernels(m: int, n: int, k: int, sums: str = "fp32") -> ProductKernels:
    arithmetic = arithmetic_of("fp16", sums, "")
    return ProductKernels(task_of(GemmShape(m=m, n=n, k=k), arithmetic).graph, H200)


@pytest.fixture(scope="module")
def large() -> ProductKernels:
    return kernels(4096, 4096, 4096)


def settings(one: Proposal) -> dict[str, int]:
    return {setting.name: setting.value for setting in one.settings}


def test_the_cost_models_ways_come_first(large: ProductKernels) -> None:
    first = large.first()
    (strategy, *_) = large.strategies
    tiles = [settings(one)["TILE"] for one in first]
    assert {one.strategy for one in first[:6]} == {strategy.name} == {"wgmma_maps"}
    assert tiles[0] == large.tiles(strategy)[0]
    assert len({one.candidate.id for one in first}) == len(first)
    assert {settings(one)["TURNS"] for one in first[:6]} == {0, 1}


def test_few_tiles_of_a_long_depth_share_it_first() -> None:
    first = kernels(256, 1024, 16384).first()
    assert all(settings(one)["SPLIT"] > 1 for one in first[:6])
    assert len({(settings(one)["TILE"], settings(one)["SPLIT"]) for one in first[:6]}) == 6


def test_sums_in_fp16_are_tried_where_they_were_asked_for(large: ProductKernels) -> None:
    asked = kernels(4096, 4096, 4096, "fp16")
    (tiled,) = (one for one in asked.strategies if one.name == "wgmma_maps_fp16")
    assert 256256 in asked.tiles(tiled)
    assert "wgmma_maps_fp16" in {one.strategy for one in asked.first()}
    assert "wgmma_maps_fp16" not in {one.name for one in large.strategies}


def test_eight_bits_are_multiplied_by_the_family_of_maps() -> None:
    task = task_of(GemmShape(m=4096, n=4096, k=4096), arithmetic_of("fp8", "fp32", ""))
    eights = ProductKernels(task.graph, H200)
    assert [one.name for one in eights.strategies] == ["wgmma_maps_fp8"]
    first = eights.first()
    assert first
    assert "PROMOTED=1" in first[0].words
    near = [one.words for start in first for one in eights.around(start)]
    assert any("PROMOTED=4" in words for words in near)


def test_short_products_are_tried_by_several_families() -> None:
    assert {"mma_tiles", "wgmma_maps"} <= {one.strategy for one in kernels(256, 256, 256).first()}


def test_a_matrix_times_a_vector_is_tried_without_tiles() -> None:
    vector = kernels(1, 64, 64)
    first = vector.first()
    assert first
    assert vector.tiles(vector.strategies[0]) == ()
    assert next(iter(vector.around(first[0])))


def test_what_won_near_shapes_is_tried_before(large: ProductKernels) -> None:
    won = [Setting(name="TILE", value=64256), Setting(name="STAGES", value=3)]
    first = large.first([("wgmma_maps", won), ("no_such_way", won)])
    assert first[0].words.startswith("wgmma_maps TILE=64256 STAGES=3")


def test_settings_that_do_not_fit_together_are_completed(large: ProductKernels) -> None:
    (strategy, *_) = large.strategies
    made = large.proposal(strategy, {"TILE": 128256, "TURNS": 1})  # more than registers hold
    assert made is not None
    assert "TURNS=0" in made.words
    assert large.proposal(strategy, {"TILE": 17}) is None


def test_neighbours_differ_in_one_setting(large: ProductKernels) -> None:
    fastest = large.first()[0]
    near = list(large.around(fastest))
    assert len(near) > 10
    assert "CLUSTER=2" in fastest.words
    assert "CLUSTER=1" in near[0].words  # what weighs most comes first
    for one in near:
        pairs = zip(one.settings, fastest.settings, strict=True)
        assert sum(a.value != b.value for a, b in pairs) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", [(64, 64, 16384), (256, 256, 256), (16384, 64, 64)])
async def test_every_first_candidate_compiles_without_spills(sizes: tuple[int, int, int]) -> None:
    try:
        for one in kernels(*sizes).first():
            built = await compile_candidate(one.candidate, architecture="sm_90a", timeout_s=60)
            assert isinstance(built, Built), one.words
            assert not any(report.spill_bytes for report in built.reports), one.words
    finally:
        shutdown_compilers()
