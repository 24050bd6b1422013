"""Problems of the rounds `halves` and `layers`: products in halves, and ways blocks may share them.

Each of `halves` is timed under the settings that were fastest before there were parts of a depth
under every tile, as many stages as fit, turns and boxes (the first line of each), and under these.
`layers` has those of a ViT-B's and a BERT's layers in bfloat16: 12,608 rows are no whole number of
tiles, the 12,672 beside them are.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from strategy_calls import called
from strategy_loops import Problem

_F16, _BF16 = torch.float16, torch.bfloat16
# M, N, K, and tile, cluster, split, turns, boxes, stages of what is tried.
_Way = tuple[int, int, int, int, int, int]
_AS_BEFORE = 4
_SQUARE: tuple[_Way, ...] = (
    (128256, 2, 1, 0, 0, _AS_BEFORE),
    (128256, 2, 1, 0, 2, 16),
    (128256, 1, 1, 0, 2, 16),
    (256128, 2, 1, 0, 2, 16),
    (128128, 2, 1, 1, 2, 16),
    (64256, 2, 1, 1, 2, 16),
)
_FEW: tuple[_Way, ...] = (
    (128064, 1, 1, 0, 0, _AS_BEFORE),
    (128064, 2, 1, 0, 0, 16),
    (128064, 1, 2, 0, 0, 16),
    (64128, 1, 1, 0, 0, 16),
    (128128, 1, 2, 0, 0, 16),
    (128128, 2, 2, 0, 0, 16),
    (128256, 1, 4, 0, 0, 16),
)
_LONG: tuple[_Way, ...] = (
    (64064, 1, 4, 0, 0, _AS_BEFORE),
    (64064, 1, 2, 0, 0, 16),
    (128064, 1, 3, 0, 0, 16),
    (128128, 1, 5, 0, 0, 16),
    (128128, 1, 6, 0, 0, 16),
    (128128, 1, 8, 0, 0, 16),
    (128128, 2, 4, 0, 0, 16),
    (128192, 1, 8, 0, 0, 16),
)
_MIDDLE: tuple[_Way, ...] = (
    (128128, 1, 1, 0, 0, _AS_BEFORE),
    (128128, 1, 1, 0, 0, 16),
    (128128, 2, 1, 0, 0, 16),
    (128128, 1, 1, 0, 2, 16),
    (64256, 2, 1, 0, 2, 16),
    (128256, 1, 2, 0, 0, 16),
)
_SMALL: tuple[_Way, ...] = (
    (64032, 1, 1, 0, 0, 8),
    (64032, 1, 1, 0, 0, 16),
    (64064, 1, 1, 0, 0, 16),
    (64064, 1, 1, 0, 2, 16),
    (64064, 1, 2, 0, 0, 16),
)
_UP: tuple[_Way, ...] = (
    (128128, 1, 1, 1, 2, 16),
    (128128, 2, 1, 1, 2, 16),
    (128128, 1, 1, 1, 0, 16),
    (128128, 2, 1, 1, 0, 16),
    (64256, 2, 1, 1, 0, 16),
    (128256, 1, 1, 0, 0, 16),
    (128256, 2, 1, 0, 2, 16),
    (256128, 2, 1, 0, 0, 16),
    (128192, 1, 1, 0, 2, 16),
)
_ACROSS: tuple[_Way, ...] = (
    *_UP[:4],
    (64256, 2, 1, 1, 2, 16),
    (128192, 1, 1, 0, 0, 16),
    (128192, 1, 1, 0, 2, 16),
)
# The GELU of a tile takes a fifth as long as its products.
_LAYER: tuple[_Way, ...] = (*_SQUARE, (128128, 2, 1, 1, 0, 16), (128128, 1, 1, 1, 2, 16))
_PLAIN: dict[str, tuple[tuple[int, int, int], tuple[_Way, ...]]] = {
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


# M, N, K; whether a GELU or a residual follows; what is tried.
_BLOCKS: dict[str, tuple[tuple[int, int, int], bool, tuple[_Way, ...]]] = {
    "layer_vit_up": ((12608, 3072, 768), True, _UP),
    "layer_even_up": ((12672, 3072, 768), True, _UP),
    "layer_bert_up": ((8192, 3072, 768), True, _UP[:5]),
    "layer_vit_across": ((12608, 768, 768), False, _ACROSS),
    "layer_vit_down": ((12608, 768, 3072), False, _ACROSS),
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


def _block(name: str, sizes: tuple[int, int, int], gelu: bool) -> Problem:
    rows, columns, depth = sizes

    def up(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias))

    def across(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        return F.linear(x, weight, bias) + residual

    shapes = (rows, depth), (columns, depth), (columns,)
    if gelu:
        return called(name, up, *shapes, dtype=_BF16, products=True)
    return called(name, across, *shapes, (rows, columns), dtype=_BF16, products=True)


LAYERS: dict[str, Callable[[], Problem]] = {
    name: partial(_block, name, sizes, gelu) for name, (sizes, gelu, _) in _BLOCKS.items()
}
PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{name: partial(_product, name, sizes) for name, (sizes, _) in _PLAIN.items()},
    **{name: partial(_layer, name, sizes) for name, sizes in _LAYERS.items()},
}


def _words(way: _Way) -> str:
    names = "TILE", "CLUSTER", "SPLIT", "TURNS", "BOXES", "STAGES"
    return " ".join(f"{name}={value}" for name, value in zip(names, way, strict=True))


def chosen_halves() -> tuple[tuple[str, str, str], ...]:
    """Every problem's ways, the one from before first and the first of now second."""
    ways = {**{name: of for name, (_, of) in _PLAIN.items()}, **dict.fromkeys(_LAYERS, _LAYER)}
    return tuple(
        (name, "wgmma_maps", changes)
        for name, of in ways.items()
        for changes in (_words(of[0]), "", *map(_words, of[1:]))
    )


def chosen_layers() -> tuple[tuple[str, str, str], ...]:
    """Every layer's first setting, ways, and what else the first one's tiles may do."""
    more = "GROUP=16", "GROUP=4", "SPAN=64", "LATE=1 TURNS=0"
    return tuple(
        (name, "wgmma_maps", changes)
        for name, (_, _, of) in _BLOCKS.items()
        for changes in ("", *map(_words, of), *more)
    )
