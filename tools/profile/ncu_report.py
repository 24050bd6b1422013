"""Nsight Compute's counters as typed values: which are asked for, and how its output is read.

Asked for is a short list: sections bring the values that ncu's own rules need; metrics are those no
chosen section brings. Names are as Nsight Compute 2025.3 has them for compute capability 9.0; a
chip that lacks one leaves its field None.

Counters are read from `ncu --import REPORT --csv --page raw --print-units base`, and what ncu's own
rules said from `--page details`, without rules that only say what else could be collected. This is
text of another program's process: the report itself lies where the profiled process could write, so
nothing of ours parses it. A column that is missing or says "no data" leaves its field None; a text
without a table is a ValueError. Tools print library kernels with templates, namespaces and
arguments; here they get plain names.

Where there are no counters, what ncu said tells why, and what would help at the least cost.
"""

import csv
import io
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kernelwright.tools.types.profile import KernelCounters, Missing, RuleResult


def plain_name(printed: str) -> str:
    """The function's own name, as `softmax_rows` or `cunn_SoftMaxForwardReg`.

    What stands in brackets of any kind is dropped first: template arguments hold names too.
    """
    kept, depth = "", 0
    for letter in _without_anonymous(printed):
        if letter in "<([{":
            if letter == "(" and depth == 0:
                break  # the arguments; what follows says nothing of the name
            depth += 1
        elif letter in ">)]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept += letter
    words = kept.split()
    name = words[-1].rpartition("::")[2] if words else ""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "kernel"


def _without_anonymous(printed: str) -> str:
    for nameless in ("(anonymous namespace)::", "<unnamed>::"):
        printed = printed.replace(nameless, "")
    return printed.replace("operator()", "call")


SECTIONS = (
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "Occupancy",
    "LaunchStats",
    "SchedulerStats",
    "WarpStateStats",
)

STALL_PREFIX = "smsp__average_warps_issue_stalled_"
STALL_SUFFIX = "_per_issue_active.ratio"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
# A warp that issues is not stalled, but its cycle is part of the latency.
NOT_STALLED = ("selected",)


class Metric(NamedTuple):
    """Fills `field` of `KernelCounters` with `name` times `scale`; `unit` is the result's."""

    field: str
    name: str
    unit: str = ""
    scale: float = 1.0


def _percent(field: str, name: str) -> Metric:
    return Metric(field, name, "", 0.01)


# Values are in base units (ns, byte) as `--print-units base` gives them. A sector has 32 bytes.
METRICS = (
    Metric("counted_time_ms", "gpu__time_duration.sum", "ms", 1e-6),
    Metric("dram_read_bytes", "dram__bytes_read.sum", "bytes"),
    Metric("dram_written_bytes", "dram__bytes_write.sum", "bytes"),
    _percent("dram_fraction", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
    _percent("sm_fraction", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    _percent("l1_fraction", "l1tex__throughput.avg.pct_of_peak_sustained_active"),
    _percent("l2_fraction", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    _percent("memory_fraction", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
    _percent("l1_hit_rate", "l1tex__t_sector_hit_rate.pct"),
    _percent("l2_hit_rate", "lts__t_sector_hit_rate.pct"),
    Metric(
        "load_sectors_per_request",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
        "sectors",
    ),
    Metric(
        "store_sectors_per_request",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
        "sectors",
    ),
    Metric(
        "load_bytes_per_sector",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
        "bytes",
    ),
    Metric(
        "store_bytes_per_sector",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
        "bytes",
    ),
    Metric("shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
    Metric("shared_bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    Metric("local_read_bytes", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "bytes", 32),
    Metric("local_written_bytes", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", "bytes", 32),
    _percent("achieved_occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    _percent("theoretical_occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    Metric("blocks_by_registers", "launch__occupancy_limit_registers", "blocks per SM"),
    Metric("blocks_by_shared_memory", "launch__occupancy_limit_shared_mem", "blocks per SM"),
    Metric("blocks_by_warps", "launch__occupancy_limit_warps", "blocks per SM"),
    Metric("blocks_by_barriers", "launch__occupancy_limit_barriers", "blocks per SM"),
    Metric("waves_per_sm", "launch__waves_per_multiprocessor", "waves"),
    _percent("issue_fraction", "smsp__issue_active.avg.pct_of_peak_sustained_active"),
    Metric("eligible_warps", "smsp__warps_eligible.avg.per_cycle_active", "warps per scheduler"),
    Metric("warp_latency_cycles", LATENCY, "cycles per instruction"),
    Metric("instructions", "smsp__inst_executed.sum", "warp instructions"),
    Metric(
        "threads_per_instruction", "smsp__thread_inst_executed_per_inst_executed.ratio", "threads"
    ),
    _percent("tensor_fraction", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    _percent("fma_fraction", "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    _percent("alu_fraction", "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    _percent("xu_fraction", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed"),
    _percent("lsu_fraction", "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed"),
    _percent("fp64_fraction", "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed"),
)


def selection() -> list[str]:
    """The arguments that ask ncu for the short list."""
    sections = [part for name in SECTIONS for part in ("--section", name)]
    return [*sections, "--metrics", ",".join(metric.name for metric in METRICS)]


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


# OPT: something could be better. WRN and INF speak of the profiling itself.
_TELLING = "OPT"
_LINK = re.compile(r"\s*\(https?://[^)]*\)")


def read_rules(text: str) -> tuple[RuleResult, ...]:
    """Every rule that found something to improve, in order of launches; () without a table."""
    header, *lines = rows(text) or [[]]
    told = (dict(zip(header, line, strict=False)) for line in lines)
    return tuple(_result(row) for row in told if row.get("Rule Type") == _TELLING)


def _result(row: dict[str, str]) -> RuleResult:
    percent = number(row.get("Estimated Speedup"))
    return RuleResult(
        kernel=plain_name(row["Kernel Name"]),
        launch=int(number(row["ID"]) or 0),
        rule=row["Rule Name"],
        words=_LINK.sub("", " ".join(row["Rule Description"].split())),
        speedup_fraction=None if percent is None else percent / 100,
        local=row.get("Estimated Speedup Type") == "local",
    )


# The first that fits; texts as Nsight Compute prints them.
_KNOWN = (
    (
        r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters",
        "this user may not read the GPU's performance counters",
        "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        r"out of memory|OutOfMemory|Failed to (?:save|restore|back ?up) .*memory",
        "memory ran out while the launch was replayed",
        "free memory of the device, or profile a smaller shape",
    ),
    (
        r"driver resource was unavailable|ProfilerInUse|DCGM|already (?:being )?profil",
        "another profiler holds the counters",
        "stop it, or pause DCGM: dcgmi profiling --pause",
    ),
    (
        r"LibraryNotLoaded|InterfaceVersionMismatch|driver is not compatible|"
        r"[Ff]ailed to initialize the profiler|not supported on|UnsupportedGpu|InsufficientDriver",
        "Nsight Compute does not work with this driver or device",
        "install the Nsight Compute of the driver's CUDA version",
    ),
)
_NOTHING = "No kernels were profiled"
_ERROR = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)
_SETTLED = "KERNELWRIGHT_NCU names the one to use"


def failure(output: str) -> Missing:
    """Why ncu wrote no counters."""
    for pattern, why, remedy in _KNOWN:
        if re.search(pattern, output):
            return counters_missing(why, remedy)
    if _NOTHING in output and not _ERROR.search(output):
        return nothing_launched()
    said = _ERROR.search(output)
    words = said[1].strip() if said else _last_line(output)
    return counters_missing(f"Nsight Compute failed: {words[:200]}", f"try it by hand; {_SETTLED}")


def nothing_launched() -> Missing:
    """It worked, and there was nothing to count."""
    return counters_missing(
        "the candidate launched no kernel in its profiled call", "none is needed"
    )


def not_found() -> Missing:
    """There is no ncu here."""
    return counters_missing(
        "Nsight Compute (ncu) was not found",
        "install it (it comes with the CUDA toolkit), or set KERNELWRIGHT_NCU to its path",
    )


def too_slow(limit_s: float) -> Missing:
    """It was stopped."""
    return counters_missing(
        f"Nsight Compute did not finish within {limit_s:g} s and was stopped",
        "none is needed: another candidate is tried anew",
    )


def unreadable(problem: str) -> Missing:
    """It ended well, but what it printed makes no sense."""
    return counters_missing(
        f"what Nsight Compute printed cannot be read: {problem}",
        f"Nsight Compute 2025.3 is known to work; {_SETTLED}",
    )


def counters_missing(why: str, remedy: str) -> Missing:
    """A missing step of counters."""
    return Missing(step="counters", why=why, remedy=remedy)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
