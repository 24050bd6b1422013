"""What a device's profilers measure in a search: within a budget of seconds, once a candidate.

The budget is the search profile's, and is not taken from the seconds that are for searching. The
fastest candidate of a round is measured as long as anything is left, the others only while more
than half is.
"""

from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.evaluate.profiling.absent import not_asked
from kernelwright.tools.types import Candidate, Profile

OTHERS_SHARE = 0.5


async def measured(context: SearchContext, candidate: Candidate, *, foremost: bool) -> Profile:
    """What was measured of a candidate, measured now if it never was; durable either way."""
    known = context.archive.measured(candidate.id)
    if known is not None:
        return known
    budget_s = context.profile.profiling_seconds
    allowed_s = budget_s if foremost else OTHERS_SHARE * budget_s
    if context.archive.profiling_s() < allowed_s:
        with context.at_the_judge():
            profile = await context.executor.profile(context.task, candidate)
    else:
        why = f"the {budget_s:g} seconds for profiling are used up"
        profile = not_asked(candidate, why, "a search profile with more of them")
    context.archive.record_measured(profile)
    context.profiled(profile.seconds)
    return profile
