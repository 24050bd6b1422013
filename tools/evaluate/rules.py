"""Every figure and defence that the judge goes by, in one place, so that a report can print it.

`Rules` holds the figures: durations are seconds unless a name says otherwise, and changing one
changes what a verdict means. `Defence` names single checks of the protocol, so that a test can take
one away and see a cheat pass: `Rules.switched_off` lists those that are off. None ever is outside
the mutation test of `tests/evil`, and a report of rules that lack one says so. `fresh_seed` makes
seeds that follow from what they are for, so that a run can be repeated.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Literal

from kernelwright.tools.types.measurement import BUSY_SHARE, SETTLED_WIDTH
from kernelwright.tools.types.value import Value


class Defence(StrEnum):
    """One thing that stands between a cheat and a verdict of "correct and faster"."""

    ALLOW_LIST = "allow_list"  # plans and sources say only what the contract admits
    POISON = "poison"  # outputs and freed memory hold NaN before a candidate runs
    GUARD_BANDS = "guard_bands"  # writes beside a block are seen
    INPUTS_UNCHANGED = "inputs_unchanged"  # inputs and weights are compared afterwards
    EXACT_RESULT = "exact_result"  # a plain tensor with storage of its own, of the right shape
    ERROR_RATIO = "error_ratio"  # the error is held against PyTorch's own, beside float64
    DISTRIBUTIONS = "distributions"  # values other than those that the task draws
    HOLDOUT_SHAPES = "holdout_shapes"  # shapes other than the task's, where it claims them
    NEW_VALUES = "new_values"  # other values in the same memory must give other answers
    NEW_MEMORY = "new_memory"  # the same values in other memory must give the same answer
    TIMED_RESULTS = "timed_results"  # what timed calls returned is verified as well
    LATE_CHANGES = "late_changes"  # a result must not change after it was returned
    COMPANIONS = "companions"  # threads and processes are counted before and after
    CLOCKS_AGREE = "clocks_agree"  # device events, wall time and summed kernels tell the same
    FLOOR = "floor"  # no time below what moving the bytes takes
    QUARANTINE = "quarantine"  # too good is measured again in another process
    COVERAGE = "coverage"  # who did the work is measured, and the label says it
    NULLS = "nulls"  # answers without work must fail
    PRECISION = "precision"  # fewer digits are labelled and ranked apart
    SETUP_TIMED = "setup_timed"  # weights are drawn anew, and `prepare` counts
    COLD_CACHES = "cold_caches"  # what a kernel pinned in the L2 is evicted
    SEPARATE_PROCESS = "separate_process"  # truth, clock and verdict are elsewhere
    SANDBOX = "sandbox"  # no network, no files, no secrets
    SANITIZER = "sanitizer"  # compute-sanitizer, or the C++ compiler's own, over finalists


# Baselines that are replays of CUDA graphs, and of what; a candidate competes with them as one too.
GRAPHS = {"graph": "eager", "compile-graph": "compile"}


def fresh_seed(*parts: object) -> int:
    """A seed that follows from what it is for, and from nothing else."""
    text = "|".join(str(part) for part in parts)
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big") & 0x7FFF_FFFF


# What a finalist's record holds beside correctness and the headline: everything; what a suite of
# many tasks can afford (no compute-sanitizer, no other loads), by itself, with max-autotune beside
# the best, or with the hardware's counters of it, which cost seconds a task and no verdict depends
# on; or what a grid of products can, each beside the vendor's library alone, in the process that
# screened it, and as a server calls it.
Depth = Literal["full", "timing", "autotune", "counters", "library"]
# Those at which a finalist on a GPU stands beside what `torch.compile` can do at its best.
AUTOTUNED: tuple[Depth, ...] = ("full", "autotune")
CERTIFY: Mapping[str, tuple[str, ...]] = {"cpu": (), "cuda": ("max-autotune",)}
# The vendor's library for products of matrices, asked in other ways than PyTorch asks it.
LIBRARY = ("cublaslt", "cublaslt-autotuned")
# Where sums may be kept in fp16: the same library with sums in float32, which may well be faster.
# A task's module does that while its attribute of that name is false.
WIDER = ("eager-fp32", "cublaslt-autotuned-fp32")
FP16_SUMS = "fp16_sums"
# Of numbers of eight bits: PyTorch with sums that are never promoted. Another class, which is timed
# and shown, and which nobody has to beat. A module sums so while that attribute is true.
FAST, FAST_SUMS = "eager-fast", "fast_sums"


class Rules(Value):
    """Figures of the protocol, each with its default: correctness, timing, isolation."""

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
    # The same kernel, loaded twice, differs for good by where it lies: seen by
    # benchmarks/timing/aa.py.
    twin_share: float = 0.005  # of its time
    twin_cuda_ms: float = 1e-4  # and at least three ticks of a GPU's event timer
    interval_width: float = 0.02  # of the ratio: an interval this narrow needs no more pairs
    behind_width: float = 0.1  # likewise beside a baseline that is certainly not the hardest
    equal_share: float = 0.01  # an interval this close around 1 is of equals
    clock_moved_share: float = 0.03  # a pair during which a clock moved by more is taken again
    retakes_max: int = 3  # blocks of pairs, before unsteady ones are kept and said
    steady_pairs: int = 10  # pairs between two readings of a GPU's clocks
    busy_share: float = BUSY_SHARE  # others using more of the processors: compared once more
    settled_width: float = SETTLED_WIDTH  # of the ratio: a wider interval is no claim
    warm_up_s: float = 0.05
    cold_warm_up_s: float = 0.4  # after an idle time in which a GPU's clocks fall
    input_sets_max: int = 7  # never a multiple of 4: in A B B A each must meet every set
    settle_s: float = 0.001  # threads of the runtime stop spinning before the clock starts
    # torch.compile chooses among settings by timing them, and chooses otherwise each time: on an
    # idle H200 one module took 0.035 to 0.105 ms, by benchmarks/timing/compile_again.py.
    makings: int = 5  # of what a compiler tunes on a GPU: the fastest one is the baseline
    makings_s: float = 3.0  # no further one is begun after this long
    drawn_once_nodes: int = 100  # of a graph as large none is, where the first took that long
    # A GPU is held for no longer before a call, so that the host has issued it by then. A stream
    # takes about a thousand launches before the host must wait, which are issued in this time.
    hold_max_ms: float = 32.0
    latency_s: float = 0.5  # of single calls in turns, beside each baseline of a finalist
    host_samples: int = 5  # of single calls of what was screened, for the host's share
    host_below_ms: float = 1.0  # a longer call has no host's share worth knowing
    settle_max_s: float = 8.0  # a finalist's pairs go on so long where they settle nothing
    compile_ahead: bool = True  # torch.compile begins as soon as a file was read; else when asked

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
    memory_poll_s: float = 0.1
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
        if evidence == "library":
            return cls(
                evidence=evidence,
                screen_s=0.06,
                precise_s=0.15,
                certify_s=0.4,
                mode_s=0.4,
                calibrate_s=0.1,
                latency_s=0.15,
                settle_max_s=1.0,
                compile_ahead=False,  # nobody asks for torch.compile
            )
        brief = cls(
            evidence=evidence, precise_s=0.4, certify_s=1.0, calibrate_s=0.2, settle_max_s=4.0
        )
        return (
            brief.model_copy(update={"max_autotune_s": 60.0}) if evidence == "autotune" else brief
        )

    def within(self, seconds: float) -> "Rules":
        """The figures for a search of so many seconds.

        Where pairs settle nothing, as on a busy machine, a finalist's last longer than the search
        did; what was asked for in a few seconds is said to be unsettled instead.
        """
        return self.model_copy(update={"settle_max_s": min(self.settle_max_s, seconds / 4)})

    @property
    def is_brief(self) -> bool:
        """Whether certifying leaves out what many tasks cannot afford."""
        return self.evidence in ("timing", "autotune", "counters")

    def has(self, defence: Defence) -> bool:
        """Whether a defence stands."""
        return defence not in self.switched_off
