"""How lines of a turned tile are stored: in whole vectors, in windows of sectors, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.codegen.cuda.families.access import SECTOR_BYTES
from kernelwright.tools.codegen.cuda.families.strip_code import StoreCode


def in_windows(stores: Sequence[StoreCode], along: int) -> bool:
    """Whether lines of `along` elements begin at odd places, and are long enough for windows.

    A sector that two tiles store in parts costs the cache two requests: planes of 513 x 513
    took 1.46 ms where those of 512 x 512 took 1.06 (an H200, benchmarks/convolution_tails.py).
    """
    odd = any(store.chunk < store.widest for store in stores)
    return odd and along > 8 * window_slide(stores)


def window_slide(stores: Sequence[StoreCode]) -> int:
    """Positions that a tile computes besides its own: a sector of the smallest elements."""
    return SECTOR_BYTES // min(store.itemsize for store in stores)


def tiles(along: int, side: str, slide: int) -> str:
    """Tiles along lines, over the tunable `side` in braces; `slide` is 0 without windows."""
    if not slide:
        return f"ceil_div({along}, {{{side}}})"
    return f"ceil_div({along + slide - 1}, ({{{side}}} - {slide}))"


def store_hints(stores: Sequence[StoreCode], *, windows: bool) -> tuple[int, int]:
    """Streaming stores first where whole vectors fill sectors.

    Of sectors that two warps write in parts the cache makes one.
    """
    return (1, 0) if windows or all(store.chunk > 1 for store in stores) else (0, 1)
