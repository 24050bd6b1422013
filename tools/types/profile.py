"""Why a candidate is as fast as it is, as values: readings, symptoms, what profilers measured.

Each reading says how much it can be trusted. What a profiler measured of a candidate (where a
call's time goes, and hardware counters) is typed here and turned into evidence by
`tools.profile.measured`. What could not be measured stands beside it with the reason and the
cheapest remedy; a search goes on without.
"""

from enum import StrEnum
from typing import Literal

from kernelwright.tools.types.value import Value


class Rank(StrEnum):
    """How a reading was come by, from best to worst."""

    MEASURED = "measured"
    DERIVED = "derived"
    STATIC = "static"
    ESTIMATED = "estimated"
    UNAVAILABLE = "unavailable"


class Evidence(Value):
    """One reading. `value` is None when unavailable; then `source` says why and what would help."""

    name: str
    rank: Rank
    value: float | None
    unit: str
    source: str

    def is_called(self, name: str) -> bool:
        """Whether that is its name, or its name without the kernel's."""
        return name in (self.name, self.name.rpartition(".")[2])


class Symptom(Value):
    """A named pattern computed from evidence before any model reads numbers.

    `points_to` holds idea categories that usually help. `worth` is the share of the call's time
    that curing it could bring by counters, None where they do not tell; `turns` are tunables to
    turn up or down for it, as `UNROLL+`, of the loop of `kernel`.
    """

    name: str
    words: str
    evidence: tuple[Evidence, ...]
    points_to: tuple[str, ...] = ()
    kernel: str = ""
    worth: float | None = None
    turns: tuple[str, ...] = ()


Step = Literal["counters", "times"]
Clock = Literal["cupti", "wall"]


class KernelTime(Value):
    """All launches of one kernel in a call; `kernel` is the function's plain name.

    `share` is of the call. `clock` is CUPTI's, of the device, or the wall's, of the host.
    Geometry and resources are of its longest launch, None where the clock does not see them (a
    CPU has none). `own` is false for library kernels.
    """

    kernel: str
    clock: Clock
    own: bool
    time_ms: float
    share: float
    launches: int
    grid_blocks: int | None = None
    block_threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None


class KernelCounters(Value):
    """Hardware counters of one launch. Fractions are 0 to 1; None where a device has no such.

    `launch` counts launches of the call from 0; `dominant` marks the longest of them.
    `stalls` are shares of a warp's time between two issues, by ncu's name of the reason.
    """

    kernel: str
    launch: int
    own: bool
    dominant: bool = False
    grid_blocks: int | None = None
    block_threads: int | None = None
    counted_time_ms: float | None = None
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None
    dram_fraction: float | None = None
    sm_fraction: float | None = None
    l1_fraction: float | None = None
    l2_fraction: float | None = None
    memory_fraction: float | None = None
    l1_hit_rate: float | None = None
    l2_hit_rate: float | None = None
    load_sectors_per_request: float | None = None
    store_sectors_per_request: float | None = None
    load_bytes_per_sector: float | None = None
    store_bytes_per_sector: float | None = None
    shared_wavefronts: float | None = None
    shared_bank_conflicts: float | None = None
    local_read_bytes: float | None = None
    local_written_bytes: float | None = None
    achieved_occupancy: float | None = None
    theoretical_occupancy: float | None = None
    blocks_by_registers: float | None = None
    blocks_by_shared_memory: float | None = None
    blocks_by_warps: float | None = None
    blocks_by_barriers: float | None = None
    waves_per_sm: float | None = None
    issue_fraction: float | None = None
    eligible_warps: float | None = None
    warp_latency_cycles: float | None = None
    instructions: float | None = None
    threads_per_instruction: float | None = None
    tensor_fraction: float | None = None
    fma_fraction: float | None = None
    alu_fraction: float | None = None
    xu_fraction: float | None = None
    lsu_fraction: float | None = None
    fp64_fraction: float | None = None
    stalls: tuple[tuple[str, float], ...] = ()


class HostCounters(Value):
    """What happened on the processors in one call, whole and on all threads: medians over calls.

    Hardware counters are of code in user space, None where the machine shows none. `cpu_ns` is the
    time that threads ran, waiting in a loop included. Faults, waits and preemptions are the
    kernel's own counts. `fault_us` is what one page fault costs on this machine, `huge_pages` its
    setting of transparent ones.
    """

    calls: int
    time_ms: float
    cpu_ns: float | None = None
    cycles: float | None = None
    instructions: float | None = None
    branches: float | None = None
    branch_misses: float | None = None
    llc_loads: float | None = None
    llc_load_misses: float | None = None
    cache_misses: float | None = None
    tlb_loads: float | None = None
    tlb_load_misses: float | None = None
    l1_load_misses: float | None = None
    frontend_cycles: float | None = None
    backend_cycles: float | None = None
    faults: float = 0.0
    disk_faults: float = 0.0
    waits: float = 0.0
    preemptions: float = 0.0
    fault_us: float = 0.0
    huge_pages: str = ""


class RuleResult(Value):
    """What one of the profiler's own rules said of a launch.

    `speedup_fraction` is its estimate of the time that could be saved, None where it gives none;
    `local` when that is of the unit it looked at, not of the whole launch.
    """

    kernel: str
    launch: int
    rule: str
    words: str
    speedup_fraction: float | None = None
    local: bool = False


class Missing(Value):
    """A step of the ladder that could not be climbed: why, and what would help."""

    step: Step
    why: str
    remedy: str


class Profile(Value):
    """Everything that was measured of one candidate beside its times against the baselines.

    `launches` is how many launches a call makes where that is known, of which the first few are
    counted; `host` what the processors did, for a candidate that runs on them; `code` what its
    machine code says; `seconds` what the measuring took; `outside` why the counters were read
    outside the wall, "" where they were not.
    """

    candidate: str
    times: tuple[KernelTime, ...] = ()
    counters: tuple[KernelCounters, ...] = ()
    rules: tuple[RuleResult, ...] = ()
    host: HostCounters | None = None
    launches: int | None = None
    missing: tuple[Missing, ...] = ()
    code: tuple[Evidence, ...] = ()
    seconds: float = 0.0
    outside: str = ""
