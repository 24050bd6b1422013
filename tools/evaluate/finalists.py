"""Which candidates deserve a closer look after a first one, when the looking ends, what cannot be.

The search and a far host that works for it decide by the same rules, so that what one of them
asks for next is what the other has measured already.

A speed-up too good to be believed is measured again, in another process on other values. The worse
of the two counts; where the second one does not find the candidate correct, nothing of the first
is kept.

A time below the floor, the least that moving a task's bytes takes, cannot have been. That holds
only where every byte must really come from memory: not for working sets that may lie in a cache,
not where the graph reads parts of its inputs, and not where PyTorch itself is found below it (then
the ceilings were measured too low).
"""

from collections.abc import Iterable, Sequence

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.types import Baselines, Comparison, Evaluation, Graph, Task, Verdict

# Screening is short: what comes within 5 % of the best screened time is worth a precise look.
SCREEN_MARGIN = 1.05
# A screened time that is off by more than this says little of who is faster.
_ASTRAY = 1.25


def fastest(screened: Iterable[Evaluation]) -> list[Evaluation]:
    """The correct and timed ones, the fastest first."""
    timed = [item for item in screened if _is_timed(item)]
    return sorted(timed, key=lambda item: item.median_ms or 0.0)


def promising(
    screened: Sequence[Evaluation], to_beat_ms: float | None, most: int
) -> list[Evaluation]:
    """The faster half of what the screening saw near or below the best, the fastest first.

    Args:
        screened: What the screening said.
        to_beat_ms: The best candidate's own screened time; None when there is no best yet.
        most: Never more than these, as a precise look costs as much as several candidates.
    """
    timed = fastest(screened)
    limit_ms = (to_beat_ms or (timed[0].median_ms if timed else None) or 0.0) * SCREEN_MARGIN
    near = [item for item in timed if item.median_ms is not None and item.median_ms <= limit_ms]
    return near[: min(most, max(1, (len(timed) + 1) // 2))]


def rivals(finalists: Sequence[Evaluation], yardstick: str) -> int:
    """How many of the first finalists cannot be told from the very first, at least 1.

    Certified alone, against more baselines and at another time than its neighbours, the winner
    would look slower than they do: so those are certified as well, and the figures are alike.

    Args:
        finalists: their most trusted evaluations, the fastest first.
        yardstick: the baseline whose ratio they are ranked by.
    """
    intervals = [_interval(item, yardstick) for item in finalists]
    first = intervals[0] if intervals else None
    if first is None:
        return 1
    count = 0
    for interval in intervals:
        if interval is None or interval[1] < first[0]:
            break
        count += 1
    return max(1, count)


def _interval(evaluation: Evaluation, yardstick: str) -> tuple[float, float] | None:
    found = (item for item in evaluation.comparisons if item.baseline == yardstick)
    return next(((item.ci95_low, item.ci95_high) for item in found), None)


def is_decided(evaluation: Evaluation) -> bool:
    """Whether a correct candidate is told apart from the baseline that is hardest to beat."""
    if evaluation.verdict is not Verdict.CORRECT or not evaluation.comparisons:
        return False
    return min(evaluation.comparisons, key=lambda item: item.ratio).distinguishable


def settles(certified: Evaluation, screened_ms: float | None) -> bool:
    """Whether the finalists behind a certified one need no try.

    They are no faster, as they were ranked by their screened times. Where one's own was far from
    what it takes (of short calls most is the host's, which other programs disturb) and it is behind
    a baseline, that is no reason.
    """
    if not is_decided(certified):
        return False
    ahead = min(item.ratio for item in certified.comparisons) >= 1.0
    if ahead or screened_ms is None or certified.median_ms is None:
        return True
    off = screened_ms / certified.median_ms
    return max(off, 1 / off) <= _ASTRAY


def _is_timed(evaluation: Evaluation) -> bool:
    return evaluation.verdict is Verdict.CORRECT and evaluation.median_ms is not None


def suspicious(evaluation: Evaluation, rules: Rules) -> bool:
    """Whether the ratio over the best baseline is above what is believed at once."""
    if evaluation.verdict is not Verdict.CORRECT or not evaluation.comparisons:
        return False
    return min(item.ratio for item in evaluation.comparisons) > rules.quarantine_ratio


def cautious(first: Evaluation, second: Evaluation) -> Evaluation:
    """The second evaluation, with the lower of both ratios for every baseline."""
    if second.verdict is not Verdict.CORRECT:
        return second
    before = {item.baseline: item for item in first.comparisons}
    kept = tuple(_lower(before.get(item.baseline, item), item) for item in second.comparisons)
    return second.model_copy(update={"comparisons": kept})


def _lower(first: Comparison, second: Comparison) -> Comparison:
    lower = min(first, second, key=lambda item: item.ratio)
    note = (
        f"above the quarantine's bound, so measured twice: {first.ratio:.3g} and "
        f"{second.ratio:.3g} in separate processes"
    )
    conditions = lower.conditions.noted(note)
    return lower.model_copy(update={"conditions": conditions})


# Operators that may read only part of a tensor, so that its bytes are no lower bound.
_PARTIAL = (
    "embedding", "gather", "index", "select", "slice", "narrow", "take", "tril", "triu",
    "masked", "diagonal", "unfold", "as_strided", "nll_loss",
)  # fmt: skip


def impossible(
    median_ms: float, task: Task, hardware: Hardware, rules: Rules, baselines: Baselines | None
) -> str:
    """Why the time cannot be, or an empty word when it can."""
    if not has_floor(task, hardware, rules):
        return ""
    # Arithmetic can be saved by algebra, so only the bytes are held against a candidate.
    margin = rules.floor_margin_cuda if hardware.kind == "cuda" else rules.floor_margin_cpu
    floor = margin * floor_ms(task.bytes_moved, 0, hardware)
    if median_ms >= floor or _baseline_below(floor, baselines):
        return ""
    return (
        f"{median_ms:.4g} ms is below {floor:.4g} ms, which moving "
        f"{task.bytes_moved / 1e6:.4g} MB takes at least on this device"
    )


def has_floor(task: Task, hardware: Hardware, rules: Rules) -> bool:
    """Whether a task's bytes must come from memory, whose bandwidth was measured."""
    in_cache = task.bytes_moved < rules.floor_cache_multiple * hardware.cache_mib * 2**20
    return hardware.measured and not in_cache and not reads_partly(task.graph)


def reads_partly(graph: Graph) -> bool:
    """Whether some operator may leave part of its input unread, or an input is unused."""
    words = [node.op.split(".")[1] for node in graph.nodes if node.op.count(".") == 2]
    return any(word.startswith(_PARTIAL) for word in words)


def _baseline_below(floor: float, baselines: Baselines | None) -> bool:
    ran = [item.measurement for item in baselines.items if item.measurement] if baselines else []
    return any(measurement.median_ms < floor for measurement in ran)
