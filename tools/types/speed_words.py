"""The words for a verdict on speed, the same on every screen, in every list and in every file.

`Evaluation.claim` decides what may be said of a candidate, and a run's status follows from it. How
that is called, and why no more is claimed, is said here and nowhere else: at a terminal, in a chat,
a report, an export, a list of runs, and in the library of kernels.
"""

from typing import Literal

from kernelwright.tools.types.run import BestSummary, Label, Status
from kernelwright.tools.types.verdict import SpeedClaim, SpeedOutcome

# What a search came to.
STATUS: dict[Status, str] = {
    "improved": "faster than every baseline",
    "not_settled": "not settled: measure again",
    "faster_than_eager": "faster than eager PyTorch, but not than its best baseline",
    "no_improvement": "nothing was faster than PyTorch",
    "nothing_correct": "no candidate was correct",
    "timed_out": "right when it was screened, but its closer judgement ran out of time",
    "stopped": "stopped before a verdict",
    "waiting": "waiting for somebody outside",
    "failed": "the search failed",
}

# The same where there is room for two or three words, as in a list of conversations.
BRIEF: dict[Status, str] = {
    "faster_than_eager": "faster than eager only",
    "not_settled": "not settled",
    "no_improvement": "not faster",
    "nothing_correct": "nothing correct",
    "timed_out": "judging ran out of time",
    "failed": "failed",
}

NOT_CERTIFIED = "it was not certified"

_CLAIM: dict[SpeedOutcome, str] = {
    "faster": "it is faster than every PyTorch baseline that was timed",
    "not settled": "how fast it is beside PyTorch is not settled",
    "not distinguishable": "it is not shown to be faster than every PyTorch baseline",
    "slower alone": "it is not shown to be faster than every PyTorch baseline",
    "slower": "it is not faster than every PyTorch baseline",
}


def doubt(outcome: SpeedOutcome | Literal[""]) -> str:
    """What keeps a ratio from being a claim, in a word or two; "" for what is faster or slower."""
    return "" if outcome in ("faster", "slower") else outcome


def claim_words(claim: SpeedClaim | None, *, certified: bool = True) -> str:
    """What may be said of a candidate's speed, and why not more, as a clause about `it`."""
    if claim is None:
        return "it was not compared with PyTorch"
    if claim.outcome == "faster" and not certified:
        return f"{_CLAIM['not settled']}: {NOT_CERTIFIED}"
    why = "" if claim.outcome == "faster" else f": {claim.words}"
    return f"{_CLAIM[claim.outcome]}{why}"


def looked_words(label: Label | Literal[""], outcome: SpeedOutcome | Literal[""]) -> str:
    """How closely a time was looked at, and what keeps its ratio from being a claim.

    A screened time was compared with nothing in turns, and its label says so.
    """
    unclear = doubt(outcome) if label != "screened" else ""
    return ", ".join(part for part in (label, unclear) if part)


def ended_words(
    status: Status,
    label: Label | Literal[""] = "",
    outcome: SpeedOutcome | Literal[""] = "",
    claim: str = "",
) -> str:
    """What a search came to, and why no more is claimed of the best that it has.

    Args:
        status: of the search.
        label: how closely the best was looked at; "" without one, or where it is not known.
        outcome: what may be said of the best.
        claim: why not more, in words.
    """
    if status not in ("not_settled", "faster_than_eager", "no_improvement"):
        return STATUS[status]
    certified = label in ("", "certified")
    reasons = [] if certified else [f"{label} only, {NOT_CERTIFIED}"]
    # Its outcome by screened times alone has no reason but that.
    reasons += [claim] if claim and outcome != "faster" and label != "screened" else []
    return f"{STATUS[status]} ({'; '.join(reasons)})" if reasons else STATUS[status]


def summary_words(status: Status, best: BestSummary | None) -> str:
    """The same of a kept summary."""
    if best is None:
        return STATUS[status]
    return ended_words(status, best.timed, best.outcome, best.claim)
