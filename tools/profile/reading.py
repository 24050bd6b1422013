"""Reads what `ncu --import REPORT --csv --page raw --print-units base` prints.

Text of another program's process: the report itself lies where the profiled process could write,
so nothing of ours parses it. A column that is missing or says "no data" leaves its field None; a
text without a table is a ValueError.
"""

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence

from kernelwright.tools.profile.metrics import (
    LATENCY,
    METRICS,
    NOT_STALLED,
    STALL_PREFIX,
    STALL_SUFFIX,
)
from kernelwright.tools.profile.names import plain_name
from kernelwright.tools.types.profile import KernelCounters

Row = Mapping[str, str]


def read_counters(text: str, own: Collection[str]) -> tuple[KernelCounters, ...]:
    """One value a launch, in order; the longest one is marked.

    Args:
        text: What ncu printed, its own messages included.
        own: Names of the candidate's kernels.

    Raises:
        ValueError: When there is no table in it.
    """
    header, _units, *lines = rows(text) or ([], [])
    if "Kernel Name" not in header:
        raise ValueError("Nsight Compute printed no table of metrics")
    found = [
        _launch(dict(zip(header, line, strict=False)), number, own)
        for number, line in enumerate(lines)
    ]
    times = [item.counted_time_ms or 0.0 for item in found]
    longest = times.index(max(times)) if times else -1
    return tuple(
        item.model_copy(update={"dominant": number == longest}) for number, item in enumerate(found)
    )


def rows(text: str) -> list[list[str]]:
    """The lines of a table; ncu's messages begin with `==`, the program's with anything."""
    start = text.find('"ID",')
    return [] if start < 0 else [line for line in csv.reader(io.StringIO(text[start:])) if line]


def number(printed: str | None) -> float | None:
    """The number that ncu printed with thousands apart; None for a text, nan or infinity."""
    try:
        value = float((printed or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _launch(row: Row, launch: int, own: Collection[str]) -> KernelCounters:
    kernel = plain_name(row["Kernel Name"])
    values = {
        metric.field: value * metric.scale
        for metric in METRICS
        if (value := number(row.get(metric.name))) is not None
    }
    told: dict[str, object] = {
        "kernel": kernel,
        "launch": launch,
        "own": kernel in own,
        "grid_blocks": _product(row.get("Grid Size")),
        "block_threads": _product(row.get("Block Size")),
        "stalls": _stalls(row),
    }
    return KernelCounters.model_validate(told | values)


def _stalls(row: Row) -> tuple[tuple[str, float], ...]:
    """Why warps wait, as shares of the time between two issues, the largest first."""
    latency = number(row.get(LATENCY))
    if not latency:
        return ()
    shares = []
    for name, printed in row.items():
        reason = name.removeprefix(STALL_PREFIX).removesuffix(STALL_SUFFIX)
        whole = f"{STALL_PREFIX}{reason}{STALL_SUFFIX}" == name
        if whole and reason not in NOT_STALLED and (cycles := number(printed)) is not None:
            shares.append((reason.removesuffix("_stall"), cycles / latency))
    return tuple(sorted(shares, key=lambda share: -share[1]))


def _product(printed: str | None) -> int | None:
    """`(128, 2, 1)` as 256."""
    parts: Sequence[str] = (printed or "").strip("()").split(",")
    if not all(part.strip().isdigit() for part in parts):
        return None
    return math.prod(int(part) for part in parts)
