"""The settings that rounds try: (part of a strategy's name, changes to its first setting)."""

import strategies.windows as windows

# What each loop of windows is tried with; its strategies' first settings come first.
_WINDOWS = (
    ("window_strips", ""),
    ("window_lines", ""),
    ("pointwise_tiles", ""),
    ("window_strips", "THREADS=128"),
    ("window_lines", "THREADS=256"),
    ("window_strips", "VECTOR=2"),
    ("window_lines", "SPREAD=1"),
)
# Outputs that lie far apart, and what was taken for them before: more is asked there.
_FAR_APART = (
    ("window_lines", "THREADS=64"),
    ("window_lines", "WIDTH=64"),
    ("window_lines", "WIDTH=64 THREADS=256 UNROLL=8"),
    ("window_lines", "UNROLL=8"),
    ("window_lines", "LOADS=1"),
    ("window_strips", "VECTOR=1 THREADS=128"),
)
# Of reads one line apart alone no window is made.
_WINDOWLESS = (
    ("pointwise_tiles", ""),
    ("pointwise_tiles", "UNROLL=2"),
)

TURNED = (
    ("pointwise_transposed", ""),
    ("pointwise_tiles", ""),
    ("pointwise_transposed", "ALONG=64"),
    ("pointwise_transposed", "ALONG=256 UNROLL=8"),
    ("pointwise_transposed", "THREADS=128"),
    ("pointwise_transposed", "THREADS=512"),
    ("pointwise_transposed", "VECTOR=2 UNROLL=8"),
    ("pointwise_transposed", "STORES=0"),
)


# What a stream of reads and writes may depend on: bytes under way, cache hints, tile and block.
_STREAMED = tuple(
    ("pointwise_tiles", changes)
    for changes in (
        "",
        "STORES=0",
        "LOADS=1",
        "LOADS=1 STORES=0",
        "UNROLL=2",
        "UNROLL=2 STORES=0",
        "UNROLL=1",
        "UNROLL=1 STORES=0",
        "UNROLL=8 STORES=0",
        "THREADS=128 STORES=0",
        "THREADS=128 UNROLL=2 STORES=0",
        "THREADS=128 UNROLL=1 STORES=0",
        "THREADS=512 STORES=0",
        "THREADS=512 UNROLL=2 STORES=0",
        "THREADS=512 UNROLL=1 STORES=0",
        "THREADS=1024 UNROLL=1 STORES=0",
        "THREADS=1024 UNROLL=4 STORES=0",
        "VECTOR=1 LOADS=1 STORES=0",
        "VECTOR=2 STORES=0",
        "THREADS=512 UNROLL=1 STORES=1",
        "THREADS=1024 UNROLL=1 STORES=1",
        "",
    )
)
_SPLIT = tuple(
    ("split_rows", changes)
    for changes in (
        "",
        "STORES=0",
        "LOADS=0",
        "LOADS=0 STORES=0",
        "UNROLL=2",
        "UNROLL=2 LOADS=0 STORES=0",
        "UNROLL=8 STORES=0",
        "THREADS=512 STORES=0",
        "THREADS=512 UNROLL=2 LOADS=0 STORES=0",
        "THREADS=1024 STORES=0",
        "THREADS=128 STORES=0",
        "SPLITS=1024 STORES=0",
        "SPLITS=4096 STORES=0",
        "SPLITS=16384 STORES=0",
        "SPLITS=65536 STORES=0",
        "SPLITS=4096 UNROLL=2 LOADS=0 STORES=0",
    )
)
_LONG_ODDROWS = (
    ("block_rows_stream", ""),
    ("block_rows_stream", "STORES=0"),
    ("block_rows_stream", "THREADS=512"),
    ("block_rows_stream", "UNROLL=8"),
    ("block_rows_stream", "LOADS=0 STORES=0"),
    ("cluster_rows_stream", ""),
    ("cluster_rows_stream", "CLUSTER=2"),
    ("cluster_rows_partly", ""),
    ("cluster_rows_partly", "CLUSTER=2"),
    ("cluster_rows_partly", "CLUSTER=4"),
    ("cluster_rows_partly", "CLUSTER=4 THREADS=512 BLOCKS=2"),
    ("cluster_rows_partly", "CLUSTER=8 UNROLL=8"),
    ("cluster_rows_registers", ""),
    ("cluster_rows_registers", "CLUSTER=2"),
    ("cluster_rows_registers", "CLUSTER=4"),
    ("wave_rows", ""),
    ("split_rows", ""),
)
_COLUMNS = tuple(
    ("columns_stream", changes)
    for changes in (
        "",
        "LOADS=0",
        "UNROLL=8",
        "UNROLL=8 LOADS=0",
        "TX=64",
        "TX=128",
        "TX=32",
        "TX=256 TY=4",
        "TY=4",
        "TY=2 UNROLL=8",
        "TX=64 TY=16",
        "TX=128 TY=8",
        "TX=64 UNROLL=8 LOADS=0",
    )
)
_PARTLY = tuple(
    f"CLUSTER={cluster} THREADS={threads} BLOCKS={blocks} UNROLL={unroll}"
    for cluster, threads, blocks, unroll in (
        (8, 512, 2, 4),
        (8, 512, 2, 2),
        (8, 512, 2, 8),
        (8, 256, 4, 4),
        (8, 256, 3, 4),
        (8, 256, 2, 8),
        (8, 1024, 1, 4),
        (8, 1024, 1, 2),
        (16, 512, 2, 4),
        (4, 512, 2, 4),
        (4, 256, 4, 4),
    )
)


# What is worth counting under Nsight Compute, with --counted: bytes that really moved.
COUNTED = (
    ("relu", "pointwise_tiles", ""),
    ("relu", "pointwise_tiles", "STORES=0"),
    ("batch_norm", "split_rows", ""),
    ("batch_norm", "grid_rows_ring", "GROUP=198 BLOCKS=3 UNROLL=2 LAG=0"),
    ("layer_norm", "split_rows", "THREADS=128"),
    ("l1_norm", "block_rows_stream", ""),
    ("l1_norm", "cluster_rows_stream", ""),
    ("l1_norm", "cluster_rows_partly", "CLUSTER=4"),
    ("l1_norm", "cluster_rows_registers", "CLUSTER=4"),
    ("instance_norm", "cluster_rows_partly", "CLUSTER=8"),
    ("group_norm", "grid_rows_ring", "GROUP=88 BLOCKS=2 UNROLL=4 LAG=0"),
    ("softmax", "partly_online", "CLUSTER=8 THREADS=512 BLOCKS=2"),
)


# First choices of row strategies since they were set, and what is beside each: hints, ends of rows
# that are peeled (VECTOR=1: not), rows that a cluster holds whole, groups that were never timed.
ROWS = {
    "l1_norm": (
        ("block_rows_stream", ""),
        ("block_rows_stream", "LOADS=0"),
        ("block_rows_stream", "UNROLL=2"),
        ("block_rows_stream", "THREADS=512"),
        ("block_rows_stream", "VECTOR=2 UNROLL=8"),
        ("block_rows_stream", "VECTOR=1 UNROLL=8"),
        ("block_rows_stream", "VECTOR=1 UNROLL=8 LOADS=0"),
        ("cluster_rows_stream", ""),
        ("cluster_rows_stream", "LOADS=0"),
        ("cluster_rows_stream", "CLUSTER=2"),
        ("cluster_rows_registers", ""),
        ("cluster_rows_registers", "THREADS=512"),
        ("cluster_rows_registers", "CLUSTER=2 THREADS=512"),
        ("cluster_rows_registers", "VECTOR=1 THREADS=512"),
        ("cluster_rows_partly", ""),
        ("cluster_rows_partly", "CLUSTER=8"),
        ("cluster_rows_partly", "THREADS=256 BLOCKS=3"),
        ("cluster_rows_partly", "VECTOR=1"),
    ),
    "softmax": (
        ("partly_online", ""),
        ("partly_online", "LOADS=0"),
        ("cluster_rows_stream_online", "LOADS=0"),
        ("grid_rows_ring_online", ""),
        ("grid_rows_ring_online", "UNROLL=2"),
    ),
    "instance_norm": (
        ("cluster_rows_partly", ""),
        ("cluster_rows_partly", "LOADS=0"),
        ("cluster_rows_stream", ""),
        ("cluster_rows_stream", "LOADS=0"),
        ("grid_rows_ring", ""),
        ("grid_rows_ring", "GROUP=11"),
    ),
    "group_norm": (
        ("grid_rows_ring", ""),
        ("grid_rows_ring", "UNROLL=2"),
        ("grid_rows_ring", "GROUP=132 BLOCKS=3 UNROLL=2"),
        ("grid_rows_ring", "GROUP=66 UNROLL=2"),
        ("cluster_rows_partly", ""),
        ("cluster_rows_partly", "CLUSTER=16"),
    ),
    "group_norm_medium": (
        ("cluster_rows_stream", ""),
        ("cluster_rows_stream", "LOADS=0"),
        ("cluster_rows_partly", ""),
        ("cluster_rows_partly", "CLUSTER=4"),
        ("cluster_rows_partly", "THREADS=256 BLOCKS=3"),
        ("cluster_rows_registers", ""),
        ("cluster_rows_registers", "THREADS=512"),
        ("grid_rows_ring", ""),
    ),
    "batch_norm": (
        ("grid_rows_ring", ""),
        ("grid_rows_ring", "GROUP=198 BLOCKS=3 UNROLL=2"),
        ("grid_rows_ring", "GROUP=264 BLOCKS=2 UNROLL=2"),
    ),
}


# Groups of blocks that keep most of a row, beside the fastest way known until then.
GROUPS = {
    "softmax": (
        ("cluster_rows_partly_online", ""),
        *(("grid_rows_partly_online", f"GROUP={group}") for group in (12, 11, 13, 8, 10)),
        *(("grid_rows_partly_online", changes) for changes in ("LOADS=1", "STORES=0", "UNROLL=2")),
    ),
    "instance_norm": (
        ("cluster_rows_partly", ""),
        *(("grid_rows_partly", f"GROUP={group}") for group in (8, 9, 10, 7, 6)),
        *(("grid_rows_partly", changes) for changes in ("LOADS=1", "STORES=0", "UNROLL=2")),
    ),
    "group_norm": (
        ("grid_rows_ring", ""),
        *(("grid_rows_partly", f"GROUP={group}") for group in (64, 66, 52, 44, 32, 62, 76)),
        *(("grid_rows_partly", f"GROUP=52 {hint}") for hint in ("LOADS=0", "UNROLL=2", "UNROLL=8")),
    ),
    "group_norm_medium": (
        ("cluster_rows_partly", ""),
        *(("grid_rows_partly", f"GROUP={group}") for group in (4, 5, 6)),
        *(("grid_rows_partly", f"GROUP=4 {hint}") for hint in ("LOADS=1", "UNROLL=2")),
    ),
    "layer_norm": (
        ("split_rows_tiles", ""),
        ("split_rows_tiles", "ROWS=4"),
        *(("grid_rows_partly", f"GROUP={group} UNROLL=2") for group in (132, 114, 66)),
    ),
    "l1_norm": (("cluster_rows_partly", ""), ("grid_rows_partly", "")),
}


# What shifted reads, element by element behind wide writes, leave of a scan's bandwidth.
SCANNED = tuple(
    ("scan_block_rows", changes)
    for changes in (
        "",
        "UNROLL=2",
        "VECTOR=2",
        "VECTOR=2 UNROLL=8",
        "VECTOR=1 UNROLL=8",
        "THREADS=512",
        "STORES=0",
    )
)


# Rows that are read twice, written by small tiles, beside large shares; and what is not hinted.
TILED = {
    name: (
        *(
            ("split_rows_tiles", changes)
            for changes in ("", "DEPTH=2", "THREADS=512", "THREADS=128", "UNROLL=2", "STORES=0")
        ),
        ("split_rows", ""),
    )
    for name in ("batch_norm", "frobenius_norm", "group_norm")
} | {
    "layer_norm": (
        *(
            ("split_rows_tiles", f"ROWS={rows}{changes}")
            for rows in (1, 2, 4, 8, 16)
            for changes in ("", " THREADS=512", " DEPTH=2", " VECTOR=2")
        ),
        ("split_rows", ""),
    ),
    "cumsum": tuple(
        ("scan_block_rows", changes)
        for changes in ("", "LOADS=0", "UNROLL=2", "UNROLL=2 LOADS=0", "THREADS=512 LOADS=0")
    ),
    "rms_norm": tuple(
        ("columns_registers", changes) for changes in ("", "LOADS=1", "STORES=0", "TY=4", "TY=16")
    ),
    "swish": (("pointwise_tiles", ""), ("pointwise_tiles", "THREADS=128")),
}


def streams() -> tuple[tuple[str, str, str], ...]:
    """(problem, strategy, changes) of the round that looks at plain streams and long rows."""
    lines = {
        "relu": _STREAMED,
        "swish": _STREAMED[:10],
        "sum_middle": _COLUMNS,
        "batch_norm": _SPLIT,
        "frobenius_norm": _SPLIT,
        "l1_norm": _LONG_ODDROWS,
        "instance_norm": tuple(("cluster_rows_partly", each) for each in _PARTLY),
        "softmax": tuple(
            ("partly_online", f"{each}{hints}") for each in _PARTLY for hints in ("", " STORES=0")
        ),
    }
    return tuple((name, *one) for name, each in lines.items() for one in each)


def chosen_windows() -> tuple[tuple[str, str, str], ...]:
    """(problem, strategy, changes) of the round of windows."""
    tried = dict.fromkeys(windows.PROBLEMS, _WINDOWS)
    tried["depthwise_tall"], tried["turned"] = _WINDOWLESS, TURNED
    tried["average_pool_2d"] = (*_WINDOWS, *_FAR_APART)
    return tuple((name, *one) for name, each in tried.items() for one in each)
