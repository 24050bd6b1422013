"""How the steps of a recurrent layer are spread over a device, and what a step should take.

The weights of a layer stay in registers for all steps. A group of blocks (members) shares the
hidden units and keeps a few sequences (rows) of the batch; groups know nothing of each other. In a
block a few lanes of a warp share the sums of a few units (`units`), all gates of them, so that a
unit's new state is made where its sums end. After each step the members of a group tell each other
their units' states: within a cluster through its shared memory, in larger groups through the
last-level cache.

The cycles that are counted here are estimates from the number of instructions and from latencies
that are commonly found on Hopper; none of them was fitted to measurements of these kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.printing.case import KIB, REGISTERS, RESERVED_BYTES
from kernelwright.tools.codegen.ir.recurrence import Recurrence

LANES, UNITS, ROWS = (8, 16, 32, 4), (1, 2, 4), (1, 2, 4, 8, 16, 32)
CLUSTERS = (1, 2, 4, 8, 16)
# Weights of a thread, what else it needs, and sums that it makes at once.
MOST_WEIGHTS, OTHER_REGISTERS, MOST_SUMS = 160, 80, 32
MOST_THREADS = 1024
# Steps whose products of inputs are on their way from memory.
AHEAD = 4
# Two phase barriers, by which the members of a cluster know that states have come.
BARRIER_BYTES = 16

# Cycles of a step that nothing hides: the sums' end, the gates, and telling the others.
_SUMMED, _GATED, _NEXT_ROWS = 120.0, 260.0, 160.0
_TOLD_BLOCK, _TOLD_CLUSTER, _TOLD_MEMBER, _TOLD_DEVICE = 40.0, 250.0, 25.0, 1700.0
# What a multiprocessor does in a cycle: multiply-adds, and lanes' words of shared memory; and bytes
# that all of them together read of the last-level cache.
_FMAS, _CACHE_BYTES = 128.0, 3000.0
# Blocks begin, weights come to registers.
_BEGUN_US = 5.0


@dataclass(frozen=True)
class Layout:
    """One way to spread the steps of a layer; `clustered` says how members meet."""

    of: Recurrence
    clustered: bool
    members: int
    lanes: int
    units: int
    rows: int

    @property
    def word(self) -> int:
        """The value of the tunable: members, lanes, units and rows as decimal digits."""
        return ((self.members * 100 + self.lanes) * 10 + self.units) * 100 + self.rows

    @property
    def threads(self) -> int:
        """Of a block, in whole warps."""
        own = ceil(self.of.hidden / self.members)
        return ceil(ceil(own / self.units) * self.lanes / 32) * 32

    @property
    def words(self) -> int:
        """Groups of four weights of a row that one lane has."""
        return ceil(self.of.hidden / (4 * self.lanes))

    @property
    def weights(self) -> int:
        """Of a thread."""
        return self.of.gates * self.units * self.words * 4

    @property
    def at_once(self) -> int:
        """Rows whose sums a thread makes at once."""
        most = MOST_SUMS // (self.of.gates * self.units)
        return min(self.rows, self.lanes // self.units, 1 << min(3, most.bit_length() - 1))

    @property
    def groups(self) -> int:
        """Of both directions."""
        return self.of.directions * ceil(self.of.batch / self.rows)

    @property
    def shared_bytes(self) -> int:
        """Of a block: two sets of states, products that come ahead, cells and barriers."""
        states = 2 * self.rows * self.words * 4 * self.lanes
        kept = AHEAD * self.of.gates + (self.of.kind == "lstm")
        kept_words = self.rows // self.at_once * kept * self.threads
        return 4 * (states + kept_words) + BARRIER_BYTES

    def fits(self, hardware: Hardware) -> bool:
        """Whether a device holds it; where members meet through memory, all of it at once."""
        each = self.weights + OTHER_REGISTERS
        shared = (hardware.shared_kib_per_block or 48) * KIB - RESERVED_BYTES
        together = self.clustered or self.groups * self.members <= (hardware.sm_count or 1)
        return (
            together
            and self.units <= self.lanes
            # Every member has units, so that none is told what it does not wait for.
            and (self.members - 1) * ceil(self.of.hidden / self.members) < self.of.hidden
            and self.threads <= MOST_THREADS
            and self.weights <= MOST_WEIGHTS
            and self.threads * each <= REGISTERS
            and self.shared_bytes <= shared
        )

    def step_cycles(self, hardware: Hardware) -> float:
        """Cycles from one step to the next."""
        warps = self.threads // 32
        rounds = self.rows // self.at_once
        multiplied = self.weights * self.rows * self.threads / _FMAS
        # Four words of a lane's own part of the states; other lanes of a warp read the same.
        read = self.words * self.rows * warps * max(2.0, self.lanes / 8)
        sums = self.units * self.at_once
        joined = rounds * self.of.gates * warps * (sums + (self.lanes // sums).bit_length())
        alone = _SUMMED + _GATED + (rounds - 1) * _NEXT_ROWS
        return max(multiplied, read) + joined + alone + self._told(hardware)

    def _told(self, hardware: Hardware) -> float:
        if self.members == 1:
            return _TOLD_BLOCK
        if self.clustered:
            return _TOLD_CLUSTER + self.members * (_TOLD_MEMBER + 2.0 * self.rows)
        share = (hardware.sm_count or 1) / 132
        read = 8.0 * self.of.hidden * self.rows * self.members * self.groups
        return _TOLD_DEVICE + read / (_CACHE_BYTES * share)

    def layer_ms(self, hardware: Hardware) -> float:
        """All steps of one layer, without the launch."""
        waves = ceil(self.groups / self._at_a_time(hardware))
        sms = hardware.sm_count or 1
        hertz = hardware.fp32_tflops * 1e12 / (2 * _FMAS * sms)
        return waves * (self.of.steps * self.step_cycles(hardware) / hertz * 1e3 + _BEGUN_US / 1e3)

    def _at_a_time(self, hardware: Hardware) -> int:
        """Groups that run at a time: clusters lie within parts of 16 or 18 multiprocessors."""
        sms = hardware.sm_count or 1
        if self.members == 1:
            each = self.weights + OTHER_REGISTERS
            return sms * max(1, min(REGISTERS // (self.threads * each), 2048 // self.threads))
        return max(1, sms // (18 if self.members == 16 else self.members))


@lru_cache(maxsize=64)
def layouts(recurrence: Recurrence, hardware: Hardware, *, clustered: bool) -> tuple[Layout, ...]:
    """Every layout that fits, the one predicted fastest first."""
    found = [
        (layout.layer_ms(hardware), at, layout)
        for at, layout in enumerate(_all(recurrence, hardware, clustered))
        if layout.fits(hardware)
    ]
    return tuple(layout for _, _, layout in sorted(found, key=lambda one: one[:2]))


def _all(recurrence: Recurrence, hardware: Hardware, clustered: bool) -> Iterator[Layout]:
    most = max((row for row in ROWS if row < 2 * recurrence.batch), default=1)
    for rows in (row for row in ROWS if row <= most):
        for members in _members(recurrence, hardware, clustered, rows):
            for lanes in LANES:
                for units in UNITS:
                    yield Layout(recurrence, clustered, members, lanes, units, rows)


def _members(
    recurrence: Recurrence, hardware: Hardware, clustered: bool, rows: int
) -> tuple[int, ...]:
    if clustered:
        return tuple(size for size in CLUSTERS if size <= (hardware.cluster_size or 1))
    # As many units a block as a warp or more of its lanes can share, and what the device has.
    groups = recurrence.directions * ceil(recurrence.batch / rows)
    most = min((hardware.sm_count or 1) // groups, recurrence.hidden)
    sizes = {ceil(recurrence.hidden / own) for own in (1, 2, 4, 8, 16, 32, 64, 128)}
    return tuple(sorted({size for size in (*sizes, most) if 2 <= size <= most}, reverse=True))
