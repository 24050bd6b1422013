"""How a mapped product's tiles are shared out among blocks, and how long each way takes.

A block's step takes products, what the last-level cache gives and the ring, whose copies come so
many cycles after they were asked for: mostly as long as the slowest of them. The ring is what few
tiles of a long depth wait for: parts of the depth and more stages bring more bytes under way at
once. Results of a tile take time of their own, unless another group multiplies meanwhile.

Figures were fitted to 1,156 candidates on an H200 (benchmarks/results/h200/gemm_cuda_l2.jsonl.gz):
8 % off in the mean, and the way put first took 1.04 times the fastest's time. Those of ways that
were not among these are said to be estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from kernelwright.tools.codegen.cuda.contractions.mapped.factors import mapped
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import LINE_BYTES, MapScheme
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case
from kernelwright.tools.codegen.ir.contraction import Contraction

# What aligns the first stage and holds the barriers, and a warp's box of results.
ALIGNMENT, BOX_BYTES = 1024 + 512, 16 * LINE_BYTES
MOST_STAGES, BOXES = 16, 2
CLUSTERS, SPLITS, MOST_BLOCKS = (1, 2), (1, 2, 3, 4, 5, 6, 8), 8
# Multiply-adds of a multiprocessor in a cycle, and the share of them that products reach: with two
# groups, and with one, which has nobody beside it while it adds or stores.
_MULTIPLIED, _SHARE, _ALONE = 2048, 0.96, 0.79
# Bytes that a multiprocessor gets of the last-level cache in a cycle, and how sharply the slowest
# of a step's three hides the others: the power of their sum.
_CACHE, _SHARPNESS = 73.0, 2.5
# Cycles before a block's first product beyond those of any kernel, from asking for a stage until it
# is there, and those of storing one result: from registers (a tile has many), and through boxes
# (an estimate).
_BEFORE, _LATENCY, _STORED, _BOXED = 1500.0, 1700.0, 0.044, 0.02
# GB/s at which what a product moves adds to all that, and the share of what it writes that does so
# where boxes leave by themselves (an estimate).
_MOVED_GB_S, _LEFT_BEHIND = 7200.0, 0.3
# Those of joining the sums of a cluster: at all, and for a result (an estimate). Cycles that a
# result's dear statements take, some twelve instructions each (an estimate).
_JOINED, _JOINED_EACH, _DEAR = 3000.0, 0.16, 12 / 128
# Clusters of three, five or six have to be this much better before they come first: none was run.
_UNUSUAL = 1.06
# Steps that are worth a block of their own; neighbours whose blocks may form a cluster of more than
# two (32 clusters of four, or 16 of eight, did not run at once on 132); and the most results of a
# tile that leave a thread registers for much else beside its sums.
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

    def stages(self, room: int) -> int:
        """As many as fit."""
        room -= self.groups * 4 * self.boxes * BOX_BYTES
        return min(MOST_STAGES, room // ((self.rows + self.columns) * LINE_BYTES))


def room_bytes(case: Case) -> int:
    """Shared memory of stages and boxes; the kernel has no other."""
    return (case.hardware.shared_kib_per_block or 48) * KIB - ALIGNMENT


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

    def key(way: Way) -> tuple[float, int]:
        is_usual = way.split & (way.split - 1) == 0
        ms = way_ms(case, contraction, way) * (1.0 if is_usual else _UNUSUAL)
        return ms, -way.rows * way.columns

    return sorted(_ways(case, contraction, scheme, alike, boxed), key=key)


def _ways(
    case: Case, contraction: Contraction, scheme: MapScheme, alike: bool, boxed: bool
) -> Iterator[Way]:
    clusters, parts = (CLUSTERS, splits(contraction)) if alike else ((1,), (1,))
    turns, boxes = (False, True) if alike else (False,), (BOXES, 0) if boxed else (0,)
    every = product(tiles(contraction, scheme), clusters, parts, turns, boxes)
    for (rows, columns), cluster, split, in_turns, kept in every:
        way = Way(rows, columns, cluster, split, in_turns, kept)
        if _is_possible(case, contraction, scheme, way):
            yield way


def _is_possible(case: Case, contraction: Contraction, scheme: MapScheme, way: Way) -> bool:
    if way.cluster * way.split > MOST_BLOCKS or (way.split > 1 and (way.turns or way.boxes)):
        return False
    if way.boxes and way.columns < 64:
        return False
    if way.split > 1 and lines(contraction) < _LEAST_STEPS * way.split:
        return False
    if way.cluster > 1 and (max(way.rows, way.columns) < 128 or _beside(contraction, way) % 2):
        return False
    if way.turns and not (way.rows <= 128 and way.rows * way.columns <= scheme.most_of_group):
        return False
    if way.turns and _waves(case, contraction, way) == 1:
        return False  # one of the groups would have nothing to do
    if way.cluster > 1 and way.columns == 192 and way.columns >= way.rows:
        right = mapped(contraction, "right")
        if right is None or not right.along_depth:
            return False
    stages = way.stages(room_bytes(case))
    joined = way.rows * way.columns * 4 if way.split > 1 else 0
    return stages >= 2 and joined <= stages * (way.rows + way.columns) * LINE_BYTES


def _beside(contraction: Contraction, way: Way) -> int:
    """Tiles along the side along which clusters lie."""
    down, across = -(-contraction.m // way.rows), -(-contraction.n // way.columns)
    return down if way.columns >= way.rows else across


def way_ms(case: Case, contraction: Contraction, way: Way) -> float:
    """Waves of tiles, of which each has its steps and its results, and what is moved."""
    waves = _waves(case, contraction, way)
    steps = -(-lines(contraction) // way.split)
    of_steps = steps * _step(way, min(way.stages(room_bytes(case)), steps), waves)
    of_result = (_BOXED if way.boxes else _STORED) + dear(contraction) * _DEAR
    results = way.rows * way.columns * of_result
    if way.turns and waves > 1:
        cycles = waves * max(of_steps, (of_steps + results) / 2) + results
    else:
        cycles = waves * (of_steps + results)
    if way.split > 1:
        cycles += _JOINED + way.rows * way.columns * _JOINED_EACH
    hertz = (case.hardware.tensor_tflops or 1.0) * 1e12 / case.multiprocessors / (2 * _MULTIPLIED)
    moved = _moved_bytes(contraction, _LEFT_BEHIND if way.boxes and waves > 1 else 1.0)
    return (cycles + _BEFORE + _LATENCY) / hertz * 1e3 + moved / (_MOVED_GB_S * 1e6)


def _moved_bytes(contraction: Contraction, written: float) -> float:
    """What is read, and a share of what is written."""
    shape = shape_of(contraction)
    read = shape.k * (shape.m + shape.n) * contraction.precision.itemsize_bytes
    stored = sum(store.access.dtype.itemsize_bytes for store in contraction.stores)
    return shape.batches * (read + written * shape.m * shape.n * stored)


def _waves(case: Case, contraction: Contraction, way: Way) -> int:
    """How many tiles a block takes."""
    down, across = -(-contraction.m // way.rows), -(-contraction.n // way.columns)
    clusters = -(-contraction.batches * down * across // way.cluster)
    size = way.cluster * way.split
    places = case.multiprocessors // size
    if size > 2:
        whole = max(1, case.multiprocessors // _NEIGHBOURS - 1)
        places = max(1, min(places, whole * (_NEIGHBOURS // size)))
    return -(-clusters // places)


def _step(way: Way, stages: int, waves: int) -> float:
    """Cycles of a step: products, the cache and the ring."""
    is_beside = waves > 1 if way.turns else way.rows > 64
    # A line takes as long whatever it holds: the rate doubles where elements are half as wide.
    multiplied = way.rows * way.columns * LINE_BYTES / 2 / _MULTIPLIED
    multiplied /= _SHARE if is_beside else _ALONE
    sides = min(way.rows, way.columns), max(way.rows, way.columns) / way.cluster
    three = multiplied, LINE_BYTES * sum(sides) / _CACHE, _LATENCY / stages
    return float(sum(one**_SHARPNESS for one in three) ** (1 / _SHARPNESS))


# Statements that are one instruction or none.
_CHEAP = frozenset(
    {"add", "cast", "const", "fma", "load", "maximum", "minimum", "mul", "neg", "relu", "sub"}
)


def dear(contraction: Contraction) -> int:
    """Statements of an epilogue that take many instructions."""
    return sum(stmt.op not in _CHEAP for stmt in contraction.epilogue)
