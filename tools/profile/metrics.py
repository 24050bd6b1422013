"""The short list: which sections and metrics are asked for, and which field each one fills.

Sections bring the values that ncu's own rules need; metrics are those no chosen section brings.
Names as Nsight Compute 2025.3 has them for compute capability 9.0; a chip that lacks one leaves
its field None.
"""

from typing import NamedTuple

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
