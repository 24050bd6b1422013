"""What `gpu_strategies.py` measures: problems by name, and rounds that fit one visit."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

import strategies.convolutions as convolutions
import strategies.halves as halves
import strategies.layers as layers
import strategies.norms as norms
import strategies.products as products
import strategies.reductions as reductions
import strategies.turned as turned
import strategies.waves as waves
import strategies.windows as windows
from strategies.loops import Problem
from strategies.settings import (
    COUNTED,
    GROUPS,
    ROWS,
    SCANNED,
    TILED,
    TURNED,
    chosen_windows,
    streams,
)


def problems() -> dict[str, Callable[[], Problem]]:
    """Every problem by name, made when it is its turn."""
    return {
        "softmax": norms.softmax,
        "layer_norm": norms.layer_norm,
        "group_norm": lambda: norms.group_norm("group_norm", 112, 8, 8, 512 * 512),
        "group_norm_medium": lambda: norms.group_norm("group_norm_medium", 64, 32, 8, 128 * 128),
        "instance_norm": norms.instance_norm,
        "batch_norm": norms.batch_norm,
        "rms_norm": norms.rms_norm,
        "sum_middle": lambda: reductions.middle("sum_middle", "sum", "float32", torch.sum),
        "argmax_middle": lambda: reductions.middle(
            "argmax_middle", "argmax", "int64", torch.argmax
        ),
        "sum_all": reductions.total,
        "cumsum": reductions.cumulative_sum,
        "cumsum_exclusive": reductions.exclusive_sum,
        "huber": reductions.huber,
        "cross_entropy": reductions.cross_entropy,
        "swish": reductions.swish,
        "relu": reductions.relu,
        "l1_norm": norms.l1_norm,
        "frobenius_norm": norms.frobenius_norm,
        "softmax_short": lambda: norms.softmax(1 << 20, 256),
        "softmax_medium": lambda: norms.softmax(1 << 15, 16384),
        "layer_norm_medium": lambda: norms.layer_norm(1 << 16, 4096),
        **windows.PROBLEMS,
        **windows.SUMS,
        **windows.CHANNELS,
        **waves.PROBLEMS,
        **turned.PROBLEMS,
        **products.PROBLEMS,
        **halves.PROBLEMS,
        **layers.LAYERS,
        **layers.SIDES,
        **convolutions.PROBLEMS,
    }


@dataclass(frozen=True)
class Round:
    """What to measure in one go: problems, words in strategies' names, settings, seconds."""

    problems: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    settings: int = 6
    seconds: float = 540
    # (problem, part of a strategy's name, "GROUP=48 BLOCKS=3"): these settings and no others.
    chosen: tuple[tuple[str, str, str], ...] = ()


ROUNDS = {
    "all": Round(),
    "window_sums": Round(problems=tuple(windows.SUMS), seconds=120),
    "channel_windows": Round(problems=tuple(windows.CHANNELS), settings=14, seconds=240),
    "windows": Round(problems=tuple(windows.PROBLEMS), seconds=75, chosen=chosen_windows()),
    "streams": Round(
        problems=(
            "relu",
            "swish",
            "sum_middle",
            "batch_norm",
            "frobenius_norm",
            "l1_norm",
            "instance_norm",
            "softmax",
            "turned",
        ),
        seconds=150,
        chosen=(*streams(), *(("turned", *one) for one in TURNED)),
    ),
    "rows": Round(
        problems=tuple(ROWS),
        seconds=40,
        chosen=tuple((name, *one) for name, each in ROWS.items() for one in each),
    ),
    "groups": Round(
        problems=tuple(GROUPS),
        seconds=60,
        chosen=tuple((name, *one) for name, each in GROUPS.items() for one in each),
    ),
    "tiles": Round(
        problems=tuple(TILED),
        seconds=40,
        chosen=tuple((name, *one) for name, each in TILED.items() for one in each),
    ),
    "waves": Round(
        problems=tuple(waves.WAVES),
        seconds=60,
        chosen=tuple((name, *one) for name, each in waves.WAVES.items() for one in each),
    ),
    "convolutions": Round(
        problems=tuple(convolutions.PROBLEMS), seconds=360, chosen=convolutions.CHOSEN
    ),
    "products": Round(problems=tuple(products.PROBLEMS), settings=12, seconds=300),
    "halves": Round(
        problems=tuple(halves.PROBLEMS), seconds=120, chosen=halves.chosen_halves()
    ),
    "layers": Round(problems=tuple(layers.LAYERS), seconds=70, chosen=layers.chosen_layers()),
    "sides": Round(problems=tuple(layers.SIDES), seconds=50, chosen=layers.CHOSEN_SIDES),
    "depth": Round(
        problems=tuple(dict.fromkeys(name for name, *_ in products.DEPTH)),
        seconds=60,
        chosen=products.DEPTH,
    ),
    "turned": Round(
        problems=tuple(turned.TURNED),
        seconds=60,
        chosen=tuple((name, *one) for name, each in turned.TURNED.items() for one in each),
    ),
    "scans": Round(
        problems=("cumsum", "cumsum_exclusive"),
        seconds=30,
        chosen=tuple((name, *one) for name in ("cumsum", "cumsum_exclusive") for one in SCANNED),
    ),
    "counted": Round(
        problems=tuple(dict.fromkeys(name for name, *_ in COUNTED)), seconds=60, chosen=COUNTED
    ),
    "long": Round(
        problems=(
            "softmax",
            "layer_norm",
            "group_norm",
            "instance_norm",
            "batch_norm",
            "group_norm_medium",
            "argmax_middle",
            "sum_middle",
            "cumsum",
        ),
        strategies=("ring", "cluster_rows_stream", "cluster_rows_registers", "wave", "split",
                    "columns", "scan"),
        settings=8,
        seconds=110,
    ),
    "long2": Round(
        problems=("softmax", "layer_norm", "instance_norm", "group_norm", "batch_norm"),
        seconds=75,
        chosen=(
            ("softmax", "partly_online", ""),
            ("softmax", "partly_online", "BLOCKS=2 UNROLL=8"),
            ("softmax", "partly_online", "UNROLL=8"),
            ("softmax", "partly_online", "BLOCKS=4"),
            ("softmax", "partly_online", "CLUSTER=8 THREADS=512 BLOCKS=2"),
            ("softmax", "grid_rows_ring_online", ""),
            ("softmax", "grid_rows_ring_online", "GROUP=32 BLOCKS=2 UNROLL=2 LAG=1"),
            ("softmax", "grid_rows_ring_online", "GROUP=48 BLOCKS=3 UNROLL=2 LAG=1"),
            ("softmax", "grid_rows_ring_online", "GROUP=48 BLOCKS=4 UNROLL=2 LAG=0"),
            ("softmax", "grid_rows_ring_online", "GROUP=32 BLOCKS=3 UNROLL=2 LAG=0"),
            ("softmax", "grid_rows_ring_online", "GROUP=24 BLOCKS=2 UNROLL=4 LAG=0"),
            ("softmax", "wave_rows_online", "UNROLL=8 BLOCKS=3 TILES=12"),
            ("softmax", "cluster_rows_stream_online", ""),
            ("layer_norm", "split_rows", "THREADS=128"),
            ("instance_norm", "cluster_rows_partly", ""),
            ("instance_norm", "cluster_rows_partly", "CLUSTER=8"),
            ("instance_norm", "cluster_rows_partly", "BLOCKS=2 CLUSTER=16"),
            ("instance_norm", "grid_rows_ring", ""),
            ("instance_norm", "grid_rows_ring", "GROUP=32 BLOCKS=3 UNROLL=2 LAG=1"),
            ("instance_norm", "grid_rows_ring", "GROUP=22 BLOCKS=2 UNROLL=2 LAG=1"),
            ("instance_norm", "grid_rows_ring", "GROUP=11 BLOCKS=2 UNROLL=4 LAG=0"),
            ("group_norm", "grid_rows_ring", ""),
            ("group_norm", "grid_rows_ring", "GROUP=88 BLOCKS=2 UNROLL=4 LAG=0"),
            ("group_norm", "grid_rows_ring", "GROUP=128 BLOCKS=4 UNROLL=2 LAG=0"),
            ("group_norm", "grid_rows_ring", "GROUP=99 BLOCKS=3 UNROLL=2 LAG=0"),
            ("batch_norm", "grid_rows_ring", ""),
            ("batch_norm", "grid_rows_ring", "GROUP=66 BLOCKS=2 UNROLL=4 LAG=0"),
            ("batch_norm", "grid_rows_ring", "GROUP=132 BLOCKS=2 UNROLL=4 LAG=0"),
            ("batch_norm", "grid_rows_ring", "GROUP=264 BLOCKS=2 UNROLL=4 LAG=0"),
            ("batch_norm", "grid_rows_ring", "GROUP=198 BLOCKS=3 UNROLL=2 LAG=0"),
            ("batch_norm", "grid_rows_ring", "GROUP=264 BLOCKS=2 UNROLL=4 LAG=0 RETAIN=0"),
            ("batch_norm", "split_rows", "VECTOR=2 UNROLL=8 SPLITS=128 LOADS=0"),
        ),
    ),
}  # fmt: skip
