"""Problems of the round `halves`: products in fp16, and the ways that blocks may share them.

Each is timed under the settings that were fastest before there were parts of a depth under every
tile, as many stages as fit, turns and boxes (the first line of each), and under these.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from strategies.calls import called
from strategies.loops import Problem

_F16 = torch.float16
# M, N, K, and tile, cluster, split, turns, boxes, stages of what is tried.
Way = tuple[int, int, int, int, int, int]
_AS_BEFORE = 4
_SQUARE: tuple[Way, ...] = (
    (128256, 2, 1, 0, 0, _AS_BEFORE),
    (128256, 2, 1, 0, 2, 16),
    (128256, 1, 1, 0, 2, 16),
    (256128, 2, 1, 0, 2, 16),
    (128128, 2, 1, 1, 2, 16),
    (64256, 2, 1, 1, 2, 16),
)
_FEW: tuple[Way, ...] = (
    (128064, 1, 1, 0, 0, _AS_BEFORE),
    (128064, 2, 1, 0, 0, 16),
    (128064, 1, 2, 0, 0, 16),
    (64128, 1, 1, 0, 0, 16),
    (128128, 1, 2, 0, 0, 16),
    (128128, 2, 2, 0, 0, 16),
    (128256, 1, 4, 0, 0, 16),
)
_LONG: tuple[Way, ...] = (
    (64064, 1, 4, 0, 0, _AS_BEFORE),
    (64064, 1, 2, 0, 0, 16),
    (128064, 1, 3, 0, 0, 16),
    (128128, 1, 5, 0, 0, 16),
    (128128, 1, 6, 0, 0, 16),
    (128128, 1, 8, 0, 0, 16),
    (128128, 2, 4, 0, 0, 16),
    (128192, 1, 8, 0, 0, 16),
)
_MIDDLE: tuple[Way, ...] = (
    (128128, 1, 1, 0, 0, _AS_BEFORE),
    (128128, 1, 1, 0, 0, 16),
    (128128, 2, 1, 0, 0, 16),
    (128128, 1, 1, 0, 2, 16),
    (64256, 2, 1, 0, 2, 16),
    (128256, 1, 2, 0, 0, 16),
)
_SMALL: tuple[Way, ...] = (
    (64032, 1, 1, 0, 0, 8),
    (64032, 1, 1, 0, 0, 16),
    (64064, 1, 1, 0, 0, 16),
    (64064, 1, 1, 0, 2, 16),
    (64064, 1, 2, 0, 0, 16),
)
# The GELU of a tile takes a fifth as long as its products.
_LAYER: tuple[Way, ...] = (*_SQUARE, (128128, 2, 1, 1, 0, 16), (128128, 1, 1, 1, 2, 16))
_PLAIN: dict[str, tuple[tuple[int, int, int], tuple[Way, ...]]] = {
    "half_256_1024_16384": ((256, 1024, 16384), _LONG),
    "half_512_512_12288": ((512, 512, 12288), _LONG),
    "half_256_4096_4096": ((256, 4096, 4096), _FEW),
    "half_4096_256_4096": ((4096, 256, 4096), _FEW),
    "half_512_4096_4096": ((512, 4096, 4096), _MIDDLE),
    "half_1024_2048_12288": ((1024, 2048, 12288), _MIDDLE),
    "half_nt_512": ((512, 512, 512), _SMALL),
    "half_nt_2048": ((2048, 2048, 2048), _SQUARE),
    "half_nt_4096": ((4096, 4096, 4096), _SQUARE),
    "half_8192_8192_512": ((8192, 8192, 512), _SQUARE),
    "half_16384_8192_128": ((16384, 8192, 128), _SQUARE),
}
_LAYERS = {
    "half_layer_gelu": (16384, 2048, 2048),
    "half_layer_gelu_wide": (4096, 11008, 4096),
}


def _product(name: str, sizes: tuple[int, int, int]) -> Problem:
    """X @ w.T, as a linear layer without a bias has it."""
    rows, columns, depth = sizes
    return called(name, F.linear, (rows, depth), (columns, depth), dtype=_F16, products=True)


def _layer(name: str, sizes: tuple[int, int, int]) -> Problem:
    rows, columns, depth = sizes

    def call(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias))

    shapes = (rows, depth), (columns, depth), (columns,)
    return called(name, call, *shapes, dtype=_F16, products=True)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{name: partial(_product, name, sizes) for name, (sizes, _) in _PLAIN.items()},
    **{name: partial(_layer, name, sizes) for name, sizes in _LAYERS.items()},
}


def words(way: Way) -> str:
    """A way as the changes to a first setting."""
    names = "TILE", "CLUSTER", "SPLIT", "TURNS", "BOXES", "STAGES"
    return " ".join(f"{name}={value}" for name, value in zip(names, way, strict=True))


def chosen_halves() -> tuple[tuple[str, str, str], ...]:
    """Every problem's ways, the one from before first and the first of now second."""
    ways = {**{name: of for name, (_, of) in _PLAIN.items()}, **dict.fromkeys(_LAYERS, _LAYER)}
    return tuple(
        (name, "wgmma_maps", changes)
        for name, of in ways.items()
        for changes in (words(of[0]), "", *map(words, of[1:]))
    )
