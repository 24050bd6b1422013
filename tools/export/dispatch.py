"""When an export that serves several sizes runs its kernels, and what shape its results have.

Sizes are chosen between inside the plan, which is one operator of a compiled graph; here is only
the question whether a call's sizes are among those that were verified. A dimension is read from its
first place, held against its range or its single sizes, and its other places must equal it. Where
nobody asked for other sizes, all of this is the example's shape.
"""

from kernelwright.tools.export.guards import Argument
from kernelwright.tools.types import Task
from kernelwright.tools.types.shapes import Dimension, VerifiedShapes

Places = dict[tuple[int, int], int]


class Dispatch:
    """The sizes of a task's calls as Python.

    Args:
        task: what is exported.
        shapes: what was verified beside the example's sizes; None where nothing was.
        names: the export's variables for the inputs.
    """

    def __init__(self, task: Task, shapes: VerifiedShapes | None, names: list[str]) -> None:
        self._task, self._names, self._shapes = task, names, shapes
        self._dimensions = shapes.dimensions if shapes else ()
        self._of = {
            place: number for number, item in enumerate(self._dimensions) for place in item.places
        }

    @property
    def reads(self) -> tuple[str, ...]:
        """Where each dimension is read."""
        return tuple(self._place(item.places[0]) for item in self._dimensions)

    def condition(self, item: Argument) -> str:
        """That a tensor has verified sizes; the first place of a dimension is looked at first."""
        places = self._places(item)
        if not places:
            return f"{item.name}.shape == {item.shape}"
        found = [f"{item.name}.dim() == {len(item.tensor.shape)}"]
        for at, size in enumerate(item.tensor.shape):
            where = f"{item.name}.shape[{at}]"
            if at not in places:
                found.append(f"{where} == {size}")
                continue
            dimension = self._dimensions[places[at]]
            first = self._place(dimension.places[0])
            found.append(_within(where, dimension) if first == where else f"{where} == {first}")
        return " and ".join(found)

    def sizes(self, item: Argument) -> str:
        """The sizes as a tuple, with a range or a tuple where several are served."""
        places = self._places(item)
        if not places:
            return item.shape
        parts = [
            _values(self._dimensions[places[at]]) if at in places else str(size)
            for at, size in enumerate(item.tensor.shape)
        ]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def output(self, number: int, item: Argument) -> str:
        """The shape of one of the results, by its number."""
        if self._shapes is None:
            return item.shape
        parts = [size.printed(self.reads) for size in self._shapes.outputs[number]]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def _places(self, item: Argument) -> dict[int, int]:
        """The dimensions of a tensor that may change, with the number of what they belong to."""
        if item.path or item.name not in self._names:
            return {}
        number = self._names.index(item.name)
        return {at: of for (tensor, at), of in self._of.items() if tensor == number}

    def _place(self, place: tuple[int, int]) -> str:
        return f"{self._names[place[0]]}.shape[{place[1]}]"


def _within(where: str, dimension: Dimension) -> str:
    if dimension.points:
        return f"{where} in {dimension.points!r}"
    return f"{dimension.low} <= {where} <= {dimension.high}"


def _values(dimension: Dimension) -> str:
    if dimension.points:
        return repr(dimension.points)
    return f"range({dimension.low}, {dimension.high + 1})"


def served_words(shapes: VerifiedShapes, task: Task) -> list[str]:
    """The dimensions in words, a line each."""
    lines = []
    for item in shapes.dimensions:
        places = ", ".join(f"`{task.inputs[number].name}[{at}]`" for number, at in item.places)
        lines.append(f"`{item.name}` = {item.sizes_words}: {places}")
    return lines
