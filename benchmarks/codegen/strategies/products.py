"""Problems of the round `products`: matrix products of the shapes that suites and models have.

Truth is the same call in float64, rows by rows; `eager` is the library's product.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from strategies.calls import called
from strategies.loops import Problem

_F32, _F16, _BF16 = torch.float32, torch.float16, torch.bfloat16
# Name, type, and (M, N, K) of a product x @ y with y stored as K x N.
_PLAIN = (
    ("mm_1024", _F32, (1024, 1024, 1024)),
    ("mm_2048", _F32, (2048, 2048, 2048)),
    ("mm_4096", _F32, (4096, 4096, 4096)),
    ("mm_small_depth", _F32, (16384, 16384, 64)),
    ("mm_few_rows", _F32, (64, 16384, 16384)),
    ("mm_few_columns", _F32, (16384, 16, 16384)),
    ("mm_long_depth", _F32, (256, 256, 131072)),
    ("mm_large_small_depth", _F32, (32768, 32768, 64)),
    ("mm_longer_depth", _F32, (256, 256, 524288)),
    ("mm_tall", _F32, (1048576, 768, 256)),
    ("mm_odd", _F32, (2047, 1021, 1999)),
    ("half_512", _F16, (512, 512, 512)),
    ("half_2048", _F16, (2048, 2048, 2048)),
    ("half_4096", _F16, (4096, 4096, 4096)),
    ("bfloat_4096", _BF16, (4096, 4096, 4096)),
)


def _plain(name: str, dtype: torch.dtype, sizes: tuple[int, int, int]) -> Problem:
    rows, columns, depth = sizes
    shapes = (rows, depth), (depth, columns)
    return called(name, torch.matmul, *shapes, dtype=dtype, products=True)


def _layer(name: str, dtype: torch.dtype, sizes: tuple[int, int, int]) -> Problem:
    """A linear layer with bias and GELU."""
    rows, columns, depth = sizes

    def call(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias))

    shapes = (rows, depth), (columns, depth), (columns,)
    return called(name, call, *shapes, dtype=dtype, products=True)


def _batched(name: str, sizes: tuple[int, int, int, int]) -> Problem:
    batch, rows, columns, depth = sizes
    shapes = (batch, rows, depth), (batch, depth, columns)
    # Every image has a factor of its own, so the truth is made at once.
    return called(name, torch.bmm, *shapes, apart=False, products=True)


def _turned(name: str, sizes: tuple[int, int, int]) -> Problem:
    """X @ y with both factors' rows along the depth."""
    rows, columns, depth = sizes
    shapes = (rows, depth), (columns, depth)
    return called(name, lambda x, y: x @ y.t(), *shapes, products=True)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{name: lambda one=(name, *rest): _plain(*one) for name, *rest in _PLAIN},
    "layer_gelu_half": lambda: _layer("layer_gelu_half", _F16, (16384, 2048, 2048)),
    "layer_gelu": lambda: _layer("layer_gelu", _F32, (16384, 2048, 2048)),
    "mm_long_depth_rows": lambda: _turned("mm_long_depth_rows", (256, 256, 131072)),
    "bmm_128": lambda: _batched("bmm_128", (128, 512, 1024, 2048)),
}

_BOTH = "streamed_both"
# Round `depth`: long sums of few results, old ways and new, and the most results of short sums.
DEPTH: tuple[tuple[str, str, str], ...] = (
    ("mm_long_depth", _BOTH, ""),
    ("mm_long_depth", _BOTH, "AHEAD=0"),
    ("mm_long_depth", _BOTH, "COPIES=0"),
    ("mm_long_depth", _BOTH, "COPIES=0 STAGES=3 AHEAD=0"),
    ("mm_long_depth", _BOTH, "TILE=64128 SPLITS=16"),
    ("mm_long_depth", "streamed_wgmma_splits", ""),
    ("mm_long_depth_rows", _BOTH, ""),
    ("mm_long_depth_rows", _BOTH, "AHEAD=0"),
    ("mm_long_depth_rows", _BOTH, "COPIES=0"),
    ("mm_long_depth_rows", "streamed_wgmma_splits", ""),
    ("mm_longer_depth", _BOTH, ""),
    ("mm_longer_depth", _BOTH, "COPIES=0"),
    ("mm_1024", "split_wgmma", ""),
    ("mm_1024", _BOTH, ""),
    ("mm_1024", _BOTH, "COPIES=0"),
    ("mm_small_depth", "split_wgmma", ""),
    ("mm_small_depth", "split_wgmma", "STORES=0"),
    ("mm_small_depth", "split_wgmma", "TILE=128128"),
    ("mm_small_depth", "split_wgmma", "TILE=128128 STORES=0"),
    ("mm_small_depth", "streamed_wgmma", ""),
    ("mm_small_depth", "streamed_wgmma", "STORES=1"),
)
