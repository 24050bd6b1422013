"""Settings of the round `waves`: blocks that run all at once, and streams that compute.

A last wave that fills a part of the device takes as long as a full one; what a thread computes
between a read and a write is time in which it asks for nothing.
"""

from collections.abc import Callable

import torch.nn.functional as F

import strategies.reductions as reductions
from strategies.calls import called
from strategies.loops import Problem

_SHAPE = (4096, 393216)
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "selu": lambda: called("selu", F.selu, _SHAPE),
    "gelu": lambda: called("gelu", F.gelu, _SHAPE),
    "softplus": lambda: called("softplus", F.softplus, _SHAPE),
    "channel_moments": reductions.channel_moments,
}
_COMPUTING = tuple(
    ("pointwise_tiles", changes)
    for changes in (
        "",
        "STORES=0",
        "THREADS=128",
        "THREADS=128 STORES=0",
        "THREADS=128 UNROLL=2 STORES=0",
        "UNROLL=2 STORES=0",
        "THREADS=512",
        "LOADS=1",
    )
)
WAVES = {
    "layer_norm": (
        *(
            ("split_rows_tiles", changes)
            for changes in (
                "",
                "SPLITS=49",
                "SPLITS=66",
                "SPLITS=16",
                "SPLITS=99",
                "SPLITS=256",
                "UNROLL=8",
                "THREADS=512 SPLITS=16",
                "THREADS=512 SPLITS=33",
                "SPLITS=66 UNROLL=2",
                "ROWS=8",
                "DEPTH=2",
                "LOADS=1",
            )
        ),
        ("split_rows", ""),
    ),
    "selu": _COMPUTING,
    "softplus": _COMPUTING,
    "gelu": _COMPUTING,
    "swish": _COMPUTING,
    "relu": _COMPUTING,
    "channel_moments": tuple(
        ("columns_split", changes)
        for changes in (
            "",
            "UNROLL=8",
            "UNROLL=2",
            "SPLITS=264",
            "SPLITS=792",
            "TY=32 SPLITS=132",
            "TY=8 SPLITS=792",
            "LOADS=1",
        )
    ),
    "batch_norm": (
        *(
            ("split_rows_tiles", changes)
            for changes in ("", "SPLITS=64", "SPLITS=33", "SPLITS=512", "SPLITS=8", "THREADS=128")
        ),
        ("split_rows", ""),
    ),
    "frobenius_norm": (("split_rows_tiles", ""), ("split_rows_tiles", "THREADS=128")),
}
