"""Turns what was measured of a candidate into evidence: where a call's time goes, and counters.

Kernel records are read from a trace that torch's profiler exported: CUPTI's as Kineto writes them,
durations in microseconds, grid, block, registers, and the shared memory of a block, static and
dynamic together. Copies and fills count as work of their own. The pieces of several calls become
times of kernels.

Readings have the names that everybody cites. One of a single kernel is called `kernel.reading`: a
field's name without its unit, which stands in `unit`. Of a kernel with several launches the longest
one is read.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from statistics import median

from kernelwright.tools.profile.host_counters import host_evidence
from kernelwright.tools.profile.ncu_report import LATENCY, METRICS, STALL_PREFIX, plain_name
from kernelwright.tools.types.profile import (
    Clock,
    Evidence,
    KernelCounters,
    KernelTime,
    Missing,
    Profile,
    Rank,
    RuleResult,
)
from kernelwright.tools.types.value import Value


class Span(Value):
    """One launch: `kernel` is a plain name; geometry where the clock sees it."""

    kernel: str
    time_ms: float
    grid_blocks: int | None = None
    block_threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None


def kernel_times(
    calls: Sequence[Sequence[Span]],
    own: Collection[str],
    clock: Clock,
    whole_ms: float | None = None,
) -> tuple[KernelTime, ...]:
    """The time of each kernel in a call, the largest first; medians over calls.

    Args:
        calls: The spans of each call.
        own: Names of the candidate's kernels.
        clock: Which one measured them.
        whole_ms: What `share` is of; the sum of the kernels' times by default.
    """
    names = dict.fromkeys(span.kernel for call in calls for span in call)
    found = {name: _of(name, calls) for name in names}
    whole = whole_ms or sum(time for time, _ in found.values()) or 1.0
    times = []
    for name, (time_ms, launches) in found.items():
        longest = _longest(name, calls)
        times.append(
            KernelTime(
                kernel=name,
                clock=clock,
                own=name in own,
                time_ms=time_ms,
                share=time_ms / whole,
                launches=launches,
                grid_blocks=longest.grid_blocks,
                block_threads=longest.block_threads,
                registers=longest.registers,
                shared_bytes=longest.shared_bytes,
            )
        )
    return tuple(sorted(times, key=lambda item: -item.time_ms))


def _of(name: str, calls: Sequence[Sequence[Span]]) -> tuple[float, int]:
    """Milliseconds a call and launches a call."""
    sums = [sum(span.time_ms for span in call if span.kernel == name) for call in calls]
    counts = [sum(span.kernel == name for span in call) for call in calls]
    return median(sums), round(median(counts))


def _longest(name: str, calls: Sequence[Sequence[Span]]) -> Span:
    spans = (span for call in calls for span in call if span.kernel == name)
    return max(spans, key=lambda span: span.time_ms)


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


NSIGHT = "Nsight Compute"
CUPTI = "CUPTI activity"
CLOCK = "wall clock of each launch"
# Less of a warp's time than this is no reason to wait.
_TELLING_STALL = 0.01
_WORDS = 240


def measured_evidence(profile: Profile) -> tuple[Evidence, ...]:
    """Every reading of a profile; a missing step is one too, with its remedy."""
    longest = {item.kernel: item for item in sorted(profile.counters, key=_time_of)}
    return (
        *(item for time in profile.times for item in _timed(time)),
        *(_labelled(item, profile.outside) for one in longest.values() for item in _counted(one)),
        *_whole_call(profile),
        *(host_evidence(profile.host) if profile.host is not None else ()),
        *(_ruled(rule) for rule in _rules(profile, longest) if rule.speedup_fraction is not None),
        *profile.code,
        *(_missing(missing) for missing in profile.missing),
    )


def _missing(missing: Missing) -> Evidence:
    source = f"{missing.why}; {missing.remedy}"
    return Evidence(name=missing.step, rank=Rank.UNAVAILABLE, value=None, unit="", source=source)


def _labelled(item: Evidence, outside: str) -> Evidence:
    """With its source, who could have reached this machine when it was counted."""
    return item.model_copy(update={"source": f"{item.source}; {outside}"}) if outside else item


def _timed(time: KernelTime) -> Iterator[Evidence]:
    source = CUPTI if time.clock == "cupti" else CLOCK
    for name, value, unit in (
        ("time", time.time_ms, "ms"),
        ("time_share", time.share, ""),
        ("launches", time.launches, "a call"),
        ("grid_blocks", time.grid_blocks, "blocks"),
        ("block_threads", time.block_threads, "threads"),
        ("shared_used", time.shared_bytes, "bytes per block"),
    ):
        if value is not None:
            yield _evidence(f"{time.kernel}.{name}", Rank.MEASURED, value, unit, source)


def _counted(item: KernelCounters) -> Iterator[Evidence]:
    for metric in METRICS:
        value = getattr(item, metric.field)
        if value is not None:
            name = f"{item.kernel}.{reading_name(metric.field)}"
            yield _evidence(name, Rank.MEASURED, value, metric.unit, f"{NSIGHT} {metric.name}")
    for reason, share in item.stalls:
        if share >= _TELLING_STALL:
            source = f"{NSIGHT} {STALL_PREFIX}{reason} / {LATENCY}"
            yield _evidence(f"{item.kernel}.stall_{reason}", Rank.DERIVED, share, "", source)
    if item.shared_wavefronts and item.shared_bank_conflicts is not None:
        share = item.shared_bank_conflicts / item.shared_wavefronts
        source = f"{NSIGHT} shared bank conflicts / shared wavefronts"
        yield _evidence(f"{item.kernel}.shared_conflict_share", Rank.DERIVED, share, "", source)


def _whole_call(profile: Profile) -> Iterator[Evidence]:
    """Readings of the call as a whole, where every launch was counted."""
    counters = profile.counters
    total_ms = sum(_time_of(item) for item in counters)
    if not counters or not total_ms:
        return
    main = max(counters, key=_time_of)
    same = sum(_time_of(item) for item in counters if item.kernel == main.kernel)
    words = f"{main.kernel}, of the counted launches"
    yield _evidence("dominant_share", Rank.DERIVED, same / total_ms, "", words)
    moved = [(item.dram_read_bytes, item.dram_written_bytes) for item in counters]
    if profile.launches == len(counters) and all(None not in pair for pair in moved):
        total = sum(read + written for read, written in moved if read is not None and written)
        source = f"{NSIGHT} dram__bytes_read.sum + dram__bytes_write.sum, all launches of a call"
        yield _evidence("dram_traffic", Rank.DERIVED, total, "bytes", source)


def _rules(profile: Profile, longest: dict[str, KernelCounters]) -> Iterator[RuleResult]:
    """What the rules said of the launches that are read."""
    launches = {item.launch for item in longest.values()}
    return (rule for rule in profile.rules if rule.launch in launches)


def _ruled(rule: RuleResult) -> Evidence:
    of = "of the unit it looked at" if rule.local else "of the kernel"
    source = f"{NSIGHT} rule, its estimate {of}: {rule.words[:_WORDS]}"
    value = rule.speedup_fraction or 0.0
    return _evidence(f"{rule.kernel}.rule_{rule.rule}", Rank.DERIVED, value, "", source)


def reading_name(field: str) -> str:
    """A field's name without its unit."""
    for unit in ("_ms", "_bytes", "_cycles"):
        field = field.removesuffix(unit)
    return field


def _time_of(item: KernelCounters) -> float:
    return item.counted_time_ms or 0.0


def _evidence(name: str, rank: Rank, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=rank, value=value, unit=unit, source=source)
