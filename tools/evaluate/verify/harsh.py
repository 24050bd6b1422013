"""Which other values a candidate is tried on first: those that hurt most."""

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.tasks import DISTRIBUTIONS, applicable
from kernelwright.tools.types import Task

_HARSHEST = ("large_offset", "heavy_tail", "extremes", "constant_rows", "normal", "tiny")


def harshest_first(task: Task, rules: Rules) -> list[str]:
    """The distributions that suit a task besides its own; none where the rules take them away."""
    if not rules.has(Defence.DISTRIBUTIONS):
        return []
    suitable = [name for name in DISTRIBUTIONS if applicable(task, name) and name != "task"]
    ranked = [name for name in _HARSHEST if name in suitable]
    return ranked + [name for name in suitable if name not in ranked]
