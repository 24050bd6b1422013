"""Products of 16-bit and 8-bit factors on Hopper that tensor maps bring to shared memory.

As `wgmma`'s kernel for halves, but one thread asks the copy engine for whole boxes of both factors,
which leaves the others nothing but to multiply. Tiles that are neighbours can form a cluster, whose
blocks bring the larger factor once for all of them, or share the depth of one tile where there are
few. Results go from registers to memory.

A map takes a factor as it lies: along the depth or along its side, up to three axes of batches, 16
bytes between any two rows. Edges of tiles come out as zeros. Not here: factors that are computed
on the way or lie in odd strides (`mma_tiles`), several axes a side, and depths
that more blocks share than a cluster has.

Where sums may be kept in fp16 there is a second way, of a name of its own: two of them share a
register, so tiles are larger. Its sums are rounded after every sixteen positions and overflow as
fp16 does, and it is proposed to nobody who did not ask for that. Factors of eight bits lie along
the depth, and as their products are cut off early, sums begin from zero every few steps and go to
totals of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.epilogue import (
    ElementPrinter,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.family import FEWEST, ContractionFamily
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import HALVES, INCLUDE
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of, tiles_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Axis, Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import loop_bytes, roofline_ms
from kernelwright.tools.types import DType

WGMMA_MAPS, WGMMA_MAPS_FP16, WGMMA_MAPS_FP8 = "wgmma_maps", "wgmma_maps_fp16", "wgmma_maps_fp8"
_ARCHITECTURE = "sm_90a"
# Bytes of a row of a stage and of what copies move; results stored at once, and axes of batches
# beside a side and the depth.
_LINE, _PIECE_BYTES, _TOGETHER, _MOST_BATCH_AXES = 128, 16, 8, 3
# What aligns the first stage, barriers among it.
_ALIGNMENT = 1024 + 512
_MOST_STAGES, _STAGES_OF_LARGE = 8, 4
# Multiply-adds of a multiprocessor in a cycle, and the share of them that products reach: with two
# groups, and with one, which has nobody beside it while it adds or stores.
_MULTIPLIED, _SHARE, _ALONE = 2048, 0.85, 0.7
# Bytes that a multiprocessor gets of the last-level cache in a cycle: alone, and all together.
_CACHE_ALONE, _CACHE_TOGETHER = 64.0, 40.0
# Cycles before a block's first product, those of storing one result (a tile has many), and those of
# joining the sums of a cluster; steps that are worth a block of their own.
_BEFORE, _STORED, _JOINED = 1500.0, 1 / 16, 2500.0
_LEAST_STEPS = 8
# Results of a tile whose depth is shared: they lie in shared memory beside the stages.
_MOST_JOINED = 64 * 128
# Results of a tile that leave a thread registers for much else beside its sums: for 128 floats.
_MOST_SPANNED = 256 * 192
# Statements of an epilogue that are few enough to stand once for every register, and all of them
# but one cheap: choosing among registers costs more than the length.
_FEW, _CHEAP = 16, frozenset(
    {"add", "cast", "const", "fma", "load", "maximum", "minimum", "mul", "neg", "relu", "sub"}
)  # fmt: skip


@dataclass(frozen=True)
class MapScheme:
    """What is multiplied and how it is summed.

    `factors` are the types of factors, `register` is the C++ type of a register of sums, and
    `tiles` are rows x columns that then fit, one warpgroup for 64 rows and two for more. One that
    `promotes` has registers for sums and for totals.
    """

    title: str
    factors: tuple[DType, ...]
    sums: DType
    register: str
    tiles: tuple[tuple[int, int], ...]
    kept: str
    promotes: bool = False

    @property
    def step(self) -> int:
        """Positions of the depth in a line."""
        return _LINE // self.factors[0].itemsize_bytes


_TILES = (
    (128, 256), (256, 128), (128, 192), (128, 128), (128, 64), (64, 256), (64, 128), (64, 64),
)  # fmt: skip
_SCHEMES = {
    WGMMA_MAPS: MapScheme(
        title="Tiles of 16-bit factors by products of warpgroups, brought by tensor maps",
        factors=HALVES,
        sums=DType.FLOAT32,
        register="float",
        tiles=(*_TILES, (64, 32)),
        kept="sums in registers",
    ),
    WGMMA_MAPS_FP16: MapScheme(
        title="Tiles of fp16 factors summed in fp16 by products of warpgroups, brought by tensor "
        "maps",
        factors=(DType.FLOAT16,),
        sums=DType.FLOAT16,
        register="unsigned int",
        tiles=((256, 256), (256, 192), *_TILES),
        kept="sums in registers, which are kept in fp16 and not in float32,",
    ),
    WGMMA_MAPS_FP8: MapScheme(
        title="Tiles of 8-bit factors by products of warpgroups, brought by tensor maps",
        factors=(DType.FLOAT8_E4M3FN,),
        sums=DType.FLOAT32,
        register="float",
        tiles=((128, 128), (128, 192), (256, 64), (64, 192), (128, 64), (64, 128), (64, 64)),
        kept="totals in registers, to which sums are added every few steps,",
        promotes=True,
    ),
}
# Results of a tile whose steps can be counted, and steps of eight-bit factors between two
# promotions, of 128 positions each.
_MOST_COUNTED, _PROMOTED = 128 * 192, (1, 2, 4)


def _schemes(contraction: Contraction) -> dict[str, MapScheme]:
    """Those by name that keep sums in no less than they may be kept in."""
    allowed = (DType.FLOAT32, contraction.sums)
    return {
        name: scheme
        for name, scheme in _SCHEMES.items()
        if contraction.precision in scheme.factors and scheme.sums in allowed
    }


@dataclass(frozen=True)
class MappedFactor:
    """A factor as the skeleton fetches it: its map's parameter, and its places along batches."""

    map: str
    along_depth: bool
    places: str


def _mapped(contraction: Contraction, which: str) -> MappedFactor | None:
    """The "left" or "right" factor; None where no map describes it."""
    operand, side, axes = _sides(contraction, which)
    access = operand.access
    piece = _PIECE_BYTES // contraction.precision.itemsize_bytes
    if access is None or access.dtype is not contraction.precision or access.offset % piece:
        return None
    if len(side) != 1 or len(contraction.depth) != 1 or len(contraction.batch) > _MOST_BATCH_AXES:
        return None
    if {stride.by for stride in access.strides if stride.step} - {axis.name for axis in axes}:
        return None
    depth_step, side_step = (access.step(axes[at].name) for at in (-1, -2))
    along_depth = depth_step == 1
    others = [access.step(axis.name) for axis in axes[:-2]]
    others.append(side_step if along_depth else depth_step)
    if (not along_depth and side_step != 1) or any(step <= 0 or step % piece for step in others):
        return None
    if not along_depth and contraction.precision not in HALVES:
        return None
    places = "".join(f", batch_{at}" for at in reversed(range(len(contraction.batch))))
    return MappedFactor(f"{which}_map", along_depth, places)


def _sides(
    contraction: Contraction, which: str
) -> tuple[Operand, tuple[Axis, ...], tuple[Axis, ...]]:
    """The operand, the axes of its side, and all its axes from batches to the depth."""
    is_left = which == "left"
    operand = contraction.left if is_left else contraction.right
    side = contraction.rows if is_left else contraction.columns
    return operand, side, (*contraction.batch, *side, *contraction.depth)


def _argument(contraction: Contraction, which: str, factor: MappedFactor, rows: str) -> Argument:
    """The map as a parameter; `rows` is how many of them one box has, as a plan's expression."""
    operand, _, axes = _sides(contraction, which)
    assert operand.access is not None
    if not factor.along_depth:
        axes = (*axes[:-2], axes[-1], axes[-2])
    shape = ", ".join(str(axis.size) for axis in axes)
    strides = ", ".join(str(operand.access.step(axis.name)) for axis in axes)
    step = _LINE // contraction.precision.itemsize_bytes
    inner = f"{rows}, {step}" if factor.along_depth else f"{step}, 64"
    box = "1, " * len(contraction.batch) + inner
    passed = f"tensor_map({operand.access.buffer}, shape=({shape}), strides=({strides}), "
    passed += f"offset={operand.access.offset}, box=({box}))"
    declaration = f"const __grid_constant__ kw::TensorMap {factor.map}"
    return Argument(factor.map, declaration, passed)


def _each_factor(contraction: Contraction) -> tuple[MappedFactor | None, MappedFactor | None]:
    return _mapped(contraction, "left"), _mapped(contraction, "right")


def _factors(contraction: Contraction) -> tuple[MappedFactor, MappedFactor] | None:
    left, right = _each_factor(contraction)
    return None if left is None or right is None else (left, right)


def _takes(case: Case, contraction: Contraction) -> Fit:
    if case.hardware.architecture != _ARCHITECTURE or not _schemes(contraction):
        return Fit.NO
    if min(contraction.m, contraction.n) < FEWEST or _factors(contraction) is None:
        return Fit.NO
    return Fit.BEST


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=name,
            title=scheme.title,
            mechanism="Persistent blocks: one thread has the copy engine bring boxes of both "
            "factors into a ring of swizzled stages by tensor maps, neighbours in a cluster share "
            "the larger one, and warpgroups multiply straight from shared memory by wgmma; the "
            f"epilogue runs on the {scheme.kept} before they are stored once.",
            reason="Hopper's tensor cores reach their full rate when nothing but products is left "
            "for the warps that ask for them.",
            category="arithmetic",
            metric="tensor core utilisation",
            memory="ring of copies by tensor maps",
            compute="tensor cores by warpgroups",
            parallel="persistent tiles in clusters",
            efficiency=0.9,
        )
        for name, scheme in _schemes(contraction).items()
    ]


def _tile_ms(case: Case, contraction: Contraction, tile: tuple[int, int]) -> float:
    """Waves of tiles at the rate of products, or at that of the last-level cache."""
    rows, columns = tile
    tiles = tiles_of(shape_of(contraction), rows, columns)
    split = _split(case, contraction, tile)
    waves = -(-tiles // case.multiprocessors)
    active = min(tiles * split, case.multiprocessors)
    rate = min(_CACHE_ALONE, _CACHE_TOGETHER * case.multiprocessors / active)
    shared = 2 if _clusters(case, contraction, tile) > 1 else 1
    read = _LINE * (min(tile) + max(tile) / shared)
    # A line takes as long whatever it holds: the rate doubles where elements are half as wide.
    multiplied = rows * columns * _LINE / 2 / (_MULTIPLIED * (_SHARE if rows > 64 else _ALONE))
    steps = -(-_lines(contraction) // split)
    cycles = waves * (steps * max(multiplied, read / rate) + rows * columns * _STORED) + _BEFORE
    cycles += _JOINED if split > 1 else 0.0
    hertz = (case.hardware.tensor_tflops or 1.0) * 1e12 / case.multiprocessors / (2 * _MULTIPLIED)
    return cycles / hertz * 1e3


def _clusters(case: Case, contraction: Contraction, tile: tuple[int, int]) -> int:
    """Blocks of a cluster that are tried first: two where there are tiles for all processors."""
    down, across = -(-contraction.m // tile[0]), -(-contraction.n // tile[1])
    beside = down if tile[1] >= tile[0] else across
    enough = contraction.batches * down * across * 4 >= case.multiprocessors * 3
    return 2 if enough and beside % 2 == 0 and max(tile) >= 128 else 1


def _lines(contraction: Contraction) -> int:
    """Steps of the whole depth."""
    return -(-contraction.k * contraction.precision.itemsize_bytes // _LINE)


def _split(case: Case, contraction: Contraction, tile: tuple[int, int]) -> int:
    """Blocks that share a tile's depth: as many as there are processors for, eight at most."""
    tiles = tiles_of(shape_of(contraction), *tile)
    steps = _lines(contraction)
    fits = [
        n
        for n in (8, 4, 2)
        if tiles * n <= case.multiprocessors
        and steps >= n * _LEAST_STEPS
        and tile[0] * tile[1] <= _MOST_JOINED
    ]
    return max(fits, default=1)


def _ordered(case: Case, contraction: Contraction, scheme: MapScheme) -> list[tuple[int, int]]:
    left, right = (one is not None and one.along_depth for one in _each_factor(contraction))
    # Half a panel of 64 columns is no box, and panels of a left factor take registers of their own.
    tiles = [
        (rows, columns)
        for rows, columns in scheme.tiles
        if (columns >= 64 or right) and (rows * columns <= _MOST_SPANNED or left)
    ]
    return sorted(tiles, key=lambda tile: _tile_ms(case, contraction, tile))


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best = _ordered(case, contraction, _SCHEMES[strategy.name])[0]
    flops = shape_of(contraction).flops
    rate = flops / (_tile_ms(case, contraction, best) * 1e9)
    return roofline_ms(sum(loop_bytes(case.loop)), flops, strategy, case.hardware, tflops=rate)


_ROWS, _COLUMNS = "{TILE} // 1000", "{TILE} % 1000"
_STAGES = f"{{STAGES}} * (({_ROWS} + {_COLUMNS}) * {_LINE}) + {_ALIGNMENT}"
_JOINT = f" + min({{SPLIT}} - 1, 1) * ({_ROWS}) * ({_COLUMNS}) * 4"


def _tunables(
    case: Case,
    contraction: Contraction,
    scheme: MapScheme,
    prefix: str,
    factors: Sequence[MappedFactor],
    alike: bool,
) -> Tunables:
    ordered = _ordered(case, contraction, scheme)
    best, room = ordered[0], case.shared_bytes - _ALIGNMENT
    most = _STAGES_OF_LARGE if best[0] > 64 else _MOST_STAGES
    steps = max(2, _lines(contraction))
    split = _split(case, contraction, best) if alike else 1
    room -= best[0] * best[1] * 4 if split > 1 else 0
    stages = min(most, steps, room // (sum(best) * _LINE))
    tunables = Tunables(prefix)
    tunables.add("TILE", [1000 * rows + columns for rows, columns in ordered])
    tunables.add("STAGES", (stages, 4, 3, 5, 6, 8, 2))
    if alike:
        clusters = _clusters(case, contraction, best)
        tunables.add("CLUSTER", (clusters, 3 - clusters)).add("LATE", (0, 1, 2))
        tunables.add("SPLIT", (split, *_splits(contraction)))
        tunables.require("{CLUSTER} == 1 or {SPLIT} == 1")
        tunables.require(f"{{SPLIT}} == 1 or ({_ROWS}) * ({_COLUMNS}) <= {_MOST_JOINED}")
        tunables.require("{LATE} < {STAGES} - 1")
        tunables.require(f"{{CLUSTER}} == 1 or max({_ROWS}, {_COLUMNS}) >= 128")
        if not factors[1].along_depth:
            tunables.require(f"{{CLUSTER}} == 1 or {_COLUMNS} != 192")
    if scheme.promotes:
        tunables.add("PROMOTED", _PROMOTED)
        # The largest tiles have no registers for counting steps as well.
        tunables.require(f"{{PROMOTED}} == 1 or ({_ROWS}) * ({_COLUMNS}) < {_MOST_COUNTED}")
    spans = (256, 64, 32) if _is_light(contraction) else (64, 32, 256)
    tunables.add("SPAN", spans).add("GROUP", (8, 16, 4, 1))
    tunables.require(f"({_COLUMNS}) % min({{SPAN}}, {_COLUMNS}) == 0")
    tunables.require(f"{{SPAN}} <= 64 or ({_ROWS}) * ({_COLUMNS}) <= {_MOST_SPANNED}")
    return tunables.require(f"{_shared(alike)} <= {case.shared_bytes}")


def _splits(contraction: Contraction) -> tuple[int, ...]:
    steps = _lines(contraction)
    return tuple(n for n in (1, 2, 4, 8) if n == 1 or steps >= 2 * n)


def _shared(alike: bool) -> str:
    return _STAGES + (_JOINT if alike else "")


def _is_light(contraction: Contraction) -> bool:
    epilogue = contraction.epilogue
    dear = sum(stmt.op not in _CHEAP for stmt in epilogue)
    return len(epilogue) <= _FEW and dear <= 1


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    factors = _factors(contraction)
    if factors is None:
        raise ValueError(f"{case.loop.name}: {name} needs factors that tensor maps describe")
    printer = ElementPrinter(case.loop, contraction)
    needed = printer.tile_is_needed(("first_row", "BM"), ("first_column", "BN"))
    # Blocks of a cluster go through the same steps, whether they need them or not.
    alike = needed == "true"
    scheme = _SCHEMES[name]
    tunables = _tunables(case, contraction, scheme, prefix, factors, alike)
    width = min(_TOGETHER, printer.width_of_epilogue())
    source = render(
        "map_tiles",
        title=scheme.title,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        type=c_type(contraction.precision),
        depth=scheme.step,
        promotes=scheme.promotes,
        sum=scheme.register,
        shape=shape_of(contraction),
        needed=needed,
        clusters=alike,
        left=factors[0],
        right=factors[1],
        batch_lines=decoded("batch_", "batch", [axis.size for axis in contraction.batch], "int"),
        epilogue=printer.epilogue("sum[k]" if width > 1 else "sum[0]", width=width),
    )
    arguments = [*_arguments(contraction, tunables, factors, alike)]
    arguments += contraction_arguments(contraction)
    text, plan = complete(source, arguments, [_launch(case, contraction, tunables, prefix, alike)])
    return Emitted(source=INCLUDE + text, plan=plan)


def _arguments(
    contraction: Contraction, tunables: Tunables, factors: Sequence[MappedFactor], alike: bool
) -> list[Argument]:
    """The maps; a box of the larger factor is what one block of a cluster brings of it."""
    parts = "{CLUSTER}" if alike else "1"
    left = f"{_ROWS} // ({parts} if {_ROWS} > {_COLUMNS} else 1)"
    right = f"{_COLUMNS} // ({parts} if {_COLUMNS} >= {_ROWS} else 1)"
    pairs = zip(("left", "right"), factors, (left, right), strict=True)
    return [
        _argument(contraction, which, factor, tunables.named(rows)) for which, factor, rows in pairs
    ]


def _launch(
    case: Case, contraction: Contraction, tunables: Tunables, prefix: str, alike: bool
) -> Launch:
    """A persistent block a multiprocessor, in whole clusters; a warp or warpgroup of it copies."""
    down = f"ceil_div({contraction.m}, {_ROWS})"
    across = f"ceil_div({contraction.n}, {_COLUMNS})"
    blocks = f"{contraction.batches} * {down} * {across}"
    grid = f"min({case.multiprocessors}, {blocks})"
    if alike:
        below = f"ceil_div({down}, {{CLUSTER}} if {_COLUMNS} >= {_ROWS} else 1)"
        beside = f"ceil_div({across}, {{CLUSTER}} if {_ROWS} > {_COLUMNS} else 1)"
        clusters = f"{contraction.batches} * {below} * {beside}"
        size = "{CLUSTER} * {SPLIT}"
        grid = f"{size} * min({case.multiprocessors} // ({size}), {clusters})"
    return Launch(
        kernel=f"{prefix}_maps",
        grid=tunables.named(grid),
        block=tunables.named(f"384 if {_ROWS} > 64 else 160"),
        shared=tunables.named(_shared(alike)),
        cluster=tunables.named("{CLUSTER} * {SPLIT}") if alike else "",
    )


MAP_FAMILY = ContractionFamily(tuple(_SCHEMES), _takes, _propose, _predicted_ms, _emit, eights=True)
