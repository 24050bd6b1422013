"""Problems of the rounds `layers` and `sides`: products of transformers' layers in bfloat16.

`layers` has those of a ViT-B and a BERT: 12,608 rows are no whole number of tiles, the 12,672
beside them are. `sides` has layers whose epilogue tells the parts of their rows apart: a gate for
each image of a diffusion transformer's block, a ViT's positions for all images, results that are
stored by heads; beside each of the first two the same product with a residual alone, whose rows are
one axis anyway.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from strategies.calls import Call, called
from strategies.halves import Way, words
from strategies.loops import Problem


def _gated(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    gate: torch.Tensor,
    residual: torch.Tensor,
) -> torch.Tensor:
    return residual + gate[:, None] * F.linear(x, weight, bias)


def _placed(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    places: torch.Tensor,
    residual: torch.Tensor,
) -> torch.Tensor:
    return F.linear(x, weight, bias) + (residual + places)


def _added(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    return F.linear(x, weight, bias) + residual


def _by_heads(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    images, rows, _ = x.shape
    made = F.linear(x, weight, bias).view(images, rows, -1, _HEAD)
    return made.transpose(1, 2).contiguous()


_HEAD = 64
# Images, their rows, columns and depth.
_BLOCK, _VIT, _HEADS = (32, 256, 1152, 4608), (64, 197, 768, 3072), (16, 512, 768, 768)


def _problem(name: str, call: Call, sizes: tuple[int, int, int, int], *read: str) -> Problem:
    images, rows, columns, depth = sizes
    shapes = {
        "gate": (images, columns),
        "places": (rows, columns),
        "residual": (images, rows, columns),
    }
    factors = (images, rows, depth), (columns, depth), (columns,)
    others = (shapes[one] for one in read)
    return called(name, call, *factors, *others, dtype=torch.bfloat16, products=True)


SIDES: dict[str, Callable[[], Problem]] = {
    "side_gated": partial(_problem, "side_gated", _gated, _BLOCK, "gate", "residual"),
    "side_gated_plain": partial(_problem, "side_gated_plain", _added, _BLOCK, "residual"),
    "side_placed": partial(_problem, "side_placed", _placed, _VIT, "places", "residual"),
    "side_placed_plain": partial(_problem, "side_placed_plain", _added, _VIT, "residual"),
    "side_heads": partial(_problem, "side_heads", _by_heads, _HEADS),
}
_WAYS = (
    "",
    "TILE=128128 CLUSTER=2 TURNS=1 BOXES=2",
    "TILE=128128 CLUSTER=2 TURNS=0 BOXES=2",
    "TILE=64256 CLUSTER=2 TURNS=1 BOXES=0",
    "TILE=128192 CLUSTER=1 TURNS=0 BOXES=0",
    "TILE=128192 CLUSTER=1 TURNS=0 BOXES=2",
)
# Results by heads are described by no map.
_FROM_REGISTERS = ("", "TILE=128128 TURNS=1", "TILE=64256 TURNS=1", "TILE=128192 TURNS=0")
CHOSEN_SIDES: tuple[tuple[str, str, str], ...] = tuple(
    (name, strategy, changes)
    for name in SIDES
    for strategy, changes in (
        *(("wgmma_maps", one) for one in (_FROM_REGISTERS if "heads" in name else _WAYS)),
        ("mma_tiles", ""),
    )
)


_UP: tuple[Way, ...] = (
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
_ACROSS: tuple[Way, ...] = (
    *_UP[:4],
    (64256, 2, 1, 1, 2, 16),
    (128192, 1, 1, 0, 0, 16),
    (128192, 1, 1, 0, 2, 16),
)
# M, N, K; whether a GELU or a residual follows; what is tried.
_BLOCKS: dict[str, tuple[tuple[int, int, int], bool, tuple[Way, ...]]] = {
    "layer_vit_up": ((12608, 3072, 768), True, _UP),
    "layer_even_up": ((12672, 3072, 768), True, _UP),
    "layer_bert_up": ((8192, 3072, 768), True, _UP[:5]),
    "layer_vit_across": ((12608, 768, 768), False, _ACROSS),
    "layer_vit_down": ((12608, 768, 3072), False, _ACROSS),
}


def _up(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, weight, bias))


def _layer(name: str, sizes: tuple[int, int, int], has_gelu: bool) -> Problem:
    rows, columns, depth = sizes
    shapes = (rows, depth), (columns, depth), (columns,)
    if has_gelu:
        return called(name, _up, *shapes, dtype=torch.bfloat16, products=True)
    return called(name, _added, *shapes, (rows, columns), dtype=torch.bfloat16, products=True)


LAYERS: dict[str, Callable[[], Problem]] = {
    name: partial(_layer, name, sizes, has_gelu) for name, (sizes, has_gelu, _) in _BLOCKS.items()
}


def chosen_layers() -> tuple[tuple[str, str, str], ...]:
    """Every layer's first setting, ways, and what else the first one's tiles may do."""
    more = "GROUP=16", "GROUP=4", "SPAN=64", "LATE=1 TURNS=0"
    return tuple(
        (name, "wgmma_maps", changes)
        for name, (_, _, of) in _BLOCKS.items()
        for changes in ("", *map(words, of), *more)
    )
