"""The steps of a schedule: which are needed, how they follow each other, what lies between them."""

from __future__ import annotations

from kernelwright.tools.codegen.lower.nests.context import Step


def still_needed(steps: list[Step], needed: frozenset[str]) -> list[Step]:
    """The steps without writes that no step and no output needs, and without nests of none."""
    while True:
        wanted = needed.union(*(step.reads for step in steps))
        kept: list[Step] = []
        for step in steps:
            useless = step.targets - wanted
            if step.nest is not None and useless:
                step.nest = step.nest.without(useless)
            if (
                (step.nest is None and step.targets - useless)
                or (step.nest and step.nest.writes)
                or (step.line is not None and not step.line.makes)
            ):
                kept.append(step)
        if len(kept) == len(steps):
            return kept
        steps = kept


def number_stages(steps: list[Step]) -> None:
    """Tells every step how many library calls lie before it on the longest path."""
    made: dict[str, int] = {}
    for step in steps:
        step.stage = max((made.get(buffer, 0) for buffer in step.reads), default=0)
        for buffer in step.targets:
            made[buffer] = max(made.get(buffer, 0), step.stage + (step.nest is None))


def ordered(steps: list[Step]) -> list[Step]:
    """The steps so that everything is made before it is read, else in the graph's order."""
    made = {buffer for step in steps for buffer in step.targets}
    left = sorted(steps, key=lambda step: step.number)
    result: list[Step] = []
    while left:
        blocked = set[str]().union(*(step.targets for step in left))
        ready = next((s for s in left if not (s.reads & made & (blocked - s.targets))), None)
        if ready is None:
            raise ValueError("the steps depend on each other in a circle")
        left.remove(ready)
        result.append(ready)
    return result
