"""Which distributions of inputs exist, and which of them make sense for a task.

A candidate must be right on more than the values its task happens to draw. But it must not be
judged where the reference itself is undefined: inputs keep to their `domain`, and what is
still undefined is left to `Reference.is_defined_on`, which looks at what the reference does.
This module only decides; `tools.tasks.draws` draws.
"""

from __future__ import annotations

from kernelwright.tools.types import InputSpec, Task

DISTRIBUTIONS: tuple[str, ...] = (
    "task",
    "normal",
    "large_offset",
    "heavy_tail",
    "tiny",
    "constant_rows",
    "extremes",
    "masked",
)

# Draws that tell how many digits a candidate computes with; none of them decides what is right.
PROBES: tuple[str, ...] = ("short_significand", "large_scale", "small_scale")

# In a bounded domain these saturate to one value, which tests nothing.
_NEED_FREEDOM = ("large_offset", "extremes")


def applicable(task: Task, distribution: str) -> bool:
    """Whether the task's answer means something on inputs drawn this way.

    Raises:
        ValueError: the distribution does not exist.
    """
    if distribution not in (*DISTRIBUTIONS, *PROBES):
        known = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"unknown distribution {distribution!r}; known are {known}")
    if distribution == "task":
        return True
    domains = [spec.domain for spec in _floating(task)]
    if not domains:
        return distribution == "normal"
    if distribution in PROBES:
        # Normalising to a sum of one would fill the digits that are to be empty.
        return not set(domains) & {"distribution"} and (
            distribution == PROBES[0] or "any" in domains
        )
    if distribution == "masked":
        return _takes_masks(task) and set(domains) == {"any"}
    bounded = set(domains) <= {"unit", "distribution"}
    return not (bounded and distribution in _NEED_FREEDOM)


def _floating(task: Task) -> list[InputSpec]:
    return [
        spec
        for spec in task.tensor_inputs
        if spec.tensor is not None and spec.tensor.dtype.is_floating
    ]


def _takes_masks(task: Task) -> bool:
    """-inf is an ordinary value only where a maximum is subtracted before an exponential."""
    operators = {node.op for node in task.graph.nodes}
    return {"aten.exp.default", "aten.amax.default"} <= operators
