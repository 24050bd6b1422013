"""Reads kernel records from a trace that torch's profiler exported.

CUPTI's records as Kineto writes them: durations in microseconds, grid, block, registers, and the
shared memory of a block, static and dynamic together. Copies and fills count as work of their own.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod

from kernelwright.tools.profile.names import plain_name
from kernelwright.tools.profile.spans import Span

_COPIES = {"gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def device_spans(trace: str) -> tuple[Span, ...]:
    """What ran on the device, in the order it began.

    Raises:
        ValueError: When the text is no trace.
    """
    told = json.loads(trace)
    if not isinstance(told, dict) or not isinstance(told.get("traceEvents"), list):
        raise ValueError("the profiler's trace has no events")
    events = [event for event in told["traceEvents"] if isinstance(event, dict)]
    work = [event for event in events if event.get("cat") in {"kernel", *_COPIES}]
    return tuple(_span(event) for event in sorted(work, key=lambda event: float(event["ts"])))


def _span(event: Mapping[str, object]) -> Span:
    given = event.get("args")
    facts: Mapping[str, object] = given if isinstance(given, dict) else {}
    name = _COPIES.get(str(event.get("cat"))) or plain_name(str(event["name"]))
    return Span(
        kernel=name,
        time_ms=float(str(event.get("dur", 0.0))) / 1e3,
        grid_blocks=_extent(facts.get("grid")),
        block_threads=_extent(facts.get("block")),
        registers=_whole(facts.get("registers per thread")),
        shared_bytes=_whole(facts.get("shared memory")),
    )


def _extent(value: object) -> int | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    return prod(int(part) for part in value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
