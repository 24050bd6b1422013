"""Statistics of results that warps store from their strips, 16 of one side by 32 of the other."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.contractions.statistics.tiles import (
    CountedTiles,
    counted_side,
)
from kernelwright.tools.codegen.ir import Loop
from kernelwright.tools.codegen.ir.contraction import Contraction

# Cycles of a multiprocessor that each result takes on its way through a warp's strip a second time
# (four products on an H200: benchmarks/results/h200/convolutions.md), and its clock.
_TAKEN, _CLOCK_HZ = 0.36, 1.7e9
# Results that a warp has down and across where it stores sums of split factors (`split_results`).
_DOWN, _ACROSS_WARP = 16, 32


@dataclass(frozen=True)
class CountedBlocks:
    """Statistics as kernels take them whose warps store 16 rows (or columns) by 32 at a time."""

    tiles: CountedTiles
    by_rows: bool

    @property
    def chunk(self) -> int:
        """Places that are counted together."""
        return _DOWN if (self.tiles.side.name == "row") == self.by_rows else _ACROSS_WARP

    def values(self, loop: Loop, width: int) -> dict[str, object]:
        """What skeletons ask for; `width` are the neighbours that a lane stores at once."""
        return self.tiles.values(loop, str(self.chunk)) | {"index": "k" if width > 1 else "0"}

    def allocations(self, prefix: str) -> list[str]:
        """The plan's lines that make room."""
        return self.tiles.allocations(prefix, str(self.chunk))

    def seconds(self, hardware: Hardware, multiprocessors: int) -> float:
        """What they take besides the product: bytes that are left and joined, and the launch."""
        bandwidth = hardware.bandwidth_gb_s * 1e9
        moved = self.tiles.moved_bytes(self.chunk) / bandwidth
        found = self.tiles.contraction
        taken = found.batches * found.m * found.n / multiprocessors * _TAKEN / _CLOCK_HZ
        joined = self.tiles.joining_seconds(self.chunk, bandwidth, _CLOCK_HZ)
        return moved + taken + joined + hardware.launch_us / 1e6


def counting_ms(contraction: Contraction, hardware: Hardware, sms: int, *, by_rows: bool) -> float:
    """What a product's statistics take besides the product; 0 where it has none."""
    found = counted_blocks(contraction, by_rows=by_rows)
    return 0.0 if found is None else 1e3 * found.seconds(hardware, sms)


def lacks_statistics(contraction: Contraction, *, by_rows: bool) -> bool:
    """Whether a product has statistics that such warps cannot take."""
    is_wanted = contraction.statistics is not None
    return is_wanted and counted_blocks(contraction, by_rows=by_rows) is None


def counted_blocks(contraction: Contraction, *, by_rows: bool) -> CountedBlocks | None:
    """The statistics of a product's results; None where it has none, or warps cannot take them."""
    found = contraction.statistics
    if found is None or found.when or contraction.folds:
        return None
    for name, axes in (("column", contraction.columns), ("row", contraction.rows)):
        if any(axis.name in found.along for axis in axes):
            side = counted_side(contraction, name, [axis.size for axis in axes])
            if side is not None:
                return CountedBlocks(CountedTiles(contraction, found, side), by_rows)
    return None
