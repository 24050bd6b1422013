"""Schemes of mapped products: types of factors and sums, and the tiles that registers hold then.

Where sums may be kept in fp16 there is a second way, of a name of its own: two of them share a
register, so tiles are larger. Its sums are rounded after every sixteen positions and overflow as
fp16 does, and it is proposed to nobody who did not ask for that. Factors of eight bits lie along
the depth, and as their products are cut off early, sums begin from zero every few steps and go to
totals of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.mma_tiles import HALVES
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.types import DType

WGMMA_MAPS, WGMMA_MAPS_FP16, WGMMA_MAPS_FP8 = "wgmma_maps", "wgmma_maps_fp16", "wgmma_maps_fp8"
# Bytes of a row of a stage.
LINE_BYTES = 128
# Floats of sums that a thread has registers for beside all else.
_MOST_SUMS = 128


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
        return LINE_BYTES // self.factors[0].itemsize_bytes

    @property
    def most_of_group(self) -> int:
        """Results of a tile that one warpgroup has registers for; 0 where none has a whole one."""
        return 0 if self.promotes else 128 * _MOST_SUMS * 4 // self.sums.itemsize_bytes


_TILES = (
    (128, 256), (256, 128), (128, 192), (128, 128), (128, 64), (64, 256), (64, 128), (64, 64),
)  # fmt: skip
SCHEMES = {
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


def schemes_of(contraction: Contraction) -> dict[str, MapScheme]:
    """Those by name that keep sums in no less than they may be kept in."""
    allowed = (DType.FLOAT32, contraction.sums)
    return {
        name: scheme
        for name, scheme in SCHEMES.items()
        if contraction.precision in scheme.factors and scheme.sums in allowed
    }
