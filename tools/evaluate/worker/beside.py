"""Comparisons with more to them than two calls in turns.

Beside the fastest that a compiler was seen to draw, and as a server makes its calls, both replayed.
"""

from kernelwright.tools.evaluate.timing.harness import Harness, Timed
from kernelwright.tools.types import Comparison

_DRIFT = 0.98  # of a time that was taken in another minute, and by another process
_PLAIN = ("plain calls: one of the two cannot be captured in a CUDA graph",)


def beside_fastest(found: Comparison, fastest_ms: float | None) -> Comparison:
    """The comparison as it is beside the fastest making of the same baseline.

    A compiler that draws its settings may have drawn slow ones this time. The ratio then is the
    lower one, of what was timed in turns times the share of the fastest.
    """
    if fastest_ms is None or found.clock != "device" or fastest_ms > _DRIFT * found.baseline_ms:
        return found
    share = fastest_ms / found.baseline_ms
    words = (
        f"timed in turns with a making of {found.baseline} that took {found.baseline_ms:.4g} ms; "
        f"the fastest that was seen took {fastest_ms:.4g} ms, and the ratio is beside that"
    )
    return found.model_copy(
        update={
            "baseline_ms": fastest_ms,
            "ratio": share * found.ratio,
            "ci95_low": share * found.ci95_low,
            "ci95_high": share * found.ci95_high,
            "conditions": found.conditions.noted(words),
        }
    )


def served(
    harness: Harness,
    calls: tuple[str, Timed, Timed],
    mine: Timed | None,
    *,
    seconds: float,
    noise: float,
) -> Comparison:
    """Server mode beside a baseline, on a GPU both as replays of CUDA graphs.

    So the host's time to issue a call, Python's on either side, is no part of it; latency has that.
    What cannot be captured is called plainly on both sides, and the conditions say so.

    Args:
        harness: Of the task.
        calls: The baseline's name and call, and the candidate's call.
        mine: The candidate as replays; None where it cannot be captured.
        seconds: No further pair is begun after this long.
        noise: See `Paired.noise`.
    """
    name, baseline, candidate = calls
    theirs = harness.as_graph(baseline) if mine is not None else None
    replayed = mine is not None and theirs is not None
    found = harness.compare(
        name,
        theirs or baseline,
        mine if replayed and mine is not None else candidate,
        seconds=seconds,
        notes=() if replayed or not harness.on_gpu else _PLAIN,
        noise=noise,
        mode="server",
    )
    return found.model_copy(update={"as_graph": replayed})
