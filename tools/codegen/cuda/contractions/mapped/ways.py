"""How a mapped product's tiles are shared out among blocks, and how long each way takes.

A block's step takes products, what shared memory moves and the ring, whose copies come so many
cycles after they were asked for: nearly as long as the slowest of them. Shared memory is what tiles
of up to 128 x 128 wait for: both factors are written there, and each 64 rows read all columns
again, so 64 x 128 takes less of it than 128 x 64. The ring is what few tiles of a long depth wait
for: parts of the depth and more stages bring more bytes under way at once.

Results of a tile take time of their own, unless another group multiplies meanwhile. Of many tiles
with a short depth that is most of the time, which is why turns and boxes win there. Where a block
has a single tile nothing overlaps, and boxes only take room from the ring.

Figures that are called fitted were fitted together, to 685 candidates on an H200 of before there
were turns, boxes and more than four stages (benchmarks/results/h200/gemm_cuda_l2.jsonl.gz) and to
100 with them (benchmarks/results/h200/gemm_ways.jsonl): of what a shape tried, the way put first
took 1.015 and 1.006 times the fastest's time in the mean, 1.21 and 1.02 times at worst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from kernelwright.tools.codegen.cuda.contractions.mapped.factors import mapped, reads_matrix
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import LINE_BYTES, MapScheme
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case
from kernelwright.tools.codegen.ir.contraction import Contraction

# What aligns the first stage and holds the barriers, and a warp's box of results.
ALIGNMENT, BOX_BYTES = 1024 + 512, 16 * LINE_BYTES
MOST_STAGES, BOXES = 16, 2
CLUSTERS, MOST_BLOCKS = (1, 2), 8
# Multiply-adds of a multiprocessor in a cycle, and the share of them that products reach (fitted).
# A cycle is one of the clock that the data sheet's rate is of.
_MULTIPLIED, _SHARE = 2048, 0.919
# Bytes that a multiprocessor's shared memory moves in a cycle: 128 at 1,980 MHz, which an H200 runs
# at, where the data sheet's rate is of 1,830.
_SHARED = 128 * 1980 / 1830
# How sharply the slowest of a step's three hides the others, the power of their sum; cycles of a
# step that one group alone does not hide; and bytes of the last-level cache whose asking takes a
# cycle beside all that (fitted).
_SHARPNESS, _ALONE, _ASKED = 8.0, 34.0, 440.0
# Cycles before a block's first product beyond those of any kernel, and from asking for a stage
# until it is there: a block's own, and one that a cluster shares, for which all of its blocks must
# have room (fitted).
_BEFORE, _LATENCY, _LATENCY_OF_CLUSTER = 2200.0, 900.0, 2140.0
# Cycles of storing one result from registers; through boxes (held: 0.016 to 0.034 fit alike); and
# what boxes of more than 128 columns add (fitted). 128 x 256 took longer through boxes than from
# registers at five of five problems, why was not looked at with counters.
_STORED, _BOXED, _BOXED_WIDE, _WIDE = 0.053, 0.03, 0.045, 128
# Cycles that a result's dear statements take (fitted to GELU), and the share of that of those which
# the sum is not in: two results of a thread have them in common, and a norm's root and reciprocal
# are shorter than an error function (expected, not measured).
_DEAR, _OF_A_SIDE = 0.26, 0.25
# And what it takes to wait for a matrix that is read beside it: from registers, where each eight
# results wait for their own; through boxes, all of whose reads are under way at once. (Of 12,608 x
# 768 results of depth 768 with a residual on an H200: 58.0 and 53.4 us from registers of 128 x 128
# and 128 x 192, 35.6 and 38.2 through boxes; benchmarks/results/h200/products_layers.jsonl.)
_READ, _READ_BOXED = 0.45, 0.12
# GB/s at which what a product reads and writes moves (fitted; a copy measured 4,256), and how far
# that is hidden behind the steps, or they behind it: the power of their sum.
_MOVED_GB_S, _HIDDEN = 3740.0, 2.0
# Cycles of joining the sums of a cluster, which begins anew for every tile: at all, and for a
# result (fitted).
_JOINED, _JOINED_EACH = 1900.0, 0.34
# Steps that are worth a block of their own; neighbours whose blocks may form a cluster of more than
# two (of 132, 16 clusters of six ran at once, 32 of four and 16 of eight did not); and the most
# results of a tile that leave a thread registers for much else beside its sums.
_LEAST_STEPS, _NEIGHBOURS, MOST_SPANNED = 4, 18, 256 * 192


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
    return tuple(n for n in range(1, MOST_BLOCKS + 1) if n == 1 or lines(contraction) >= 2 * n)


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
        return way_ms(case, contraction, way), -way.rows * way.columns

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
    if way.cluster > 1 and max(way.rows, way.columns) < 128:
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


def _clusters(contraction: Contraction, way: Way) -> int:
    """Clusters of all tiles; of an odd number beside each other the last one is half empty."""
    down, across = -(-contraction.m // way.rows), -(-contraction.n // way.columns)
    if way.columns >= way.rows:
        down = -(-down // way.cluster)
    else:
        across = -(-across // way.cluster)
    return contraction.batches * down * across


def way_ms(case: Case, contraction: Contraction, way: Way) -> float:
    """Waves of tiles, of which each has its steps and its results, and what is moved."""
    waves = _waves(case, contraction, way)
    steps = -(-lines(contraction) // way.split)
    # The ring runs ahead into the next tile.
    of_steps = steps * _step(way, min(way.stages(room_bytes(case)), steps * waves))
    results = way.rows * way.columns * _of_result(contraction, way, waves)
    if way.turns and waves > 1 and (way.boxes or not _waits(contraction)):
        cycles = waves * max(of_steps, (of_steps + results) / 2) + results
    else:
        cycles = waves * (of_steps + results)
    if way.split > 1:
        cycles += waves * (_JOINED + way.rows * way.columns * _JOINED_EACH)
    hertz = (case.hardware.tensor_tflops or 1.0) * 1e12 / case.multiprocessors / (2 * _MULTIPLIED)
    moved = _moved_bytes(contraction) / (_MOVED_GB_S * 1e9)
    both = ((cycles / hertz) ** _HIDDEN + moved**_HIDDEN) ** (1 / _HIDDEN)
    return float(both + (_BEFORE + _latency(way)) / hertz) * 1e3


def _waits(contraction: Contraction) -> bool:
    """Whether results from registers take as long beside another group's products as alone.

    So they did with a GELU and with a residual: 126 and 58 us, where boxes took 106 and 36.
    """
    return reads_matrix(contraction) or _dear_share(contraction) >= 1


def _of_result(contraction: Contraction, way: Way, waves: int) -> float:
    """Cycles from a sum in registers until its result is on its way; a last one waits for that."""
    boxed = _BOXED + (_BOXED_WIDE if way.columns > _WIDE else 0.0)
    stored = boxed if way.boxes and waves > 1 else _STORED
    read = (_READ_BOXED if way.boxes else _READ) if reads_matrix(contraction) else 0.0
    return stored + read + _dear_share(contraction) * _DEAR


def _moved_bytes(contraction: Contraction) -> float:
    """What is read, and what is written."""
    shape = shape_of(contraction)
    read = shape.k * (shape.m + shape.n) * contraction.precision.itemsize_bytes
    stored = sum(store.access.dtype.itemsize_bytes for store in contraction.stores)
    return shape.batches * (read + shape.m * shape.n * stored)


def _waves(case: Case, contraction: Contraction, way: Way) -> int:
    """How many tiles a block takes."""
    size = way.cluster * way.split
    places = case.multiprocessors // size
    if size > 2:
        whole = max(1, case.multiprocessors // _NEIGHBOURS)
        places = max(1, min(places, whole * (_NEIGHBOURS // size)))
    return -(-_clusters(contraction, way) // places)


def _step(way: Way, stages: int) -> float:
    """Cycles of a step: products, shared memory and the ring, and what the cache is asked for."""
    # A line takes as long whatever it holds: the rate doubles where elements are half as wide.
    multiplied = way.rows * way.columns * LINE_BYTES / 2 / _MULTIPLIED / _SHARE
    # Each 64 rows are read with all columns, and both factors are written.
    passed = way.rows // 64 * (64 + way.columns) + way.rows + way.columns
    asked = min(way.rows, way.columns) + max(way.rows, way.columns) / way.cluster
    three = multiplied, LINE_BYTES * passed / _SHARED, _latency(way) / stages
    hidden = float(sum(one**_SHARPNESS for one in three) ** (1 / _SHARPNESS))
    return hidden + LINE_BYTES * asked / _ASKED + (_ALONE if way.groups == 1 else 0.0)


def _latency(way: Way) -> float:
    return _LATENCY_OF_CLUSTER if way.cluster > 1 else _LATENCY


# Statements that are one instruction or none.
_CHEAP = frozenset(
    {"add", "cast", "const", "fma", "load", "maximum", "minimum", "mul", "neg", "relu", "sub"}
)


def dear(contraction: Contraction) -> int:
    """Statements of an epilogue that take many instructions."""
    return sum(stmt.op not in _CHEAP for stmt in contraction.epilogue)


def _dear_share(contraction: Contraction) -> float:
    """Dear statements, those that depend on a row or a column alone as less than one."""
    from_sum, found = {contraction.total}, 0.0
    for stmt in contraction.epilogue:
        if depends := bool(from_sum & set(stmt.args)):
            from_sum.add(stmt.name)
        if stmt.op not in _CHEAP:
            found += 1.0 if depends else _OF_A_SIDE
    return found
