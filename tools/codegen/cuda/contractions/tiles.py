"""Tiles of a product on tensor cores: which are tried, in what order, and how long they take.

A block computes one tile of BM x BN results and walks the whole depth. What a tile costs is the
most of three: products at the rate that warps reach with their part of the tile, bytes through the
last-level cache (every tile reads its rows and columns again), and bytes of memory. Tiles come in
waves, and a last wave that fills a part of the device takes as long as a full one, which decides
among tiles for small products. Not modelled: clocks that fall under load, and the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir.contraction import Contraction

# The share of the data sheet's rate that products of warps reach. Hopper's tensor cores run at full
# rate for warpgroups alone, those of data-centre Blackwell for a unit that warps do not feed.
# Hopper's is what 4096 cubed took (benchmarks/results/h200/products.md); the other figures are
# assumptions until a device has said otherwise, as are the two below.
_BY_WARPS = {9: 0.39, 10: 0.30}
_BY_WARPS_ELSEWHERE = 0.85
# Bytes that the last-level cache gives for one that memory gives.
_CACHE_RATE = 2.2
# The share of reads from shared memory that products do not hide.
_EXPOSED_READS = 0.3
# What a ring adds at the beginning and the end of a tile, in positions of the depth.
_RAMP = 128


@dataclass(frozen=True)
class ProductShape:
    """Sizes of a batch of products, and the share of results that depend on their sums."""

    batches: int
    m: int
    n: int
    k: int
    needed: float = 1.0

    @property
    def flops(self) -> float:
        """Of all results, a multiply-add counted as two."""
        return 2.0 * self.batches * self.m * self.n * self.k


def shape_of(contraction: Contraction) -> ProductShape:
    """The contraction's sizes."""
    return ProductShape(
        contraction.batches,
        contraction.m,
        contraction.n,
        contraction.k,
        contraction.needed_share,
    )


def tiles_of(shape: ProductShape, rows: int, columns: int) -> int:
    """How many tiles have sums."""
    tiles = shape.batches * -(-shape.m // rows) * -(-shape.n // columns)
    return ceil(tiles * shape.needed)


@dataclass(frozen=True)
class Tile:
    """A block's tile and the warps that share it."""

    rows: int
    columns: int
    warps: int

    @property
    def number(self) -> int:
        """How tunables write it: rows x 1000 + columns."""
        return self.rows * 1000 + self.columns

    @property
    def warp_part(self) -> tuple[int, int]:
        """Rows and columns of one warp; the squarest split, as `kw::warps_down` chooses it."""
        splits = [n for n in (1, 2, 4, 8, 16) if n <= self.warps and self._fits(n)]
        down = min(splits, key=lambda n: self.rows // n + self.columns * n // self.warps)
        return self.rows // down, self.columns * down // self.warps

    def _fits(self, down: int) -> bool:
        across = self.warps // down
        return self.rows % (16 * down) == 0 and self.columns % (16 * across) == 0

    @property
    def is_possible(self) -> bool:
        """Whether the warps can share it in multiples of 16 x 16."""
        return any(self._fits(n) for n in (1, 2, 4, 8, 16) if n <= self.warps)


@dataclass(frozen=True)
class Scheme:
    """What multiplying one pair of elements costs.

    Args:
        products: Products on tensor cores for one of the task's.
        bytes_left: Bytes of a left element as tiles read it.
        bytes_right: Those of a right one.
    """

    products: int = 1
    bytes_left: float = 2.0
    bytes_right: float = 2.0


def tile_ms(shape: ProductShape, tile: Tile, scheme: Scheme, hardware: Hardware) -> float:
    """Predicted time of the product alone."""
    processors = hardware.sm_count or 1
    tiles = tiles_of(shape, tile.rows, tile.columns)
    rows, columns = tile.warp_part
    # For a step of 16 a warp reads 32 bytes a row and a column, of which a multiprocessor gives 128
    # a cycle, and multiplies 16 times rows x columns, about 1024 a cycle.
    reads = 16 * (rows + columns) / (rows * columns)
    rate = warp_tflops(hardware) / processors / (1 + _EXPOSED_READS * reads) * 1e9
    depth = shape.k + _RAMP
    of_one = 2.0 * tile.rows * tile.columns * depth * scheme.products / rate
    # Blocks beyond the number of processors run beside others, at the same rate together.
    by_products = -(-tiles // processors) * of_one
    of_step = tile.rows * scheme.bytes_left + tile.columns * scheme.bytes_right
    by_cache = tiles * shape.k * of_step / (hardware.bandwidth_gb_s * 1e6 * _CACHE_RATE)
    return max(by_products, by_cache)


def warp_tflops(hardware: Hardware) -> float:
    """The rate of products of warps, with fp32 accumulation."""
    share = _BY_WARPS.get(capability(hardware) // 10, _BY_WARPS_ELSEWHERE)
    return share * (hardware.tensor_tflops or 0.0)


def capability(hardware: Hardware) -> int:
    """The compute capability as one number, 90 for "sm_90a"; 0 where there is none."""
    digits = (hardware.architecture or "").removeprefix("sm_").rstrip("af")
    return int(digits) if digits.isdigit() else 0


def ordered_tiles(
    tiles: Sequence[Tile], shape: ProductShape, scheme: Scheme, hardware: Hardware
) -> list[Tile]:
    """The tiles by predicted time; of equals the larger one first."""
    possible = [tile for tile in tiles if tile.is_possible]
    return sorted(
        possible,
        key=lambda tile: (tile_ms(shape, tile, scheme, hardware), -tile.rows * tile.columns),
    )
