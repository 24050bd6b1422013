"""Profiles of candidates that nobody profiled."""

from kernelwright.tools.types import Candidate, Missing, Profile

ANEW = "search again on the device itself"


def not_asked(candidate: Candidate, why: str, remedy: str = ANEW) -> Profile:
    """A profile in which both steps are missing for one reason."""
    counters = Missing(step="counters", why=why, remedy=remedy)
    times = Missing(step="times", why=why, remedy=remedy)
    return Profile(candidate=candidate.id, missing=(counters, times))
