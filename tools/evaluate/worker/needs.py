"""What judging a task takes in memory, known from its sizes before anything is allocated.

`least_bytes` is certain; the others are estimates of worst moments, after which the judge chunks,
shelves on the host or times with fewer sets of inputs. Only what cannot fit in any way is refused.
"""

from __future__ import annotations

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.cold import input_sets
from kernelwright.tools.evaluate.verify.room import (
    available_bytes,
    candidate_bytes,
    io_bytes,
    peak_bytes,
    truth_bytes,
)
from kernelwright.tools.types import MemoryNeeds, Refusal, Task

_GB = 1e9
_FLUSH_CACHES = 2


def needs_of(task: Task, hardware: Hardware, rules: Rules) -> MemoryNeeds:
    """The needs of a task on the device of this process."""
    inputs, outputs = io_bytes(task)
    weights = sum(weight.tensor.size_bytes for weight in task.weights)
    cache = int(hardware.cache_mib * 2**20)
    sets = input_sets(max(task.bytes_moved, 1), cache, rules.input_sets_max)
    # The candidate has weights and outputs of its own; the inputs can wait on the host.
    least = inputs + 2 * weights + 2 * outputs
    return MemoryNeeds(
        least_bytes=least,
        eager_bytes=max(peak_bytes(task.graph), inputs + weights + outputs),
        candidate_bytes=2 * weights + candidate_bytes(task),
        truth_bytes=truth_bytes(task),
        timing_bytes=2 * weights + sets * inputs + 2 * outputs,
        flush_bytes=_FLUSH_CACHES * cache,
        available_bytes=available_bytes(hardware.kind, rules.memory_fraction),
    )


def refusal_for(task: Task, needs: MemoryNeeds, device: str) -> Refusal | None:
    """Why the task cannot be judged on the device; None where it can, at once or in parts."""
    if needs.least_bytes <= needs.available_bytes:
        return None
    return Refusal(
        sentence=(
            f"{task.name} needs {needs.least_bytes / _GB:.1f} GB for its inputs, weights and "
            f"outputs alone, and a candidate's beside them, but {device} has "
            f"{needs.available_bytes / _GB:.1f} GB to spare; name smaller inputs."
        ),
        exit_status=3,
    )


def in_parts(needs: MemoryNeeds) -> str:
    """A note where not everything fits at once; "" where it does."""
    if needs.judge_bytes <= needs.available_bytes:
        return ""
    return (
        f"judged in parts: all at once would take {needs.judge_bytes / _GB:.1f} GB, and "
        f"{needs.available_bytes / _GB:.1f} GB are there"
    )
