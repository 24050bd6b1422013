"""The inputs of a task in other sizes: one other size, or a range that a result shall serve.

A range is compared with PyTorch at the example's sizes alone, so the example has to lie in it: one
that does not is drawn anew at the range's end. What is served is said on the card before anything
is spent, with the sizes at which it will be verified.
"""

import re

from kernelwright.agents.assistant.types import ChangeTask
from kernelwright.tools.tasks.inputs.shapes import checked_sizes
from kernelwright.tools.types import InputSpec, Task
from kernelwright.tools.types.shapes import Dimension

ONE_SIZE = "none"
_BATCH = re.compile(r"\bbatch=(?P<low>\d+)\.\.(?P<high>\d+)")
# Of which a card says where it is verified; further ones are counted.
_SHOWN = 6


def asked_for(command: ChangeTask, before: str) -> str:
    """What is to be served from now on, as `--shapes` takes it; "" for the example's sizes."""
    if command.shapes:
        return "" if command.shapes == ONE_SIZE else command.shapes
    # Whoever names other inputs means these.
    return "" if command.inputs or command.sizes else before


def inside(task: Task | None, shapes: str) -> tuple[str, ...]:
    """Inputs whose batch lies in the range, where the task's own does not; else none."""
    asked = _BATCH.search(shapes)
    shape = next((spec.tensor.shape for spec in task.inputs if spec.tensor), ()) if task else ()
    if task is None or asked is None or not shape:
        return ()
    low, high = int(asked["low"]), int(asked["high"])
    return () if low <= shape[0] <= high else resized(task, (f"rows={high}",))


def resized(task: Task, sizes: tuple[str, ...]) -> tuple[str, ...]:
    """The task's inputs with other rows or columns: their first or last dimension.

    What is as long as the first input is in that direction changes with it, so that what is
    added or multiplied row by row still fits. Empty where nothing of that can be changed.
    """
    shapes = [list(spec.tensor.shape) if spec.tensor else [] for spec in task.inputs]
    first = next((shape for shape in shapes if shape), None)
    wanted = dict(text.split("=") for text in sizes if re.fullmatch(r"(rows|columns)=\d+", text))
    if first is None or not wanted or any(spec.tensor is None for spec in task.inputs):
        return ()
    rows, columns = first[0], first[-1]
    for shape in filter(None, shapes):
        if "columns" in wanted and shape[-1] == columns:
            shape[-1] = int(wanted["columns"])
        if "rows" in wanted and len(shape) > 1 and shape[0] == rows:
            shape[0] = int(wanted["rows"])
    return typed(tuple("x".join(map(str, shape)) for shape in shapes), task)


def typed(inputs: tuple[str, ...], task: Task | None) -> tuple[str, ...]:
    """Shapes without a type keep that of the task's own input, whose integers keep their range."""
    specs = task.inputs if task else ()
    own = [_type_of(spec) for spec in specs] + [""] * len(inputs)
    return tuple(
        text if ":" in text or not kind else f"{text}:{kind}"
        for text, kind in zip(inputs, own, strict=False)
    )


def _type_of(spec: InputSpec) -> str:
    if spec.tensor is None:
        return ""
    kind = spec.tensor.dtype.value
    bounded = "int" in kind and spec.maximum is not None
    return f"{kind}<{int(spec.maximum or 0) + 1}" if bounded else kind


def served_words(task: Task, seed: int = 0) -> str:
    """What a result shall serve beside the example, for the card; "" where nobody asked."""
    return "; ".join(_words(item, seed) for item in task.dimensions)


def _words(item: Dimension, seed: int) -> str:
    compared = f"compared with PyTorch at {item.example}"
    if item.points:
        points = ", ".join(map(str, item.points))
        return f"{item.name} {points}, kernels for each; {compared}"
    looked = checked_sizes(item, seed)
    some = ", ".join(map(str, looked[:_SHOWN]))
    more = f" and {len(looked) - _SHOWN} more" if len(looked) > _SHOWN else ""
    return (
        f"{item.name} {item.low} to {item.high} by one set of kernels, verified at {some}{more}; "
        f"{compared}; other sizes run your module"
    )
