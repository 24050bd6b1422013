"""The same task with inputs of other sizes, for candidates that claim to read sizes as they run.

Sizes that several inputs share change together. Which of them may change at all is for whoever can
run the reference to say. Every other size is smaller than the task's own, so that memory suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernelwright.tools.types import InputSpec, Task

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
