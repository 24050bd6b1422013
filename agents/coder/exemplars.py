"""Two right kernels that show what makes the difference here: one fast, one clearly slower.

Of the slower ones the one most like the fast one is taken, as a small change tells most. What is
shown is the fast one's time, the slow one's, and the difference of their sources.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from kernelwright.agents.prompting.cards import fenced, milliseconds
from kernelwright.agents.toolbox.readings import source_difference
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Candidate, Verdict

# Slower by less is noise, or a matter of settings.
_CLEARLY = 1.25
# Of many right candidates the latest so many are compared; likeness takes a millisecond each.
_COMPARED = 16
_LINES = 50


def exemplars(standings: Sequence[Standing]) -> str:
    """The pair in words; "" where there is none that tells anything."""
    right = [item for item in standings if _is_right(item)]
    if not right:
        return ""
    fast = min(right, key=_time)
    others = [item for item in right if _time(item) >= _CLEARLY * _time(fast)]
    alike = [item for item in others if _source(item.candidate) != _source(fast.candidate)]
    if not alike:
        return ""
    slow = max(alike[-_COMPARED:], key=lambda item: _likeness(fast.candidate, item.candidate))
    told = (
        f"Fast: `{fast.candidate.id}`, {milliseconds(_time(fast))}. Slow: `{slow.candidate.id}`, "
        f"{milliseconds(_time(slow))}, {_time(slow) / _time(fast):.3g} times as long. What the "
        "slow one does differently:"
    )
    difference = source_difference(fast.candidate, slow.candidate, _LINES)
    return f"{told}\n\n{fenced('diff', difference)}"


def _is_right(item: Standing) -> bool:
    evaluation = item.evaluation
    known = evaluation.verdict is Verdict.CORRECT and evaluation.median_ms is not None
    return known and not evaluation.verification.apart


def _time(item: Standing) -> float:
    return item.evaluation.median_ms or 0.0


def _source(candidate: Candidate) -> tuple[str, str]:
    return candidate.kernel, candidate.plan


def _likeness(one: Candidate, other: Candidate) -> float:
    return SequenceMatcher(None, one.kernel, other.kernel, autojunk=True).quick_ratio()
