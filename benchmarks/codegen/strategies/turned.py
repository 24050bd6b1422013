"""Settings of the round `turned`: rows that are read as they lie and stored beside each other."""

from collections.abc import Callable

import torch

from strategies.calls import called
from strategies.loops import Problem


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).softmax(1)


def _norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = x.transpose(1, 2)
    spread, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(spread + 1e-5) * weight[:, None]


# Images, positions, channels: planes of 129 x 129 and 128 x 128, and two norms of channels.
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "softmax_turned_odd": lambda: called("softmax_turned_odd", _softmax, (128, 16641, 128)),
    "softmax_turned": lambda: called("softmax_turned", _softmax, (128, 16384, 128)),
    "norm_turned": lambda: called("norm_turned", _norm, (128, 3136, 384), (384,)),
    "norm_turned_wide": lambda: called("norm_turned_wide", _norm, (64, 3136, 1024), (1024,)),
    "softmax_turned_few": lambda: called("softmax_turned_few", _softmax, (64, 262144, 16)),
}  # fmt: skip
_TRIED = (
    ("rows_turned", ""),
    ("rows_turned", "THREADS=256"),
    ("rows_turned", "THREADS=128"),
    ("rows_turned", "STORES=0"),
)
TURNED = {
    "softmax_turned_odd": (
        *_TRIED,
        ("rows_turned", "THREADS=256 LANES=4"),
        ("rows_turned", "LANES=16"),
        ("rows_turned", "LANES=32"),
        ("rows_turned", "THREADS=256 ROWS=32"),
        ("rows_turned", "ROWS=128"),
        ("rows_turned", "LOADS=1"),
        ("rows_turned_online", ""),
        ("warp_rows", ""),
    ),
    "softmax_turned": (
        *_TRIED,
        ("rows_turned", "THREADS=256 ROWS=32"),
        ("rows_turned", "ROWS=128"),
        ("rows_turned_online", ""),
    ),
    "norm_turned": (
        *_TRIED,
        ("rows_turned", "THREADS=256 ROWS=16"),
        ("rows_turned", "ROWS=64"),
        ("rows_turned", "LANES=32"),
    ),
    "norm_turned_wide": (
        *_TRIED,
        ("rows_turned", "THREADS=256 ROWS=8"),
        ("rows_turned", "ROWS=32"),
    ),
    "softmax_turned_few": (
        *_TRIED,
        ("rows_turned", "THREADS=256 LANES=2"),
        ("rows_turned", "THREADS=256 LANES=1 ROWS=256"),
        ("rows_turned", "ROWS=256"),
        ("warp_rows", "LANES=1"),
    ),
}
