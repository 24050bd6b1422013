"""Which other inputs a candidate is tried on: distributions that make sense, and other sizes.

A candidate must be right on more than the values its task happens to draw. But it must not be
judged where the reference itself is undefined: inputs keep to their `domain`, and what is
still undefined is left to `Reference.is_defined_on`, which looks at what the reference does.
This module only decides; `tools.tasks.inputs.draws` draws.

Other sizes are for candidates that claim to read sizes as they run. Sizes that several inputs share
change together. Which of them may change at all is for whoever can run the reference to say. Every
other size is smaller than the task's own, so that memory suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernelwright.tools.types import InputSpec, Task

DISTRIBUTIONS: tuple[str, ...] = (
    "task",
    "normal",
    "large_offset",
    "heavy_tail",
    "outliers",
    "tiny",
    "constant_rows",
    "extremes",
    "masked",
)

# Draws that tell how many digits a candidate computes with; none of them decides what is right.
PROBES: tuple[str, ...] = ("short_significand", "large_scale", "small_scale")
# The first of them with the task's own values, as wide as they are: after ten layers in a
# row what others come to is no number.
SHORTENED = "shortened"

# In a bounded domain these saturate to one value, which tests nothing.
_NEED_FREEDOM = ("large_offset", "extremes", "outliers")


def applicable(task: Task, distribution: str) -> bool:
    """Whether the task's answer means something on inputs drawn this way.

    Raises:
        ValueError: the distribution does not exist.
    """
    if distribution not in (*DISTRIBUTIONS, *PROBES, SHORTENED):
        known = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"unknown distribution {distribution!r}; known are {known}")
    if distribution == "task":
        return True
    domains = [spec.domain for spec in _floating(task)]
    if not domains:
        return distribution == "normal"
    if distribution == SHORTENED:
        return "any" in domains
    if distribution in PROBES:
        # Normalising to a sum of one fills the digits that are to be empty: others' must be.
        return "any" in domains or (
            distribution == PROBES[0] and not set(domains) & {"distribution"}
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


Sizes = Mapping[int, int]


def changeable(task: Task, runs: Callable[[Task], bool]) -> tuple[int, ...]:
    """The sizes that may change while the reference still runs, in order of appearance.

    Args:
        task: whose inputs.
        runs: whether the reference answers on inputs of a resized task.
    """
    return tuple(size for size in _sizes(task) if runs(resized(task, {size: odd(size)})))


def variants(task: Task, free: Sequence[int]) -> dict[str, Task]:
    """Resized tasks by what they are: odd sizes, unaligned ones, one row, one column."""
    if not free:
        return {}
    made = {
        "odd sizes": {size: odd(size) for size in free},
        "unaligned sizes": {size: max(1, size - 1) for size in free},
        "one row": {free[0]: 1},
        "one column": {free[-1]: 1},
    }
    return {name: resized(task, sizes) for name, sizes in made.items()}


def resized(task: Task, sizes: Sizes) -> Task:
    """The task with those sizes of its inputs replaced; its outputs stay as they were."""
    inputs = tuple(_resized(spec, sizes) for spec in task.inputs)
    return task.model_copy(update={"inputs": inputs})


def odd(size: int) -> int:
    """An odd size of about three fifths, at least 1."""
    return max(1, (size * 5 // 8) | 1) if size > 2 else 1


def _resized(spec: InputSpec, sizes: Sizes) -> InputSpec:
    if spec.tensor is None:
        return spec
    shape = tuple(sizes.get(size, size) for size in spec.tensor.shape)
    if shape == spec.tensor.shape:
        return spec
    tensor = spec.tensor.model_copy(update={"shape": shape, "strides": None})
    return spec.model_copy(update={"tensor": tensor})


def _sizes(task: Task) -> tuple[int, ...]:
    every = (size for spec in task.inputs if spec.tensor for size in spec.tensor.shape)
    return tuple(dict.fromkeys(size for size in every if size > 1))
