"""Which strategies are offered, on which device, and what they print."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates import complete_settings, valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir.rewrites import rewrite
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.languages.cuda.inspection import disassemble

H200, L40S = hardware_profile("H200"), hardware_profile("L40S")
EMITTER = CudaEmitter()


def names(loop: Any, hardware: Any = H200) -> list[str]:
    return [strategy.name for strategy in EMITTER.strategies(loop, hardware)]


def written(loop: Any, strategy: Any, hardware: Any, outputs: list[str]) -> Any:
    """A candidate of one loop, as an assembler would print it."""
    changed = rewrite(loop, strategy.rewrite) if strategy.rewrite else loop
    emitted = EMITTER.emit(changed, strategy, "loop0_", hardware)
    reads = dict.fromkeys(s.access.buffer for s in loop.body if s.access is not None)
    lines = [f"def forward({', '.join(reads)}):"]
    lines += [f'    {name} = empty((4,), dtype="float32")' for name in outputs]
    lines += [f"    {line}" for line in emitted.plan]
    lines.append(f"    return {', '.join(outputs)}")
    text = EMITTER.header() + emitted.source
    return new_candidate("cuda", text, "\n".join(lines) + "\n")


def outputs_of(loop: Any) -> list[str]:
    return list(dict.fromkeys(store.access.buffer for store in loop.stores))


def test_every_strategy_keeps_the_contract(builds: dict[str, Any]):
    for name, build in builds.items():
        loop = build.loop(name)
        for hardware in (H200, L40S):
            for strategy in EMITTER.strategies(loop, hardware):
                candidate = written(loop, strategy, hardware, outputs_of(loop))
                source = parse_kernel(candidate.kernel, "cuda")
                assert complete_settings(source), strategy.name
                assert all(t.name.startswith("LOOP0_") for t in source.tunables)
                assert all(f.name.startswith("loop0_") for f in source.functions)


@pytest.mark.parametrize(
    ("name", "architecture", "hardware"),
    [
        pytest.param("softmax_online", "sm_90a", "H200", marks=pytest.mark.exhaustive),
        pytest.param("layer_norm", "sm_80", "A100", marks=pytest.mark.exhaustive),
        pytest.param("rms_residual", "sm_89", "L40S", marks=pytest.mark.exhaustive),
        pytest.param("batch_norm_columns", "sm_120", "RTX 5090", marks=pytest.mark.exhaustive),
        ("cumprod_short", "sm_100a", "B200"),
        pytest.param("integers", "sm_89", "L40S", marks=pytest.mark.exhaustive),
        pytest.param("bias_gelu_half", "sm_90a", "H200", marks=pytest.mark.exhaustive),
        pytest.param("extremes", "sm_90a", "H200", marks=pytest.mark.exhaustive),
    ],
)
async def test_every_strategy_compiles_to_code_without_spills_or_traps(
    toolbox: SimpleNamespace, builds: dict[str, Any], name: str, architecture: str, hardware: str
):
    loop, device = builds[name].loop(name), hardware_profile(hardware)
    for strategy in EMITTER.strategies(loop, device):
        candidate = written(loop, strategy, device, outputs_of(loop))
        built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
        assert not isinstance(built, CompileFailure), f"{strategy.name}: {built}"
        assert all((r.spill_bytes or 0) <= 16 for r in built.reports), strategy.name
        assert not await toolbox.never_runs(built.artifact), strategy.name


def test_clusters_are_offered_only_where_they_exist(builds: dict[str, Any]):
    loop = builds["softmax_online"].loop("softmax")
    assert any(name.startswith("cluster") for name in names(loop))
    assert not any(name.startswith("cluster") for name in names(loop, L40S))


def test_short_rows_prefer_a_warp_and_one_row_is_split(toolbox: SimpleNamespace, builds: Any):
    b = toolbox.Build({"n": 1 << 20}, {"c": 64})
    x = b.load("x", n=64, c=1)
    b.store("y", b.op("div", x, b.reduce("sum", x)), n=64, c=1)
    assert names(b.loop("short"))[0] == "warp_rows"
    assert names(builds["huber"].loop("huber"))[0] == "split_rows"


def test_a_block_a_row_waits_where_rows_are_little_for_a_block(toolbox: SimpleNamespace):
    """Rows of 64 floats took 12 to 16 times what their bytes take, on an H200."""
    shares = {
        columns: {s.name: s.efficiency for s in EMITTER.strategies(loop, H200)}
        for columns in (64, 4096)
        for loop in [norm(toolbox, 1 << 20, columns)]
    }
    for name in ("block_rows_registers", "block_rows_stream"):
        assert shares[64][name] < shares[4096][name] / 4
    assert shares[64]["warp_rows"] > 4 * shares[64]["block_rows_registers"]


def test_short_lines_of_pooling_share_a_block(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 128, "c": 128, "h": 63, "w": 63}, {})
    steps = {"n": 128 * 126 * 126, "c": 126 * 126, "h": 252, "w": 2}
    taps = [b.load("x", offset=126 * y + x, **steps) for y in (0, 1) for x in (0, 1)]
    total = taps[0]
    for tap in taps[1:]:
        total = b.op("maximum", total, tap)
    b.store("y", total, n=128 * 63 * 63, c=63 * 63, h=63, w=1)
    loop = b.loop("pool")
    found = {one.name: one for one in EMITTER.strategies(loop, H200)}
    text = EMITTER.header() + EMITTER.emit(loop, found["window_lines"], "k", H200).source
    settings = {s.name: s.value for s in complete_settings(parse_kernel(text, "cuda"))}
    assert settings["K_ROWS"] * settings["K_WIDTH"] >= 512


def test_a_row_too_long_for_the_cache_is_never_promised_one_read(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 2}, {"c": 1 << 27})
    x = b.load("x", n=1 << 27, c=1)
    b.store("y", b.op("div", x, b.op("sqrt", b.reduce("sum", b.op("square", x)))), n=1 << 27, c=1)
    found = EMITTER.strategies(b.loop("long"), H200)
    assert min(strategy.bytes_read_factor for strategy in found) > 1.8


def norm(toolbox: SimpleNamespace, rows: int, columns: int, apart: int = 0) -> Any:
    b = toolbox.Build({"n": rows}, {"c": columns})
    x = b.load("x", n=apart or columns, c=1)
    b.store("y", b.op("mul", x, b.op("rsqrt", b.reduce("sum", b.op("square", x)))), n=columns, c=1)
    return b.loop("norm")


def test_rows_that_registers_hold_prefer_them(toolbox: SimpleNamespace):
    assert names(norm(toolbox, 1 << 16, 4096))[0] == "block_rows_registers"


def test_long_rows_prefer_what_keeps_nearly_all_of_them(toolbox: SimpleNamespace):
    # 0.57 and 0.58 ms on an H200, where a ring took 0.72.
    found = names(norm(toolbox, 2048, 1 << 17))
    assert found[:2] == ["grid_rows_partly", "cluster_rows_partly"]


def test_rows_that_chip_and_cache_hold_together_prefer_what_keeps_a_part(
    toolbox: SimpleNamespace,
):
    found = names(norm(toolbox, 7168, 1 << 18))
    assert found[:2] == ["grid_rows_partly", "cluster_rows_partly"]


def test_long_rows_that_only_narrow_accesses_can_read_are_read_once(toolbox: SimpleNamespace):
    # Where a row is read lies otherwise than where it is written: no vector suits both.
    found = EMITTER.strategies(norm(toolbox, 1 << 15, (1 << 16) - 1, 1 << 16), H200)
    assert found[0].memory == "row in registers"
    narrow = next(one for one in found if one.name == "block_rows_stream").efficiency
    wide = EMITTER.strategies(norm(toolbox, 1 << 15, 1 << 16), H200)
    assert narrow < next(one for one in wide if one.name == "block_rows_stream").efficiency


def test_what_cannot_compete_is_not_offered(toolbox: SimpleNamespace):
    assert "block_rows_stream" not in names(norm(toolbox, 4, 1 << 22))
    assert "split_rows" not in names(norm(toolbox, 1 << 16, 4096))


def test_rows_that_are_read_twice_whatever_is_done_are_written_by_small_tiles(
    toolbox: SimpleNamespace,
):
    few = norm(toolbox, 16, 1 << 22)
    known = {strategy.name: strategy for strategy in EMITTER.strategies(few, H200)}
    assert list(known).index("split_rows_tiles") < list(known).index("split_rows")
    text = EMITTER.emit(few, known["split_rows_tiles"], "k", H200)
    first, joined, last = (line for line in text.plan if line.startswith("launch"))
    assert "16 * K_SPLITS," in first
    assert "grid=16," in joined
    assert "16 * ceil_div(4194304, K_THREADS * K_VECTOR * K_DEPTH)" in last


@pytest.mark.parametrize(("rows", "columns"), [(16, 1 << 22), (5, 1 << 24), (64, 1 << 20)])
def test_shares_of_rows_that_read_the_same_columns_run_all_at_once(
    toolbox: SimpleNamespace, rows: int, columns: int
):
    """A last wave that fills a part of the device takes as long as a full one."""
    b = toolbox.Build({"n": rows}, {"c": columns})
    x = b.load("x", n=columns, c=1)
    y = b.op("mul", b.op("sub", x, b.reduce("sum", x)), b.load("w", c=1))
    b.store("y", y, n=columns, c=1)
    loop = b.loop("scaled")
    known = {strategy.name: strategy for strategy in EMITTER.strategies(loop, H200)}
    text = EMITTER.emit(loop, known["split_rows_tiles"], "k", H200)
    splits = re.search(r"// tune: K_SPLITS in (\d+)", text.source)
    assert splits is not None
    at_once = 4 * (H200.sm_count or 0)
    assert 0.9 * at_once <= rows * int(splits[1]) <= at_once


def test_few_columns_are_cut_into_blocks_that_run_all_at_once(toolbox: SimpleNamespace):
    for rows, columns in ((64, 2_000_003), (16, 1 << 24), (4096, 1 << 14)):
        b = toolbox.Build({"c": rows}, {"n": columns})
        b.store("y", b.reduce("moments", b.load("x", n=rows, c=1)), c=1)
        loop = b.loop("columns")
        known = {strategy.name: strategy for strategy in EMITTER.strategies(loop, H200)}
        text = EMITTER.emit(loop, known["columns_split"], "k", H200)
        found = re.findall(r"// tune: K_(\w+) in (\d+)", text.source)
        chosen = {name: int(value) for name, value in found}
        block = chosen["TX"] * chosen["TY"]
        tiles = -(-rows // (chosen["TX"] * chosen["VECTOR"]))
        threads = tiles * chosen["SPLITS"] * block / (H200.sm_count or 0)
        assert block == 256
        assert 0.9 * 768 <= threads <= 1024, (rows, threads)


def test_a_loop_that_writes_nothing_along_its_rows_has_no_tiles_to_write(builds: dict[str, Any]):
    assert "split_rows_tiles" not in names(builds["huber"].loop("huber"))


def test_a_pool_that_also_reads_a_value_a_channel_is_not_turned(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 64, "c": 32, "h": 63, "w": 63}, {})
    steps = {"n": 32 * 126 * 126, "c": 126 * 126, "h": 252, "w": 2}
    x = b.op("add", b.load("x", **steps), b.load("bias", c=1))
    b.store("y", x, n=32 * 63 * 63, c=63 * 63, h=63, w=1)
    assert names(b.loop("pool"))[0] == "pointwise_tiles"
    assert "pointwise_transposed" not in names(b.loop("pool"))


@pytest.mark.parametrize(("places", "unroll"), [(2, 4), (8, 2), (16, 1)])
def test_windows_that_read_at_many_places_read_fewer_vectors_at_once(
    toolbox: SimpleNamespace, places: int, unroll: int
):
    """At four a thread sixteen places spilled 3.9 KB of registers (sm_90)."""
    b = toolbox.Build({"n": 64, "c": 64}, {"hw": 4096})
    total = b.load("x", n=1 << 22, c=1, hw=1024)
    for place in range(1, places):
        total = b.op("add", total, b.load("x", offset=64 * place, n=1 << 22, c=1, hw=1024))
    b.store("y", b.reduce("sum", total), n=64, c=1)
    loop = b.loop("window")
    for strategy in EMITTER.strategies(loop, H200):
        text = EMITTER.header() + EMITTER.emit(loop, strategy, "k", H200).source
        settings = complete_settings(parse_kernel(text, "cuda"))
        assert {s.name: s.value for s in settings}["K_UNROLL"] == unroll, strategy.name


def test_rows_read_an_element_a_sector_are_expected_to_be_slow(toolbox: SimpleNamespace):
    """A row a block along images with channels last; rows a warp share what they need of it."""
    shares = {}
    for last, steps in ((False, {"c": 512, "hw": 1}), (True, {"c": 1, "hw": 64})):
        b = toolbox.Build({"n": 64, "c": 64}, {"hw": 512})
        x = b.load("x", n=1 << 15, **steps)
        y = b.op("sub", x, b.reduce("max", x))
        b.store("y", y, n=1 << 15, c=512, hw=1)
        shares[last] = {s.name: s.efficiency for s in EMITTER.strategies(b.loop("rows"), H200)}
    assert shares[True]["block_rows_registers"] < 0.2 * shares[False]["block_rows_registers"]
    assert shares[True]["warp_rows"] > 0.4 * shares[False]["warp_rows"]


def test_rows_that_share_a_long_weight_are_split_side_by_side(builds: dict[str, Any]):
    loop = builds["weighted_long"].loop("weighted")
    device = H200.model_copy(update={"cache_mib": 1.0})
    split = next(s for s in EMITTER.strategies(loop, device) if s.name == "split_rows")
    assert "block % 3" in EMITTER.emit(loop, split, "k", device).source


def test_a_softmax_is_also_offered_in_two_passes(builds: dict[str, Any]):
    found = EMITTER.strategies(builds["softmax"].loop("softmax"), H200)
    assert {strategy.rewrite for strategy in found} == {"", "online_softmax"}
    assert len({strategy.name for strategy in found}) == len(found)


def test_large_spaces_use_wide_indices(toolbox: SimpleNamespace):
    b = toolbox.Build({"n": 1 << 17, "c": 1 << 15})
    b.store("y", b.op("relu", b.load("x", n=1 << 15, c=1)), n=1 << 15, c=1)
    loop = b.loop("large")
    strategy = EMITTER.strategies(loop, H200)[0]
    assert "constexpr long long END" in EMITTER.emit(loop, strategy, "k", H200).source


def test_a_scan_beside_a_reduction_is_walked_in_order(builds: dict[str, Any]):
    assert names(builds["scan_and_reduce"].loop("both")) == ["thread_rows"]


def test_short_rows_across_few_others_have_a_strategy(builds: dict[str, Any]):
    assert names(builds["short_rows_across_two"].loop("short")) == ["thread_rows"]


def test_an_unknown_strategy_is_refused(builds: dict[str, Any]):
    loop = builds["swish"].loop("swish")
    strategy = EMITTER.strategies(loop, H200)[0].model_copy(update={"name": "magic"})
    with pytest.raises(ValueError, match="magic is no strategy of CUDA's"):
        EMITTER.emit(loop, strategy, "k", H200)


def test_defaults_come_first_and_settings_are_many_but_bounded(builds: dict[str, Any]):
    loop = builds["layer_norm"].loop("layer_norm")
    for strategy in EMITTER.strategies(loop, H200):
        text = EMITTER.header() + EMITTER.emit(loop, strategy, "k", H200).source
        source = parse_kernel(text, "cuda")
        listed = valid_settings(source)
        assert 4 <= len(listed) <= 4096


@pytest.mark.parametrize(("other", "fuses"), [("product", False), ("value", True)])
async def test_products_are_fused_into_a_difference_unless_it_is_one_of_two_products(
    toolbox: SimpleNamespace, other: str, fuses: bool
):
    b = toolbox.Build({"n": 4096})
    x, y, z, w = (b.load(name, n=1) for name in "xyzw")
    if other == "product":  # behind a condition, as an xlogy is written
        is_zero = b.op("eq", x, b.const(0.0), dtype="bool")
        left = b.op("where", is_zero, b.const(0.0), b.op("mul", x, y))
    else:
        left = b.op("add", x, y)
    b.store("out", b.op("sub", left, b.op("mul", z, w)), n=1)
    loop, device = b.loop("difference"), hardware_profile("H200")
    for strategy in EMITTER.strategies(loop, device):
        candidate = written(loop, strategy, device, ["out"])
        built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
        assert not isinstance(built, CompileFailure), f"{strategy.name}: {built}"
        assert ("FFMA" in await disassemble(built.artifact)) is fuses, strategy.name
