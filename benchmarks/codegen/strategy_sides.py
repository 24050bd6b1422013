"""Problems of the round `sides`: layers whose epilogue tells the parts of their rows apart.

A gate for each image of a diffusion transformer's block, a ViT's positions for all images, results
that are stored by heads; beside each of the first two the same product with a residual alone, whose
rows are one axis anyway. In bfloat16.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from strategy_calls import Call, called
from strategy_loops import Problem


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


PROBLEMS: dict[str, Callable[[], Problem]] = {
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
CHOSEN: tuple[tuple[str, str, str], ...] = tuple(
    (name, strategy, changes)
    for name in PROBLEMS
    for strategy, changes in (
        *(("wgmma_maps", one) for one in (_FROM_REGISTERS if "heads" in name else _WAYS)),
        ("mma_tiles", ""),
    )
)
