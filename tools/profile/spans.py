"""One piece of work in a call, and how pieces of several calls become times of kernels."""

from collections.abc import Collection, Sequence
from statistics import median

from kernelwright.tools.types.profile import Clock, KernelTime
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
