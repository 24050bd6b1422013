"""The judge's findings on one candidate as short rows, the same wherever they are shown.

A terminal, a chat, a report and an export print these: how right, in which precision, where else
it is right, who did the work, under which other loads it was timed, and what nobody looked at.
Verdict, reason and comparisons are not among them: every place shows those its own way.
"""

from kernelwright.tools.types import (
    Clock,
    Clocks,
    Evaluation,
    ModeTiming,
    Verdict,
    Verification,
)
from kernelwright.tools.types.measurement import Paired

Row = tuple[str, str]

# What a time is of, as a reader of a table should know it.
CLOCKS: dict[Clock, str] = {
    "device": "device time, each call queued behind a flush of the caches (as Triton's do_bench)",
    "call": "single calls on an idle device, caches cold, the host's time to issue them included",
    "wall": "wall time of calls, caches cold",
    "rounds": "the judge's wall clock around calls in a row in another process",
}

# Ends the method label of a candidate that made something of weights beforehand.
PREPARED = "weights prepared once"
NOT_TRIED = "this shape only: no other was tried"
_MODES = {
    "offline": "back to back, caches warm",
    "server": "one call now and then, caches and clocks cold",
}


def findings(evaluation: Evaluation) -> tuple[Row, ...]:
    """Everything about a candidate that a reader of its speed-up should know."""
    return (*verified(evaluation.verification), *timed(evaluation), *gaps(evaluation.verification))


def verified(found: Verification) -> tuple[Row, ...]:
    """How right it is, in which precision, on which shapes, and whose work it is."""
    rows: list[Row] = []
    if found.error_ratio is not None:
        rows.append(("error", f"{found.error_ratio:.2f} times PyTorch's own"))
    if words := allclose_words(found):
        rows.append(("allclose", words))
    if found.precision:
        rows.append(("precision", precision_words(found)))
    if found.apart:
        rows.append(("ranked apart", f"{found.apart}, which was not allowed (--allow)"))
    if found.verdict is Verdict.CORRECT:
        rows.append(("shapes", found.shapes or NOT_TRIED))
    if found.method:
        rows.append(("method", found.method))
    if found.coverage is not None:
        rows.append(("coverage", f"{found.coverage:.0%} of the device time in its own kernels"))
    return tuple(rows)


def timed(evaluation: Evaluation) -> tuple[Row, ...]:
    """What the times are of, other clocks and loads than the headline's, the host's share."""
    rows: list[Row] = []
    if (hardest := evaluation.hardest) is not None:
        rows.append(("clock", CLOCKS[hardest.clock]))
        if hardest.latency is not None:
            rows.append(("single calls", latency_words(hardest.latency, hardest.baseline)))
    rows += [(f"{item.mode} mode", mode_words(item)) for item in evaluation.modes]
    if evaluation.launch_ms is not None:
        rows.append(("launch", launch_words(evaluation.launch_ms, evaluation.host_share)))
    prepares = evaluation.verification.method.endswith(PREPARED)
    if evaluation.prepare_ms and (evaluation.clocks or prepares):
        words = f"{evaluation.prepare_ms:.3g} ms once for the weights, in no other time here"
        rows.append(("set-up", words))
    if evaluation.clocks is not None:
        rows.append(("clocks", clock_words(evaluation.clocks)))
        if notes := next((item.conditions.notes for item in evaluation.comparisons), ()):
            rows.append(("timed by", "; ".join(notes)))
    if noise := max((item.noise for item in evaluation.comparisons), default=0.0):
        words = f"a baseline against itself was off by {noise:.2%}; less than that is no difference"
        rows.append(("noise", words))
    return tuple(rows)


def gaps(found: Verification) -> tuple[Row, ...]:
    """How it was kept apart, and what was not verified."""
    return (
        ("isolation", found.isolation.words),
        *(("not verified", words) for words in found.not_verified),
    )


def allclose_words(found: Verification) -> str:
    """KernelBench's own measure beside the error ratio; "" where it was not taken."""
    known = ((1e-4, found.allclose_1e4), (1e-2, found.allclose_1e2))
    said = [f"{'yes' if held else 'NO'} at {at:.0e}" for at, held in known if held is not None]
    return f"{', '.join(said)} (KernelBench's measure)" if said else ""


def precision_words(found: Verification) -> str:
    """The label, and the digits where they were counted."""
    if found.effective_bits is None:
        return found.precision
    return f"{found.precision}, {found.effective_bits:.1f} correct bits measured"


def mode_words(item: ModeTiming) -> str:
    """A comparison under another load, in a line."""
    found = item.comparison
    return (
        f"{found.ratio:.2f}x {found.baseline}, 95 % interval {found.ci95_low:.2f} to "
        f"{found.ci95_high:.2f}, {item.outcome}; {found.candidate_ms:.4g} ms against "
        f"{found.baseline_ms:.4g} ms ({_MODES[item.mode]})"
    )


def latency_words(item: Paired, baseline: str) -> str:
    """The other clock's comparison, in a line."""
    return (
        f"{item.ratio:.2f}x {baseline}, 95 % interval {item.ci95_low:.2f} to {item.ci95_high:.2f}, "
        f"{item.outcome}; {item.candidate_ms:.4g} ms against {item.baseline_ms:.4g} ms on an idle "
        "device, the host's time to issue the call included"
    )


def launch_words(launch_ms: float, share: float | None) -> str:
    """The host's share of a single call."""
    words = f"{launch_ms * 1000:.3g} µs more for a single call on an idle device, the host's share"
    return words if share is None else f"{words} ({share:.0%} of it)"


def clock_words(clocks: Clocks) -> str:
    """Three clocks over a foreign candidate's calls."""
    return (
        f"ours {clocks.wall_ms:.4g} ms, its own {clocks.own_ms:.4g} ms, "
        f"summed work {clocks.work_ms:.4g} ms a call"
    )
