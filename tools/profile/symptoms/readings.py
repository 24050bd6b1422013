"""Finds readings by name for the symptoms, and holds the thresholds where one becomes a symptom.

A reading is of a whole call, or of each kernel that takes a telling part of it. Every threshold
stands here once, with where it comes from. "Rule of thumb" means that no document fixes it; those
can be argued with in this one place.
"""

from collections.abc import Iterator

from kernelwright.tools.types import Evidence

# Rule of thumb: below a tenth of a call's time a kernel's own troubles cannot matter.
TELLING_TIME_SHARE = 0.10

# Rule of thumb: 90 % of a *measured* ceiling leaves less to win than timings vary by.
AT_THE_ROOF = 0.90
# More than a tenth above a measured ceiling means that another ceiling is the right one: caches for
# bandwidth, tensor cores for arithmetic. Timings and ceilings vary by a few per cent each.
ANOTHER_ROOF = 1.10
# Rule of thumb: a kernel under half of both ceilings is held up by something else.
FAR_FROM_THE_ROOF = 0.50
# Rule of thumb: above this, DRAM carries more than the floor's bytes by more than partial sectors.
EXTRA_TRAFFIC = 1.15

# Nsight Compute's Kernel Profiling Guide: a sector is 32 bytes. Rule of thumb: using less than half
# of one is waste.
SECTOR_BYTES = 32
WASTED_SECTOR = 0.5
# CUDA C++ Programming Guide, "Device Memory Accesses": 1 to 16 bytes an access. Under 8 on average
# takes more than twice the instructions for the same bytes.
NARROW_BYTES = 8
# Rule of thumb: most requests that reach the L2 stay there, and DRAM is half idle.
L2_RESIDENT = 0.70
# Rule of thumb: a fifth of the wavefronts are repetitions.
BANK_CONFLICTS = 0.20

# CUDA C++ Best Practices Guide, "Occupancy": beyond some level more brings nothing; under a quarter
# there are rarely enough loads in flight to hide the latency of memory.
LOW_OCCUPANCY = 0.25
# Rule of thumb: resident warps that a launch could hold and mostly did not.
UNBALANCED = 0.70
# A wave that is filled by less than this wastes the rest of the device: loss of the whole launch.
TAIL_LOSS = 0.20
# Rule of thumb: a third of a warp's time for one reason is that kernel's reason.
STALL_SHARE = 0.33
# Rule of thumb: a rule of Nsight Compute that expects less is within what kernels vary by.
TELLING_RULE = 0.10
# Rule of thumb: launches that take a quarter of the call could be fewer.
LAUNCH_SHARE = 0.25
# A warp has 32 threads; under three quarters of them at work on average is divergence.
THREADS_AT_WORK = 24
# Rule of thumb: a pipe that is this busy is the limit.
PIPE_BUSY = 0.70

# Rule of thumb: under half of the floating-point instructions on vectors.
PACKED_SHARE = 0.50

# Rule of thumb: loads that miss bring a third of what memory can give; the rest was fetched ahead.
MISSED_BANDWIDTH = 0.33
# Rule of thumb: processors of this century finish up to four to six instructions in a cycle.
LOW_IPC = 1.0
# Rule of thumb: a tenth of the cycles is worth a change of the walk through memory.
TLB_SHARE = 0.10
MISPREDICTION_SHARE = 0.10
# Intel's top-down method calls a fifth of the slots lost in front of the core a finding.
FRONTEND_SHARE = 0.20
# Rule of thumb: a sixth of the call for fresh pages.
FAULT_SHARE = 0.15
# Rule of thumb: less than this share of the cores at work leaves others to be used.
IDLE_THREADS = 0.60
# In most calls at least once; a quiet machine does it in one call of many.
PREEMPTED = 1.0

# A clock that moved by more makes another time; the judge retakes pairs by the same share.
CLOCK_MOVED = 0.03
# Rule of thumb: boards under load stay within a fifth of their highest clock.
LOW_CLOCK = 0.80

# The 10-90 % band as a share of the median; above it differences of a few per cent say nothing.
NOISY = 0.20


class Readings:
    """Evidence about one candidate, by name."""

    def __init__(self, evidence: tuple[Evidence, ...]) -> None:
        self._evidence = {item.name: item for item in evidence if item.value is not None}
        self.kernels = tuple(
            dict.fromkeys(name.rpartition(".")[0] for name in self._evidence if "." in name)
        )

    def named(self, name: str) -> Evidence | None:
        """The reading of that whole name."""
        return self._evidence.get(name)

    def value(self, name: str) -> float | None:
        """Its value."""
        found = self.named(name)
        return found.value if found is not None else None

    def of(self, kernel: str, reading: str) -> float | None:
        """The value of a kernel's reading."""
        return self.value(f"{kernel}.{reading}")

    def each(self, reading: str) -> Iterator[tuple[str, Evidence, float]]:
        """Kernel, evidence and value, of every kernel that matters, the longest one first."""
        found = [
            (kernel, item, item.value)
            for kernel in self.kernels
            if (item := self.named(f"{kernel}.{reading}")) is not None
            and item.value is not None
            and self.share(kernel) >= TELLING_TIME_SHARE
        ]
        yield from sorted(found, key=lambda row: -self.share(row[0]))

    def share(self, kernel: str) -> float:
        """Of a call's time; where it was not measured, the kernel may matter."""
        share = self.of(kernel, "time_share")
        return 1.0 if share is None else share
