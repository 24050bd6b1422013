"""Readings about one evaluated candidate, each with its rank and its source; occupancy among them.

Occupancy is how many threads of a kernel fit on a multiprocessor, and which resource is the limit,
by the rules of the CUDA C++ Programming Guide (Occupancy Calculator): registers are given out to
warps in units of 256, shared memory in units of 128 bytes with 1 KiB kept by the system for every
block.

Not here: what a profiler of the device measured (`tools.profile.measured`). That nobody asked one
is itself a reading, with what would help.
"""

import re

from kernelwright.profiles.load import Hardware
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Conditions,
    Evaluation,
    Evidence,
    LaunchShape,
    Rank,
    Task,
    Value,
)
from kernelwright.tools.types.idea import dynamic_bytes

_WARP = 32
_REGISTER_UNIT = 256
_SHARED_UNIT_BYTES = 128
_SHARED_RESERVED_BYTES = 1024


class Occupancy(Value):
    """Resident threads as a share of what the multiprocessor holds, and the limiting resource."""

    fraction: float
    blocks_per_sm: int
    limit: str


def occupancy(
    report: CompileReport, threads: int, hardware: Hardware, *, dynamic_bytes: int = 0
) -> Occupancy | None:
    """Occupancy of a kernel launched with blocks of `threads`; None where limits are unknown.

    `dynamic_bytes` is the launch's dynamic shared memory, which no compile report knows.
    """
    if hardware.threads_per_sm is None or hardware.registers_per_sm is None or threads < 1:
        return None
    warps = -(-threads // _WARP)
    limits = {
        "threads": hardware.threads_per_sm // (warps * _WARP),
        "blocks": hardware.blocks_per_sm or 16,
    }
    if report.registers:
        per_warp = _round_up(report.registers * _WARP, _REGISTER_UNIT)
        limits["registers"] = hardware.registers_per_sm // per_warp // warps
    if hardware.shared_kib_per_sm:
        asked = (report.shared_bytes or 0) + dynamic_bytes
        used = _round_up(asked, _SHARED_UNIT_BYTES) + _SHARED_RESERVED_BYTES
        limits["shared memory"] = hardware.shared_kib_per_sm * 1024 // used
    limit, blocks = min(limits.items(), key=lambda item: item[1])
    fraction = min(1.0, blocks * warps * _WARP / hardware.threads_per_sm)
    return Occupancy(fraction=fraction, blocks_per_sm=blocks, limit=limit)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


_BYTES_PER_GB = 1e9
REPORT, SHARED_UNIT = "compiler report", "bytes per block"


def evidence_for(
    evaluation: Evaluation, candidate: Candidate, task: Task, hardware: Hardware
) -> tuple[Evidence, ...]:
    """Every reading that can be made without counters; () for a candidate that was not timed."""
    if evaluation.median_ms is None:
        return ()
    return (
        *_roofline(evaluation.median_ms, task, hardware),
        *_resources(evaluation, candidate, hardware),
        *_telemetry(evaluation),
        _counters_missing(hardware),
    )


def _roofline(median_ms: float, task: Task, hardware: Hardware) -> tuple[Evidence, ...]:
    seconds = median_ms / 1e3
    bandwidth = task.bytes_moved / seconds / _BYTES_PER_GB
    rate = task.flops / seconds / 1e12
    ceiling = "measured ceiling" if hardware.measured else "data sheet's ceiling"
    working_set_mib = task.bytes_moved / 2**20
    return (
        _derived("achieved_bandwidth", bandwidth, "GB/s", "task bytes / median time"),
        _derived(
            "bandwidth_fraction", bandwidth / hardware.bandwidth_gb_s, "", f"against the {ceiling}"
        ),
        _derived("achieved_rate", rate, "TFLOP/s", "task FLOPs / median time"),
        _derived("rate_fraction", rate / hardware.fp32_tflops, "", f"against the {ceiling}"),
        _derived("floor_bytes", float(task.bytes_moved), "bytes", "inputs, weights, outputs once"),
        _derived(
            "working_set_per_cache",
            working_set_mib / hardware.cache_mib,
            "",
            "task bytes / last-level cache",
        ),
    )


def _resources(
    evaluation: Evaluation, candidate: Candidate, hardware: Hardware
) -> tuple[Evidence, ...]:
    readings = list(reported(evaluation))
    for report in evaluation.reports:
        shape = _largest(report.kernel, evaluation.launches)
        dynamic = dynamic_bytes(report.kernel, evaluation.launches)
        threads = shape.threads if shape else block_threads(candidate, report.kernel)
        held = occupancy(report, threads, hardware, dynamic_bytes=dynamic) if threads else None
        if held is not None:
            source = f"limited by {held.limit} at {threads} threads a block"
            readings.append(_static(f"{report.kernel}.occupancy", held.fraction, "", source))
        if held is not None and shape is not None and held.blocks_per_sm and hardware.sm_count:
            readings.append(_waves(shape, held.blocks_per_sm, hardware.sm_count))
    return (*readings, *_launches(evaluation, hardware))


def reported(evaluation: Evaluation) -> tuple[Evidence, ...]:
    """Registers, spills and shared memory of every kernel, dynamic shared memory included."""
    readings = []
    for report in evaluation.reports:
        dynamic = dynamic_bytes(report.kernel, evaluation.launches)
        more = f" and {dynamic} dynamic bytes of the launch" if dynamic else ""
        for name, value, unit, source in (
            ("registers", report.registers, "per thread", REPORT),
            ("spills", report.spill_bytes, "bytes", REPORT),
            ("shared_memory", _plus(report.shared_bytes, dynamic), SHARED_UNIT, f"{REPORT}{more}"),
        ):
            if value is not None:
                readings.append(_static(f"{report.kernel}.{name}", value, unit, source))
    return tuple(readings)


def _waves(shape: LaunchShape, blocks_per_sm: int, sm_count: int) -> Evidence:
    """How often the device is filled with blocks; the last time perhaps only in part."""
    waves = shape.blocks / (blocks_per_sm * sm_count)
    source = f"{shape.blocks} blocks, {blocks_per_sm} on each of {sm_count} multiprocessors"
    return _static(f"{shape.kernel}.waves", waves, "waves", source)


def _launches(evaluation: Evaluation, hardware: Hardware) -> tuple[Evidence, ...]:
    """How many there are, and which share of the time that alone may cost on a GPU."""
    count = sum(shape.launches for shape in evaluation.launches)
    if not count:
        return ()
    number = Evidence(
        name="launches_per_call",
        rank=Rank.MEASURED,
        value=count,
        unit="launches",
        source="the plan as it ran",
    )
    if hardware.kind != "cuda" or evaluation.median_ms is None:
        return (number,)
    return (number, *_launching(count, evaluation.median_ms, evaluation.launch_ms, hardware))


def _launching(
    count: int, median_ms: float, launch_ms: float | None, hardware: Hardware
) -> tuple[Evidence, ...]:
    """What launching costs: measured where single calls were timed too, else estimated."""
    if launch_ms is None:
        share = min(1.0, count * hardware.launch_us / 1e3 / median_ms)
        source = f"{hardware.launch_us:g} us a launch / median time"
        estimate = Evidence(
            name="launch_share", rank=Rank.ESTIMATED, value=share, unit="", source=source
        )
        return (estimate,)
    source = "a single call on an idle device less its work there"
    cost = Evidence(
        name="launch_cost", rank=Rank.MEASURED, value=launch_ms, unit="ms", source=source
    )
    share = launch_ms / (launch_ms + median_ms)
    return (cost, _derived("launch_share", share, "", f"{source} / the call by the host"))


def _largest(kernel: str, shapes: tuple[LaunchShape, ...]) -> LaunchShape | None:
    """The launch of a kernel with most threads."""
    own = [shape for shape in shapes if shape.kernel == kernel]
    return max(own, key=lambda shape: shape.blocks * shape.threads, default=None)


def _plus(static: int | None, dynamic: int) -> int | None:
    return None if static is None else static + dynamic


def block_threads(candidate: Candidate, kernel: str) -> int | None:
    """Threads of a block as the plan's text has it; None when it is not a plain product.

    For evaluations from before launches were noted.
    """
    launch = re.search(rf"launch\(\s*[\"']{re.escape(kernel)}[\"'](.*)", candidate.plan)
    block = (
        re.search(r"block=([A-Za-z0-9_*() ,]+?)(?:,\s*\w+=|\)\s*$)", launch[1]) if launch else None
    )
    if block is None:
        return None
    settings = {setting.name: setting.value for setting in candidate.settings}
    total = 1
    for factor in re.findall(r"[A-Za-z_]\w*|\d+", block[1]):
        value = int(factor) if factor.isdigit() else settings.get(factor)
        if value is None:
            return None
        total *= value
    return total


def _telemetry(evaluation: Evaluation) -> tuple[Evidence, ...]:
    timed = next(iter(_conditions(evaluation)), None)
    if timed is None:
        return ()
    readings = []
    for name, value, unit in (
        ("sm_clock", timed.sm_clock_mhz, "MHz"),
        ("sm_clock_most", timed.sm_clock_most_mhz, "MHz"),
        ("memory_clock", timed.memory_clock_mhz, "MHz"),
        ("power", timed.power_w, "W"),
        ("temperature", timed.temperature_c, "C"),
    ):
        if value is not None:
            readings.append(_measured(name, value, unit, "NVML"))
    readings += _clocks(_conditions(evaluation))
    others = [
        item.others_share for item in _conditions(evaluation) if item.others_share is not None
    ]
    if others:
        source = "the kernel's accounts; of all processors, at most in any of its timings"
        readings.append(_measured("others_share", max(others), "", source))
    if evaluation.screen is not None:
        spread = evaluation.screen.spread
        readings.append(_derived("spread", spread, "", "10-90 % band / median of the screening"))
    return tuple(readings)


def _clocks(timed: tuple[Conditions, ...]) -> list[Evidence]:
    """Whether the clock moved between timings, and what held the device back in any of them."""
    found = []
    clocks = [item.sm_clock_mhz for item in timed if item.sm_clock_mhz]
    if len(clocks) > 1:
        spread = 1.0 - min(clocks) / max(clocks)
        source = "NVML; least over largest of its timings"
        found.append(_derived("sm_clock_spread", spread, "", source))
    reasons = dict.fromkeys(reason for item in timed for reason in item.throttle_reasons)
    if reasons:
        share = sum(bool(item.throttle_reasons) for item in timed) / len(timed)
        source = f"NVML, of its timings: {', '.join(reasons)}"
        found.append(_measured("throttled", share, "", source))
    return found


def _conditions(evaluation: Evaluation) -> tuple[Conditions, ...]:
    screened = (evaluation.screen.conditions,) if evaluation.screen is not None else ()
    return (*screened, *(item.conditions for item in evaluation.comparisons))


def _counters_missing(hardware: Hardware) -> Evidence:
    remedy = (
        "counters are not read yet; Nsight Compute shows them: ncu --clock-control none"
        if hardware.kind == "cuda"
        else "hardware counters are read for elites only, where the machine shows any"
    )
    return Evidence(name="counters", rank=Rank.UNAVAILABLE, value=None, unit="", source=remedy)


def tensor_roof(evidence: tuple[Evidence, ...], hardware: Hardware) -> tuple[Evidence, ...]:
    """Against the tensor cores' rate, for code that is seen to use them; else nothing."""
    uses = any(item.name.endswith(".tensor_instructions") for item in evidence)
    rate = next((item.value for item in evidence if item.name == "achieved_rate"), None)
    if not uses or rate is None or hardware.tensor_tflops is None:
        return ()
    source = "task FLOPs / median time, against the data sheet's dense fp16 rate"
    return (_derived("tensor_rate_fraction", rate / hardware.tensor_tflops, "", source),)


def _measured(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.MEASURED, value=value, unit=unit, source=source)


def _derived(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.DERIVED, value=value, unit=unit, source=source)


def _static(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.STATIC, value=value, unit=unit, source=source)
