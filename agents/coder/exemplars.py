"""Two right kernels that show what makes the difference here: one fast, one clearly slower.

Of the slower ones the one most like the fast one is taken, as a small change tells most. What is
shown is the fast one's time, the slow one's, and the difference of their sources.
"""

from collections.abc import Sequence
from itertools import islice

from kernelwright.agents.prompting.cards import fenced, milliseconds
from kernelwright.agents.toolbox.readings import source_difference
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Candidate, Verdict

# Slower by less is noise, or a matter of settings.
_CLEARLY = 1.25
# Of many slower candidates the latest so many are compared.
_COMPARED = 16
_LINES = 50


def exemplars(standings: Sequence[Standing]) -> str:
    """The pair in words; "" where there is none that tells anything."""
    right = [(ms, item) for item in standings if (ms := _right_ms(item)) is not None]
    if not right:
        return ""
    fast_ms, fast = min(right, key=lambda pair: pair[0])
    slower = (
        (ms, item)
        for ms, item in reversed(right)
        if ms >= _CLEARLY * fast_ms and _source(item.candidate) != _source(fast.candidate)
    )
    latest = [*islice(slower, _COMPARED)][::-1]
    if not latest:
        return ""
    slow_ms, slow = max(latest, key=lambda pair: _likeness(fast.candidate, pair[1].candidate))
    told = (
        f"Fast: `{fast.candidate.id}`, {milliseconds(fast_ms)}. Slow: `{slow.candidate.id}`, "
        f"{milliseconds(slow_ms)}, {slow_ms / fast_ms:.3g} times as long. What the slow one does "
        "differently:"
    )
    difference = source_difference(fast.candidate, slow.candidate, _LINES)
    return f"{told}\n\n{fenced('diff', difference)}"


def _right_ms(item: Standing) -> float | None:
    """The time of one that is right and of the task's own precision."""
    evaluation = item.evaluation
    right = evaluation.verdict is Verdict.CORRECT and not evaluation.verification.apart
    return evaluation.median_ms if right else None


def _source(candidate: Candidate) -> tuple[str, str]:
    return candidate.kernel, candidate.plan


def _likeness(one: Candidate, other: Candidate) -> float:
    """The share of lines that both have; cheap, as every question of a round asks for it."""
    mine, theirs = set(one.kernel.splitlines()), set(other.kernel.splitlines())
    return len(mine & theirs) / max(len(mine | theirs), 1)
