"""Strategy for rows that are read as they lie and stored beside each other.

A softmax over channels that lie last, of what a library convolved so, is returned channels first:
of such a row either the reads or the writes are scattered, unless a block turns a tile of rows in
its shared memory. Groups of lanes reduce the tile's rows in registers, as `warp_rows` does, and
leave what they store in shared memory; the block writes it line for line. Rows that are neighbours
in memory where they are stored are a tile's lines there: `at_along` is a row's position along the
last kept axis, `at_across` the position within a row.

Not here: rows that are read along the kept axes (`columns`), and those too long for a warp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import gcd, prod

from kernelwright.tools.candidates.arithmetic import Expression
from kernelwright.tools.codegen.cuda.families.reductions.row_tunables import offsets
from kernelwright.tools.codegen.cuda.families.row_shapes import (
    SECTOR_BYTES,
    WARP_TURNED,
    row_family,
)
from kernelwright.tools.codegen.cuda.families.tiles.strip_code import StoreCode
from kernelwright.tools.codegen.cuda.families.tiles.transposed import part, window
from kernelwright.tools.codegen.cuda.families.tiles.turned_tiles import (
    in_windows,
    store_hints,
    tiles,
    window_slide,
)
from kernelwright.tools.codegen.cuda.families.window_walks import Held
from kernelwright.tools.codegen.cuda.printing.case import KIB, LANE_WORDS, Case, first, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.kernels import Body
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace, Nest
from kernelwright.tools.codegen.cuda.printing.printing import Printer, Stream, decoded
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES, Vectors
from kernelwright.tools.codegen.ir import Emitted, Strategy


def across_rows(nest: Nest) -> tuple[int, ...]:
    """The stores whose elements lie beside those of the next row, by their number."""
    return tuple(
        at
        for at, place in enumerate(nest.targets)
        if nest.is_element_store(at) and _across(nest, place)
    )


def _across(nest: Nest, place: AxisPlace) -> bool:
    if place.gathers or place.outer[-1:] != (1,):
        return False
    step = nest.linear(place)
    return step is not None and abs(step) > 1


class TurnedRowsCode(Printer):
    """Prints statements in row mode, and stores that lie across rows into a tile.

    Args:
        nest: The nest.
        vectors: What moves along rows.
    """

    def __init__(self, nest: Nest, vectors: Vectors) -> None:
        super().__init__(nest, vectors)
        self._across = across_rows(nest)

    @property
    def across_size(self) -> int:
        """Positions of a row."""
        return self.nest.columns

    @property
    def along_size(self) -> int:
        """Rows that are stored beside each other."""
        return self.nest.kept[-1]

    @property
    def row(self) -> str:
        """The name of a row's position among those."""
        return f"o{len(self.nest.kept) - 1}"

    @property
    def block_decode(self) -> tuple[str, ...]:
        """Lines that turn `block` into positions along all kept axes but the last."""
        return tuple(decoded("o", "block", self.nest.kept[:-1], "int"))

    @property
    def positions(self) -> list[str]:
        """Lines that name an element of the tile as addresses do."""
        return ["const int j = at_across;", f"const int {self.row} = at_along;"]

    @cached_property
    def stores(self) -> list[StoreCode]:
        """The stores that lie across rows."""
        return [self._across_code(at) for at in self._across]

    def _across_code(self, at: int) -> StoreCode:
        place = self.nest.targets[at]
        itemsize = place.dtype.itemsize_bytes
        others = (place.offset, *place.outer[:-1], self.nest.linear(place) or 0)
        return StoreCode(
            name=f"tile_{at}",
            type=c_type(place.dtype),
            buffer=f"g_{place.buffer}",
            index="long long",
            address=f"{self.base(place)} + {self.walked_offset(place)}",
            value=self.stored(at),
            chunk=gcd(MOVED_BYTES // itemsize, self.along_size, *others),
            step=1,
            itemsize=itemsize,
        )

    @cached_property
    def slides(self) -> bool:
        """Whether lines are stored in windows."""
        return in_windows(self.stores, self.along_size)

    @property
    def slide(self) -> int:
        """Rows that a tile takes besides its own."""
        return window_slide(self.stores)

    def store_one(self, at: int) -> str:
        """A store of one element, where it lies across rows into the tile."""
        if at not in self._across:
            return super().store_one(at)
        store = self.stores[self._across.index(at)]
        slot = f"k * Tile::pitch<{store.type}>()"
        if not self.slides:
            return f"{store.name}[Tile::slot<{store.type}>(a, j) + {slot}] = {store.value};"
        # How far its line begins behind a sector's begin.
        place = self.nest.targets[at]
        line = self.base(replace(place, outer=(*place.outer[:-1], 0)))
        start = f"{line} + {self.walked_offset(place)} + k * {self.nest.linear(place)}"
        sector = SECTOR_BYTES // store.itemsize
        return (
            f"const int place_{at} = a - SLIDE + (int)(({start}) & {sector - 1}); "
            f"{store.name}[place_{at} >= 0 && place_{at} < STEP "
            f"? Tile::slot<{store.type}>(place_{at}, j) + {slot} "
            f": Tile::room<{store.type}>() + (int)threadIdx.x] = {store.value};"
        )

    def streams(self, names: Sequence[str], stores: Sequence[int]) -> list[Stream]:
        """Row pointers of what is not stored across."""
        return super().streams(names, [at for at in stores if at not in self._across])


NAMES = (WARP_TURNED,)
TITLE = "Tiles of rows, each within one warp, turned in shared memory before they are stored"
# Threads of a block, by the bytes that it leaves of a row: a tile of short rows is soon read, and
# small blocks wait for it one by one (64 bytes: 0.57 ms with 512 threads, 0.52 with 128, an H200).
_THREADS, _FEW_THREADS, _SHORT_ROW_BYTES = 512, 128, 256
# Vectors of a row that a lane reads at once, bytes of a tile and rows of one.
_HELD, _TILE = 4, 36 * KIB
_MOST_ROWS, _FEWEST_ROWS = 128, 8
# Of the bandwidth: 0.92 to 0.96 on an H200 (benchmarks/results/h200/strategies.jsonl).
_SHARE = 0.93


def strategies(case: Case) -> list[Strategy]:
    """The strategy, where rows are stored across and a warp can hold them."""
    if _tunables(case, _code(case), "x") is None:
        return []
    filled = min(1.0, case.nest.rows / 64 / (2 * case.multiprocessors))
    return [
        Strategy(
            name=WARP_TURNED,
            title=TITLE,
            mechanism="A few lanes hold a row in registers and reduce it by shuffles; a block "
            "leaves a tile of such rows in shared memory and writes it along the axis in which "
            "the results lie.",
            reason="Rows are read once and written in whole sectors, though they are stored "
            "across; two loops, one that reduces and one that turns, read them twice.",
            category="memory",
            metric="dram bytes read",
            memory="tiles of rows turned in shared memory",
            compute=f"{len(case.schedule.passes)} passes",
            parallel="tile of rows per block",
            efficiency=round(_SHARE * max(filled, 0.02), 3),
        )
    ]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop over rows that are stored across.

    Raises:
        ValueError: When the strategy does not fit.
    """
    code = _code(case)
    tunables = _tunables(case, code, prefix)
    if tunables is None:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    nest = case.nest
    body = Body(code, case.schedule, prefix, case.keeps(case.along_rows))
    source = render(
        "rows_turned",
        title=TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        columns=nest.columns,
        others=[],
        code=code,
        keeps=offsets(body.kept),
        before=body.before,
        before_stores=body.before_stores,
        passes=body.passes(),
    )
    along = tiles(code.along_size, "ROWS", code.slide if code.slides else 0)
    outer = prod(nest.kept[:-1])
    grid = tunables.named(f"{outer} * {along}" if outer > 1 else along)
    shared = tunables.named(_shared_text(code))
    launch = Launch(f"{prefix}_rows", grid, tunables.named("{THREADS}"), shared)
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def _code(case: Case) -> TurnedRowsCode:
    return TurnedRowsCode(case.nest, case.along_rows)


def _tunables(case: Case, code: TurnedRowsCode, prefix: str) -> Tunables | None:
    """The tunables; None where nothing is stored across, or rows are too long to turn."""
    nest = case.nest
    if not nest.kept or not across_rows(nest) or nest.rows >> 31:
        return None
    if nest.kept[-1] * code.stores[0].itemsize < SECTOR_BYTES:
        return None
    lanes = [n for n in powers(1, 32) if -(-nest.columns // n) * case.row_words <= LANE_WORDS]
    fewest = max(_FEWEST_ROWS, code.slide)
    least = 2 * fewest if code.slides else fewest
    if not lanes or not _fits(case, code, least):
        return None
    widths = case.along_rows.widths
    vectors = max(1, nest.columns // widths[0])
    lanes = first(max(min(vectors, _THREADS // _MOST_ROWS), vectors // _HELD), lanes)
    short = _stored_bytes(code) < _SHORT_ROW_BYTES
    threads = first(_FEW_THREADS if short else _THREADS, [_FEW_THREADS, 256, _THREADS])
    rows = _rows(code, fewest, max(fewest, threads[0] // lanes[0]))
    tunables = Tunables(prefix).add("THREADS", threads).add("LANES", lanes).add("VECTOR", widths)
    others = [n for n in (2 * rows, rows // 2, least) if n % fewest == 0 and n >= least]
    tunables.add("ROWS", [rows, *others])
    tunables.require("{ROWS} % ({THREADS} // {LANES}) == 0")
    held = f"-(-{nest.columns} // ({{LANES}} * {{VECTOR}})) * {{VECTOR}}"
    tunables.require(f"{held} * {case.row_words} <= {LANE_WORDS}")
    tunables.require(f"{_shared_text(code)} <= {case.shared_bytes}")
    hints = store_hints(code.stores, windows=code.slides)
    return tunables.add("LOADS", (0, 1)).add("STORES", hints)


def _fits(case: Case, code: TurnedRowsCode, rows: int) -> bool:
    """Whether the smallest block has room for a tile of so many rows."""
    text = _shared_text(code).format(ROWS=rows, THREADS=_FEW_THREADS)
    return Expression(f"{text} <= {case.shared_bytes}", frozenset(), 0).holds({})


def _stored_bytes(code: TurnedRowsCode) -> int:
    """Bytes of a row in its tile."""
    return code.across_size * sum(store.itemsize for store in code.stores)


def _rows(code: TurnedRowsCode, fewest: int, step: int) -> int:
    """Rows of a tile: a multiple of `step`, as many as a block takes at a time."""
    most = max(step, min(_MOST_ROWS, _TILE // _stored_bytes(code)) // step * step)
    rows = part(code.along_size, most, fewest)
    if code.slides:
        rows = window(code.along_size, most, fewest, code.slide)
    return -(-rows // step) * step


def _shared_text(code: TurnedRowsCode) -> str:
    """Shared memory of a block in bytes, over tunables in braces.

    A chunk more a line, and a few besides, are at least as much as the gaps between lines take;
    where lines are stored in windows every thread has a slot for what is not the tile's.
    """
    rooms = []
    for store in code.stores:
        line = f"(({{ROWS}} * {store.itemsize} + 15) // 16 + 1)"
        spare = f" + {{THREADS}} * {store.itemsize}" if code.slides else ""
        rooms.append(f"16 * ({code.across_size} * {line} + 16){spare}")
    return " + ".join(rooms)


def _held(case: Case, name: str) -> Held:
    """What lanes hold of their rows."""
    return Held(case.keeps(case.along_rows))


TURNED_ROW_FAMILY = row_family(NAMES, strategies, emit, _held)
