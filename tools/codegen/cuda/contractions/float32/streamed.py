"""Float32 products by parts of which one factor is split on its way into registers (sm_90a).

`split` packs both factors in passes of their own, which read each of them twice and write it once.
Where one factor is large and few results come of it, as with few rows or columns or a long depth,
these passes take longer than the product. Here only the smaller factor is packed. The larger one
is copied as it lies, by bulk copies of runs, and warpgroups scale and split what they read, 64
positions of the depth at a time, before they multiply it from registers.

Pieces of 64 positions have powers of two of their own, so a row's small and large pieces are both
exact, and no pass has to look for the row's largest number first.

Where the module rounds factors to TF32 (convolutions with windows of one position) one product of
upper parts is as exact, and two thirds of the products and the lower parts are left out.

Not here: factors that are computed on the way in, or lie so that runs are not of 16 bytes (`wgmma`
takes them); any other device than sm_90a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.family import (
    FEWEST,
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.fitted_costs import (
    ROUGH_FILLED_MS,
    block_ms,
)
from kernelwright.tools.codegen.cuda.contractions.float32.split import (
    LONGEST,
    Packed,
    leaving,
    narrow_factor,
    packed_factor,
    packing_arguments,
    stores_in_cache,
    takes,
    with_packing,
)
from kernelwright.tools.codegen.cuda.contractions.statistics.blocks import (
    counted_blocks,
    counting_ms,
    lacks_statistics,
)
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.types import DType

STREAMED, STREAMED_SPLITS = "streamed_wgmma", "streamed_wgmma_splits"
_ARCHITECTURE = "sm_90a"
# Positions of the depth in a step, and elements of 16 bytes, which bulk copies are made of.
_STEP, _RUN = 64, 4
# Down the streamed factor's side, 64 a warpgroup, and across the packed one's.
_TILES = ((128, 128), (128, 64), (64, 128), (64, 64))
_STRIP_BYTES, _ALIGNMENT, _MOST_STAGES = 640 * 4, 1024, 6
# Of the device's bandwidth what streams reach, and bytes of the last-level cache for one of memory.
_MEMORY, _CACHE_RATE = 0.9, 2.2
# The join of parts, alone and for each of them (measured as above).
_JOIN_MS, _JOIN_MS_A_PART = 0.004, 0.0004
# Steps of a part at least, and the fewest blocks for a multiprocessor that need no parts.
_LEAST_STEPS, _FULL = 8, 0.75
_TITLE = "Float32 as three products of 16-bit parts, the larger factor split on its way"


@dataclass(frozen=True)
class Streamed:
    """The factor that is copied as it lies.

    `decode` and `offset` say where in `buffer` an element of `batch`, `side` and `depth` is;
    positions of the depth lie `depth_step` elements apart. Runs that are copied go along the
    depth, or along the side.
    """

    name: str
    side: str
    extent: int
    along_depth: bool
    buffer: str
    decode: tuple[str, ...]
    offset: str
    depth_step: int


@dataclass(frozen=True)
class Factors:
    """Which factor is streamed, and how; the other one is packed."""

    streamed: Streamed
    packed: Packed

    @property
    def by_rows(self) -> bool:
        """Whether the streamed factor is the left one, whose rows go down a tile."""
        return self.streamed.side == "row"


def factors_of(case: Case, contraction: Contraction, printer: ElementPrinter) -> Factors | None:
    """The larger factor streamed if it can be, else the other one; None where neither can.

    Where one of them is prepared, whichever way takes less.
    """
    ways = _ways(case, contraction, printer)
    if any(one.packed.is_prepared for one in ways):
        return min(ways, key=lambda one: _whole_ms(case, contraction, one))
    return ways[0] if ways else None


def _ways(case: Case, contraction: Contraction, printer: ElementPrinter) -> list[Factors]:
    """Factors that can be streamed, the larger one first."""
    found = []
    sides = [(contraction.left, "row", contraction.m), (contraction.right, "column", contraction.n)]
    for operand, side, extent in sorted(sides, key=lambda one: -one[2]):
        along_depth = runs_along_depth(contraction, operand, side)
        if along_depth is None:
            continue
        other = contraction.right if side == "row" else contraction.left
        streamed = _streamed(printer, contraction, operand, side, extent, along_depth=along_depth)
        found.append(Factors(streamed, packed_factor(case, contraction, printer, other)))
    return found


def _whole_ms(case: Case, contraction: Contraction, found: Factors) -> float:
    best = _ordered(case, contraction, found, split=False)[0]
    return _product_ms(case, contraction, found, best) + _packing_ms(case, contraction, found)


def runs_along_depth(contraction: Contraction, operand: Operand, side: str) -> bool | None:
    """Whether runs of 16 bytes lie along a factor's depth; None where neither side has them."""
    access, (depth, *more) = operand.access, contraction.depth
    axes = contraction.rows if side == "row" else contraction.columns
    known = {axis.name for axis in (*contraction.batch, *axes, depth)}
    if access is None or access.dtype is not DType.FLOAT32 or more:
        return None
    if access.offset % _RUN or any(stride.by not in known for stride in access.strides):
        return None
    # Runs along the side go through several axes of it where the innermost holds whole ones.
    for axis, is_depth in ((depth, True), *((one, False) for one in axes[-1:])):
        others = [stride.step for stride in access.strides if stride.by != axis.name]
        runs = access.step(axis.name) == 1 and axis.size % _RUN == 0
        if runs and all(step % _RUN == 0 for step in others):
            return is_depth
    return None


def _streamed(
    printer: ElementPrinter,
    contraction: Contraction,
    operand: Operand,
    side: str,
    extent: int,
    *,
    along_depth: bool,
) -> Streamed:
    assert operand.access is not None
    own = contraction.rows if side == "row" else contraction.columns
    lines: list[str] = []
    for name, axes in (("batch", contraction.batch), (side, own), ("depth", contraction.depth)):
        lines += decoded(f"{name}_", name, tuple(axis.size for axis in axes), "int")
    return Streamed(
        name="left" if side == "row" else "right",
        side=side,
        extent=extent,
        along_depth=along_depth,
        buffer=f"g_{operand.access.buffer}",
        decode=tuple(lines),
        offset=printer.offset(operand.access),
        depth_step=operand.access.step(contraction.depth[0].name),
    )


def _takes(case: Case, contraction: Contraction) -> Fit:
    if case.hardware.architecture != _ARCHITECTURE or takes(case, contraction) is Fit.NO:
        return Fit.NO
    found = factors_of(case, contraction, ElementPrinter(case.loop, contraction))
    if found is None or found.packed.extent < FEWEST:
        return Fit.NO
    return Fit.NO if lacks_statistics(contraction, by_rows=found.by_rows) else Fit.BEST


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    found = _found(case, contraction, ElementPrinter(case.loop, contraction))
    is_prepared = found.packed.is_prepared
    whole = Strategy(
        name=STREAMED,
        title=_TITLE,
        mechanism="Only the smaller factor is scaled, split into two fp16 parts and packed. The "
        "larger one is copied as it lies; warpgroups split what they read of it into registers, "
        "with a power of two for every 64 positions, and multiply it by three products of wgmma."
        if not is_prepared
        else "The weight is scaled, split into two fp16 parts and packed once, and again when it "
        "changes. The other factor is copied as it lies; warpgroups split what they read of it "
        "into registers, with a power of two for every 64 positions, and multiply it by three "
        "products of wgmma.",
        reason="Passes over a large factor would read and write it three times more than the "
        "product needs, and its numbers are split while tensor cores multiply others.",
        category="memory",
        metric="memory throughput",
        memory="streams, bulk copies",
        compute="split products by warpgroups",
        parallel="persistent tiles",
        efficiency=0.85,
        launches=1 if is_prepared else 3,
        rounds_factors=contraction.is_tf32,
    )
    splits = splits_of(case, contraction)
    if splits == [1]:
        return [whole]
    parts = whole.model_copy(
        update={
            "name": STREAMED_SPLITS,
            "title": f"{_TITLE}; long sums in parts",
            "parallel": "split sums",
            "launches": whole.launches + 1,
        }
    )
    return [parts] if contraction.k > LONGEST else [parts, whole]


def splits_of(case: Case, contraction: Contraction) -> list[int]:
    """Numbers of parts of a sum that are worth a second kernel, the most promising first."""
    found = factors_of(case, contraction, ElementPrinter(case.loop, contraction))
    if found is None:
        return [1]
    whole = _filling(case, contraction, found, _ordered(case, contraction, found, split=True)[0])
    wanted = (whole, 2 * whole, whole // 2, 4 * whole)
    most = -(-contraction.k // _STEP) // _LEAST_STEPS
    least = max(2, -(-contraction.k // LONGEST))
    return [n for n in dict.fromkeys(wanted) if whole > 1 and least <= n <= most] or [1]


def _filling(case: Case, contraction: Contraction, found: Factors, tile: tuple[int, int]) -> int:
    """How many parts of a tile's sums give every multiprocessor work, none of them too long."""
    tiles = _count(contraction, found, tile)
    most = max(1, -(-contraction.k // _STEP) // _LEAST_STEPS)
    idle = 1 if tiles >= _FULL * case.multiprocessors else case.multiprocessors // tiles
    return max(min(idle, most), -(-contraction.k // LONGEST))


def _count(contraction: Contraction, found: Factors, tile: tuple[int, int]) -> int:
    down, across = tile
    grid = -(-found.streamed.extent // down) * -(-found.packed.extent // across)
    return contraction.batches * grid


def _product_ms(
    case: Case, contraction: Contraction, found: Factors, tile: tuple[int, int], splits: int = 1
) -> float:
    """The most of: waves of tiles, what they read of the last-level cache, and memory."""
    hardware, (down, across) = case.hardware, tile
    items = _count(contraction, found, tile) * splits * shape_of(contraction).needed
    steps = -(-contraction.k // _STEP) / splits
    waves = -(-items // case.multiprocessors)
    by_products = waves * block_ms(contraction, tile, steps)
    bandwidth = hardware.bandwidth_gb_s * 1e6
    by_cache = items * steps * _STEP * 4.0 * (down + across) / (bandwidth * _CACHE_RATE)
    # A block alone does not draw more than its share of memory's bandwidth.
    busy = min(1.0, items / case.multiprocessors)
    moved = sum(case.moved_bytes) + 8.0 * splits * _results(contraction) * (splits > 1)
    filled = ROUGH_FILLED_MS if contraction.is_tf32 else 0.0
    return max(by_products, by_cache, moved / (bandwidth * _MEMORY * busy)) + filled


def _results(contraction: Contraction) -> int:
    return contraction.batches * contraction.m * contraction.n


def _packing_ms(case: Case, contraction: Contraction, found: Factors) -> float:
    """The smaller factor read twice, its parts written; nothing where that is prepared."""
    if found.packed.is_prepared:
        return 0.0
    elements = contraction.batches * contraction.k * found.packed.extent
    return 12.0 * elements / (case.hardware.bandwidth_gb_s * _MEMORY * 1e6)


def _ordered(
    case: Case, contraction: Contraction, found: Factors, *, split: bool
) -> list[tuple[int, int]]:
    """Tiles by their time; with `split`, each in as many parts as fill the device."""

    def time(tile: tuple[int, int]) -> float:
        splits = _filling(case, contraction, found, tile) if split else 1
        return _product_ms(case, contraction, found, tile, splits)

    return sorted(_TILES, key=time)


def _found(case: Case, contraction: Contraction, printer: ElementPrinter) -> Factors:
    found = factors_of(case, contraction, printer)
    if found is None:
        raise ValueError(f"{case.loop.name}: no factor of it can be streamed")
    return found


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    found = _found(case, contraction, ElementPrinter(case.loop, contraction))
    split = strategy.name == STREAMED_SPLITS
    splits = splits_of(case, contraction)[0] if split else 1
    best = _ordered(case, contraction, found, split=split)[0]
    product = _product_ms(case, contraction, found, best, splits)
    launches = strategy.launches * case.hardware.launch_us / 1e3
    product += _JOIN_MS + _JOIN_MS_A_PART * splits if split else 0.0
    product += counting_ms(contraction, case.hardware, case.multiprocessors, by_rows=found.by_rows)
    return product + _packing_ms(case, contraction, found) + launches


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    printer = ElementPrinter(case.loop, contraction)
    found, split = _found(case, contraction, printer), name == STREAMED_SPLITS
    tunables = _tunables(case, contraction, found, prefix, split=split)
    cache = stores_in_cache(case, tunables)
    ways = leaving(printer, contraction, by_rows=found.by_rows, cache=cache)
    counted = counted_blocks(contraction, by_rows=found.by_rows)
    tunables.add("DIRECT", ways.first if counted is None else (0,))
    sides = ("first", "BM"), ("other", "BN")
    rows, columns = sides if found.by_rows else sides[::-1]
    source = render(
        "streamed",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        shape=shape_of(contraction),
        split=split,
        rough=contraction.is_tf32,
        splits=tunables.named("{SPLITS}") if split else "1",
        needed=printer.tile_is_needed(rows, columns),
        streamed=found.streamed,
        packed=found.packed,
        left=narrow_factor(printer, "left"),
        right=narrow_factor(printer, "right"),
        epilogue=ways.wide,
        direct=ways.direct,
        counted=counted and counted.values(case.loop, ways.wide.width),
    )
    across = tunables.named("{TILE} % 1000")
    arguments = [*contraction_arguments(contraction), *packing_arguments(prefix, found.packed)]
    arguments += _part_arguments(prefix) if split else []
    launches = _launches(case, contraction, found, tunables, prefix, split=split)
    lines = _part_allocations(contraction, found, tunables, prefix) if split else []
    factors = ((found.packed, across),)
    return with_packing(contraction, prefix, factors, source, arguments, launches, lines, counted)


def _tunables(
    case: Case, contraction: Contraction, found: Factors, prefix: str, *, split: bool
) -> Tunables:
    ordered = _ordered(case, contraction, found, split=split)
    stages = [n for n in range(2, _MOST_STAGES + 1) if _fits(case, found, ordered[0], n)][-1]
    tunables = Tunables(prefix)
    if split:
        tunables.add("SPLITS", splits_of(case, contraction))
    tunables.add("TILE", [1000 * down + across for down, across in ordered])
    tunables.add("STAGES", (stages, *(n for n in (2, 3, 4) if n != stages)))
    tunables.add("GROUP", (8, 16, 4, 1))
    return tunables.require(f"{_shared(found)} <= {_room(case)}")


def _room(case: Case) -> int:
    """Shared memory of a block, all of which the product has for its stages."""
    return 1024 * (case.hardware.shared_kib_per_block or 48)


def _fits(case: Case, found: Factors, tile: tuple[int, int], stages: int) -> bool:
    down, across = tile
    return _shared_bytes(found, down, across, stages) <= _room(case)


def _shared_bytes(found: Factors, down: int, across: int, stages: int) -> int:
    lines = down * (_STEP + 8) if found.streamed.along_depth else _STEP * (down + 4)
    stage = across * 4 * _STEP + -(-4 * lines // 1024) * 1024
    return stages * (stage + 16) + down // 16 * _STRIP_BYTES + _ALIGNMENT


def _shared(found: Factors) -> str:
    """The same as plan text."""
    down, across = "({TILE} // 1000)", "({TILE} % 1000)"
    along = found.streamed.along_depth
    lines = f"{down} * {4 * (_STEP + 8)}" if along else f"{4 * _STEP} * ({down} + 4)"
    stage = f"{across} * {4 * _STEP} + ({lines} + 1023) // 1024 * 1024"
    return f"{{STAGES}} * ({stage} + 16) + {down} // 16 * {_STRIP_BYTES} + {_ALIGNMENT}"


def _tiles_text(contraction: Contraction, found: Factors) -> str:
    down = f"ceil_div({found.streamed.extent}, {{TILE}} // 1000)"
    across = f"ceil_div({found.packed.extent}, {{TILE}} % 1000)"
    return f"{contraction.batches} * {down} * {across}"


def _launches(
    case: Case, contraction: Contraction, found: Factors, tunables: Tunables, prefix: str, *,
    split: bool,
) -> list[Launch]:  # fmt: skip
    tiles = _tiles_text(contraction, found)
    items = f"{tiles} * {{SPLITS}}" if split else tiles
    product = Launch(
        kernel=f"{prefix}_streamed",
        grid=tunables.named(f"min({case.multiprocessors}, {items})"),
        block=tunables.named("({TILE} // 64000 + 1) * 128"),
        shared=tunables.named(_shared(found)),
    )
    warps = "({TILE} // 16000) * ({TILE} % 1000 // 32)"
    join = Launch(f"{prefix}_join", tunables.named(f"{tiles} * {warps}"), "32")
    return [product, join] if split else [product]


def _part_arguments(prefix: str) -> list[Argument]:
    return [
        Argument(name, f"{kind}* {name}", f"{prefix}_{name}")
        for name, kind in (("parts", "float"), ("part_bases", "int"), ("part_bounds", "float"))
    ]


def _part_allocations(
    contraction: Contraction, found: Factors, tunables: Tunables, prefix: str
) -> list[str]:
    rows = tunables.named(f"{_tiles_text(contraction, found)} * {{SPLITS}} * ({{TILE}} // 1000)")
    across = tunables.named("({TILE} % 1000)")
    return [
        f'{prefix}_parts = empty(({rows} * {across},), dtype="float32")',
        f'{prefix}_part_bases = empty(({rows},), dtype="int32")',
        f'{prefix}_part_bounds = empty(({rows},), dtype="float32")',
    ]


STREAMED_FAMILY = ContractionFamily(
    (STREAMED, STREAMED_SPLITS), _takes, _propose, _predicted_ms, _emit, statistics=True
)
