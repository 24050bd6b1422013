"""How a mapped product's tiles are shared out among blocks, and how long each way takes.

A block's step waits for whichever is slowest: products, what the last-level cache gives, or the
ring, whose copies come so many cycles after they were asked for. The last is what few tiles of a
long depth wait for: parts of the depth and more stages bring more bytes under way at once. Results
of a tile take time of their own, unless another group multiplies meanwhile.

Figures were fitted to 1,156 candidates on an H200 (benchmarks/results/h200/gemm_cuda_l2.jsonl.gz:
11 % off in the middle); those of ways that were not among them, which is said there, are estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from kernelwright.tools.codegen.cuda.contractions.mapped.factors import mapped
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import LINE_BYTES, MapScheme
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir.contraction import Contraction

# What aligns the first stage and holds the barriers, and a warp's box of results.
ALIGNMENT, BOX_BYTES = 1024 + 512, 16 * LINE_BYTES
MOST_STAGES, BOXES = 16, 2
CLUSTERS, SPLITS, MOST_BLOCKS = (1, 2), (1, 2, 3, 4, 6, 8), 8
# Multiply-adds of a multiprocessor in a cycle, and the share of them that products reach: with two
# groups, and with one, which has nobody beside it while it adds or stores.
_MULTIPLIED, _SHARE, _ALONE = 2048, 0.80, 0.50
# Bytes that a multiprocessor gets of the last-level cache in a cycle: alone, and all together.
_CACHE_ALONE, _CACHE_TOGETHER = 64.0, 36.0
# Cycles before a block's first product, from asking for a stage until it is there, and those of
# storing one result: from registers (a tile has many), and through boxes (an estimate).
_BEFORE, _LATENCY, _STORED, _BOXED = 2300.0, 2200.0, 0.105, 0.035
# Those of joining the sums of a cluster: at all, and for a result (an estimate). Cycles that a
# result's dear statements take, and instructions of one (estimates).
_JOINED, _JOINED_EACH, _INSTRUCTIONS = 3000.0, 0.16, 12 / 128
# Steps that are worth a block of their own, multiprocessors whose blocks may form a cluster, and
# the most results of a tile that leave a thread registers for much else beside its sums.
_LEAST_STEPS, _NEIGHBOURS, MOST_SPANNED = 4, 16, 256 * 192


@dataclass(frozen=True)
class Way:
    """How tiles are shared out.

    Args:
        rows: Of a tile.
        columns: Of a tile.
        cluster: Blocks that share a larger factor.
        split: Blocks that share a tile's depth.
        turns: Whether each of two groups has tiles of its own.
        boxes: Boxes of shared memory a warp, through which results leave; 0 for none.
    """

    rows: int
    columns: int
    cluster: int = 1
    split: int = 1
    turns: bool = False
    boxes: int = 0

    @property
    def tile(self) -> int:
        """As the tunable says it."""
        return 1000 * self.rows + self.columns

    @property
    def groups(self) -> int:
        """Warpgroups that multiply."""
        return 2 if self.rows > 64 or self.turns else 1

    def stages(self, shared_bytes: int) -> int:
        """As many as fit."""
        room = shared_bytes - ALIGNMENT - self.groups * 4 * self.boxes * BOX_BYTES
        return min(MOST_STAGES, room // ((self.rows + self.columns) * LINE_BYTES))


def lines(contraction: Contraction) -> int:
    """Steps of the whole depth."""
    return -(-contraction.k * contraction.precision.itemsize_bytes // LINE_BYTES)


def tiles(contraction: Contraction, scheme: MapScheme) -> list[tuple[int, int]]:
    """Rows and columns of those that factors as they lie have room for."""
    left, right = (mapped(contraction, which) for which in ("left", "right"))
    left_along, right_along = (one is not None and one.along_depth for one in (left, right))
    # Half a panel of 64 columns is no box, and panels of a left factor take registers of their own.
    return [
        (rows, columns)
        for rows, columns in scheme.tiles
        if (columns >= 64 or right_along) and (rows * columns <= MOST_SPANNED or left_along)
    ]


def splits(contraction: Contraction) -> tuple[int, ...]:
    """Parts of a depth that have two steps each."""
    return tuple(n for n in SPLITS if n == 1 or lines(contraction) >= 2 * n)


def ordered_ways(
    case: Case, contraction: Contraction, scheme: MapScheme, *, alike: bool, boxed: bool
) -> list[Way]:
    """Every way, the one predicted fastest first.

    Args:
        case: The product on its device.
        contraction: The product.
        scheme: How it is summed.
        alike: Whether all tiles go through the same steps, which whatever is shared requires.
        boxed: Whether a map takes the results.
    """
    found = _ways(case, contraction, scheme, alike, boxed)
    return sorted(found, key=lambda way: (way_ms(case, contraction, way), -way.rows * way.columns))


def _ways(
    case: Case, contraction: Contraction, scheme: MapScheme, alike: bool, boxed: bool
) -> Iterator[Way]:
    shared = (CLUSTERS, splits(contraction), (False, True)) if alike else ((1,), (1,), (False,))
    for (rows, columns), *how in product(tiles(contraction, scheme), *shared):
        for boxes in (BOXES, 0) if boxed and columns >= 64 else (0,):
            way = Way(rows, columns, *how, boxes=boxes)
            if _is_possible(case, contraction, scheme, way):
                yield way


def _is_possible(case: Case, contraction: Contraction, scheme: MapScheme, way: Way) -> bool:
    if way.cluster * way.split > MOST_BLOCKS or (way.split > 1 and (way.turns or way.boxes)):
        return False
    if way.split > 1 and lines(contraction) < _LEAST_STEPS * way.split:
        return False
    if way.cluster > 1 and (max(way.rows, way.columns) < 128 or _beside(contraction, way) % 2):
        return False
    if way.turns and not (way.rows <= 128 and way.rows * way.columns <= scheme.most_of_group):
        return False
    if way.cluster > 1 and way.columns == 192 and way.columns >= way.rows:
        right = mapped(contraction, "right")
        if right is None or not right.along_depth:
            return False
    stages = way.stages(case.shared_bytes)
    joined = way.rows * way.columns * 4 if way.split > 1 else 0
    return stages >= 2 and joined <= stages * (way.rows + way.columns) * LINE_BYTES


def _beside(contraction: Contraction, way: Way) -> int:
    """Tiles along the side along which clusters lie."""
    down, across = -(-contraction.m // way.rows), -(-contraction.n // way.columns)
    return down if way.columns >= way.rows else across


def way_ms(case: Case, contraction: Contraction, way: Way) -> float:
    """Waves of tiles, of which each has its steps and its results."""
    waves, active = _waves(case, contraction, way)
    steps = -(-lines(contraction) // way.split)
    of_steps = steps * _step(case, way, active, min(way.stages(case.shared_bytes), steps), waves)
    results = way.rows * way.columns * _of_result(contraction, way)
    if way.turns and waves > 1:
        cycles = waves * max(of_steps, (of_steps + results) / 2) + results
    else:
        cycles = waves * (of_steps + results)
    if way.split > 1:
        cycles += _JOINED + way.rows * way.columns * _JOINED_EACH
    hertz = (case.hardware.tensor_tflops or 1.0) * 1e12 / case.multiprocessors / (2 * _MULTIPLIED)
    return (cycles + _BEFORE + _LATENCY) / hertz * 1e3


def _waves(case: Case, contraction: Contraction, way: Way) -> tuple[int, int]:
    """How many tiles a block takes, and blocks that run at the same time."""
    down, across = -(-contraction.m // way.rows), -(-contraction.n // way.columns)
    clusters = -(-contraction.batches * down * across // way.cluster)
    size = way.cluster * way.split
    places = case.multiprocessors // size
    if size > 2:
        # Blocks of a cluster are neighbours, of which some are left over.
        places = max(1, case.multiprocessors // _NEIGHBOURS * (_NEIGHBOURS // size))
    return -(-clusters // places), min(clusters * size, case.multiprocessors)


def _step(case: Case, way: Way, active: int, stages: int, waves: int) -> float:
    """Cycles of a step: products, the cache or the ring."""
    is_beside = way.rows > 64 if not way.turns else waves > 1
    # A line takes as long whatever it holds: the rate doubles where elements are half as wide.
    multiplied = way.rows * way.columns * LINE_BYTES / 2 / _MULTIPLIED
    multiplied /= _SHARE if is_beside else _ALONE
    rate = min(_CACHE_ALONE, _CACHE_TOGETHER * case.multiprocessors / active)
    sides = min(way.rows, way.columns), max(way.rows, way.columns) / way.cluster
    return max(multiplied, LINE_BYTES * sum(sides) / rate, _LATENCY / stages)


def _of_result(contraction: Contraction, way: Way) -> float:
    """Cycles from a result's sum until it has left."""
    return (_BOXED if way.boxes else _STORED) + dear(contraction) * _INSTRUCTIONS


# Statements that are one instruction or none.
_CHEAP = frozenset(
    {"add", "cast", "const", "fma", "load", "maximum", "minimum", "mul", "neg", "relu", "sub"}
)


def dear(contraction: Contraction) -> int:
    """Statements of an epilogue that take many instructions."""
    return sum(stmt.op not in _CHEAP for stmt in contraction.epilogue)
