"""Which distributions of inputs exist, and which of them make sense for a task.

A candidate must be right on more than the values its task happens to draw. But it must not be
judged where the reference itself is undefined: an input that reaches a logarithm keeps the
domain (non-negative, in [0, 1], rows summing to one) that the task's own values had. This
module only decides; `tools.tasks.draws` draws. What graphs cannot tell is left to
`is_defined`, which looks at what the reference returned.
"""

from __future__ import annotations

from tools.nouns import Domain, InputSpec, Task
from tools.tasks.signs import inputs_in_need_of_a_domain

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

# In a bounded domain these saturate to one value, which tests nothing.
_NEED_FREEDOM = ("large_offset", "extremes")


def applicable(task: Task, distribution: str) -> bool:
    """Whether the task's answer means something on inputs drawn this way.

    Raises:
        ValueError: the distribution does not exist.
    """
    if distribution not in DISTRIBUTIONS:
        known = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"unknown distribution {distribution!r}; known are {known}")
    if distribution == "task":
        return True
    free = [spec for spec, domain in _floating(task) if domain in ("any", "nonnegative")]
    if not _floating(task):
        return distribution == "normal"
    if distribution == "masked":
        return _takes_masks(task) and all(domain == "any" for _, domain in _floating(task))
    return bool(free) or distribution not in _NEED_FREEDOM


def domain_of(task: Task, spec: InputSpec) -> Domain:
    """What fresh values of this input must satisfy; "any" when the graph does not mind."""
    if spec.tensor is None or not spec.tensor.dtype.is_floating:
        return spec.domain
    return spec.domain if spec.name in inputs_in_need_of_a_domain(task.graph) else "any"


def _floating(task: Task) -> list[tuple[InputSpec, Domain]]:
    return [
        (spec, domain_of(task, spec))
        for spec in task.tensor_inputs
        if spec.tensor is not None and spec.tensor.dtype.is_floating
    ]


def _takes_masks(task: Task) -> bool:
    """-inf is an ordinary value only where a maximum is subtracted before an exponential."""
    operators = {node.op for node in task.graph.nodes}
    return {"aten.exp.default", "aten.amax.default"} <= operators
