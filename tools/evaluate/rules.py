"""Every figure the judge goes by, in one place, so that a report can print it.

Durations are seconds unless a name says otherwise. Changing one changes what a verdict means.
"""

from typing import Literal

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.types.value import Value

# What a finalist's record holds beside correctness and the headline: everything, or what a suite
# of many tasks can afford (no compute-sanitizer, no other loads).
Depth = Literal["full", "timing"]


class Rules(Value):
    """The defaults of the protocol in `evaluation`: correctness, timing, isolation."""

    # Correctness.
    error_bound: float = 4.0  # times PyTorch's own error (or the output's rounding)
    guard_bytes: int = 1 << 16  # on each side of every block a candidate may write near
    compare_chunk_elements: int = 1 << 17  # a step of comparing fits a core's cache in float64
    few_elements: int = 1024  # outputs this small: one draw of PyTorch's error is a lottery
    chunk_agreement: float = 1e-3  # a chunked truth further from PyTorch than this is no truth

    # The audit, on the host and on a GPU alike: what its experiments may take together.
    audit_s: float = 3.0

    # Timing.
    screen_s: float = 0.15
    screen_samples_min: int = 3
    screen_samples_max: int = 40
    hopeless_ratio: float = 3.0  # slower than this times the best known: stop screening
    precise_s: float = 0.8  # a baseline
    certify_s: float = 2.5
    mode_s: float = 0.5  # a finalist's comparison in each of the other modes
    offline_ms: float = 2.0  # calls back to back last at least this long together
    offline_calls_max: int = 64
    server_gap_s: float = 0.02  # between calls, on average
    calibrate_s: float = 0.4  # eager against itself, once a session
    pairs_min: int = 10  # also the first look: all ten on one side of 1 are chance once in 512
    pairs_max: int = 200
    look_level: float = 0.002  # of each look before the last, which takes the rest of 5 %
    # The same kernel, loaded twice, differs for good by where it lies: seen by benchmarks/aa.py.
    twin_share: float = 0.005  # of its time
    twin_cuda_ms: float = 1e-4  # and at least three ticks of a GPU's event timer
    interval_width: float = 0.02  # of the ratio: an interval this narrow needs no more pairs
    behind_width: float = 0.1  # likewise beside a baseline that is certainly not the hardest
    equal_share: float = 0.01  # an interval this close around 1 is of equals
    clock_moved_share: float = 0.03  # a pair during which a clock moved by more is taken again
    retakes_max: int = 3  # blocks of pairs, before unsteady ones are kept and said
    steady_pairs: int = 10  # pairs between two readings of a GPU's clocks
    busy_share: float = 0.1  # others using more of the processors: compared once more
    warm_up_s: float = 0.05
    cold_warm_up_s: float = 0.4  # after an idle time in which a GPU's clocks fall
    input_sets_max: int = 7  # never a multiple of 4: in A B B A each must meet every set
    settle_s: float = 0.001  # threads of the runtime stop spinning before the clock starts
    graph_below_ms: float = 0.1  # calls this short, launches included, are timed as graph replays

    # Speed of light.
    floor_margin_cuda: float = 0.9
    floor_margin_cpu: float = 0.7  # bandwidth of a shared host varies more than a device's
    floor_cache_multiple: float = 4.0  # a working set within this many caches has no floor
    quarantine_ratio: float = 10.0

    # What certifying adds, see `Depth`.
    evidence: Depth = "full"

    # Profiling.
    profile_s: float = 60.0  # one candidate under one profiler, its start included
    profile_launches: int = 8  # of a call, the first ones are counted

    # Isolation.
    memory_fraction: float = 0.6  # of the machine's memory, for one worker
    memory_poll_s: float = 0.05
    processes_max: int = 256  # in one worker's tree; compilers start a few
    scratch_bytes: int = 16 << 30
    idle_s: float = 5.0  # that a device gets to come to rest after a worker was lost
    start_s: float = 120.0
    compile_s: float = 90.0
    candidate_s: float = 8.0  # a first run, at least; more for a slow reference
    candidate_slowdown: float = 100.0  # times eager, before a run counts as hung
    reference_s: float = 120.0
    baseline_s: float = 180.0  # torch.compile included
    max_autotune_s: float = 120.0
    sanitize_s: float = 40.0  # for each of the sanitizer's tools, all at the same time
    ceilings_s: float = 120.0
    foreign_build_s: float = 300.0  # a foreign file's own compilers, before any clock

    # Foreign candidates.
    clock_margin: float = 0.3  # a guest's clock off by more of the judge's is a lie
    clock_slack_ms: float = 1.0
    foreign_span_ms: float = 10.0  # of timed calls in a row, so that the protocol costs little
    foreign_calls_max: int = 48

    # For the test that every defence is needed; nothing else takes one away.
    switched_off: tuple[Defence, ...] = ()

    @classmethod
    def of(cls, evidence: Depth) -> "Rules":
        """The figures for that depth; times of many tasks are taken for a shorter while.

        What it takes to be right is the same. An interval is as sure, and may be wider.
        """
        if evidence == "full":
            return cls()
        return cls(evidence=evidence, precise_s=0.4, certify_s=1.0, calibrate_s=0.2)

    def has(self, defence: Defence) -> bool:
        """Whether a defence stands."""
        return defence not in self.switched_off
