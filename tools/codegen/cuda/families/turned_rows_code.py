"""The pieces of a kernel that reduces rows as they lie and stores them across.

Rows that are neighbours in memory where they are stored are a tile's lines there: `at_along` is a
row's position along the last kept axis, `at_across` the position within a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import gcd

from kernelwright.tools.codegen.cuda.families.access import SECTOR_BYTES
from kernelwright.tools.codegen.cuda.families.strip_code import StoreCode
from kernelwright.tools.codegen.cuda.families.turned_lines import in_windows, window_slide
from kernelwright.tools.codegen.cuda.printing.nest import Nest, Place
from kernelwright.tools.codegen.cuda.printing.printing import Printer, Stream, decoded
from kernelwright.tools.codegen.cuda.printing.types import c_type
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES, Vectors


def across_rows(nest: Nest) -> tuple[int, ...]:
    """The stores whose elements lie beside those of the next row, by their number."""
    return tuple(
        at
        for at, place in enumerate(nest.targets)
        if nest.is_element_store(at) and _across(nest, place)
    )


def _across(nest: Nest, place: Place) -> bool:
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
