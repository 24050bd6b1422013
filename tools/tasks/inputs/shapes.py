"""What `--shapes "batch=1..64, x[1]=128|512"` means for a task, and the same task at other sizes.

`batch` is the first dimension of every input that is as long there as the first input. Any other
dimension is named by its input, as `x[1]` or `x.1`, or by a name that the file declares:
`DIMENSIONS = {"length": "x[1]"}`. Which other inputs must follow is found by tracing the module at
a second size: as it was said, then with what is as long. This module only says what to try; whoever
can run the file tries it.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations as combinations_of_two

from kernelwright.tools.types import InputSpec, RefusedError, Task, TensorSpec, refuse
from kernelwright.tools.types.shapes import Dimension, LinearSize

BATCH = "batch"
# Combinations of single sizes; each has kernels of its own, which are traced and verified.
MOST_POINTS = 8
_ITEM = re.compile(r"(?P<name>[A-Za-z_]\w*(?:\[-?\d+\]|\.\d+)?)=(?P<sizes>[\d.|]+)")
_PLACE = re.compile(r"(?P<input>[A-Za-z_]\w*)(?:\[(?P<index>-?\d+)\]|\.(?P<dotted>\d+))")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_FORM = "write it as batch=1..64 or x[1]=128|512, with commas between dimensions"

Place = tuple[int, int]


def dimensions(text: str, task: Task) -> tuple[Dimension, ...]:
    """The dimensions that the text names, each with its first guess of places.

    Raises:
        RefusedError: the text cannot be read, names what the task has not, or leaves its example
            out; or the task's inputs cannot be drawn in other sizes.
    """
    _check_task(task)
    found = tuple(_dimension(item.strip(), task) for item in text.split(",") if item.strip())
    if not found:
        raise refuse(f"--shapes names no dimension; {_FORM}.")
    taken: dict[Place, str] = {}
    for item in found:
        for place in item.places[:1]:
            if place in taken:
                words = f"--shapes says {_called(place, task)} twice, as {taken[place]!r} and"
                raise refuse(f"{words} {item.name!r}.")
            taken[place] = item.name
    ranges = [item.name for item in found if not item.points]
    if len(ranges) > 1:
        raise refuse(
            f"--shapes can have one range, and {' and '.join(ranges)} are ranges; "
            "name single sizes for the others, as 128|512."
        )
    _check_points(found)
    return found


Traced = Callable[[tuple[str, ...]], Task]


def tied(text: str, task: Task, traced: Traced) -> tuple[Dimension, ...]:
    """The dimensions with every place that changes with them.

    Args:
        text: what the person said.
        task: at its example's sizes.
        traced: the task with such inputs, as `--inputs` takes them; RefusedError where it has none.

    Raises:
        RefusedError: the text cannot be used, or the module does not run at a second size.
    """
    found = tuple(_tied(item, task, traced) for item in dimensions(text, task))
    for one, other in combinations_of_two(found, 2):
        if set(one.places) & set(other.places):
            raise refuse(f"--shapes: {one.name} and {other.name} change together; name one alone.")
    return found


def _tied(found: Dimension, task: Task, traced: Traced) -> Dimension:
    size = second_size(found)
    why = ""
    for places in ties(found, task) if size != found.example else ():
        tried = found.model_copy(update={"places": places})
        try:
            other = traced(as_texts(at(task, (tried,), (size,))))
        except RefusedError as refused:
            why = why or refused.refusal.sentence
            continue
        if [w.tensor for w in other.weights] == [w.tensor for w in task.weights]:
            return tried
        why = "its weights change with it"
    if not why:
        return found
    raise refuse(f"--shapes: {task.name} does not run with {found.name}={size}: {why}")


def second_size(found: Dimension) -> int:
    """A size that is neither the example's nor 1, which fits where it does not belong."""
    if found.points:
        others = (size for size in reversed(found.points) if size != found.example)
        return next(others, found.example)
    inside = (size for size in telling_sizes(found) if found.holds(size))
    chosen = [size for size in inside if size not in (1, found.example)]
    return (chosen or [size for size in (found.high, found.low) if size != found.example])[0]


def ties(dimension: Dimension, task: Task) -> tuple[tuple[Place, ...], ...]:
    """The places that may have to change together, the likeliest first."""
    first = dimension.places[0]
    equal = [place for place in _equal(task, dimension.example) if place[0] != first[0]]
    beside = [place for place in equal if place[1] == first[1]]
    tried = [(first,), (first, *beside), (first, *equal)]
    if dimension.name == BATCH:
        tried = [(first, *beside), (first,)]
    return tuple(dict.fromkeys(tried))


def at(task: Task, found: Sequence[Dimension], sizes: Sequence[int]) -> tuple[InputSpec, ...]:
    """The task's inputs at those sizes, drawn as its own are."""
    shapes = [list(spec.tensor.shape) if spec.tensor else [] for spec in task.inputs]
    for dimension, size in zip(found, sizes, strict=True):
        for number, at_ in dimension.places:
            shapes[number][at_] = size
    return tuple(_with_shape(spec, shape) for spec, shape in zip(task.inputs, shapes, strict=True))


def as_texts(inputs: Sequence[InputSpec]) -> tuple[str, ...]:
    """The inputs as `--inputs` takes them."""
    return tuple(map(_text, inputs))


def combinations(found: Sequence[Dimension]) -> tuple[dict[int, int], ...]:
    """Every choice of single sizes, by the number of the dimension; {} where there are none."""
    made: list[dict[int, int]] = [{}]
    for number, item in enumerate(found):
        if item.points:
            made = [known | {number: size} for known in made for size in item.points]
    return tuple(made)


def ranged(found: Sequence[Dimension]) -> int | None:
    """The number of the dimension that is a range."""
    return next((number for number, item in enumerate(found) if not item.points), None)


# What is smaller has narrower vectors, and fewer strategies: texts for it differ from one another.
_LEAST_TELLING = 32


def telling_sizes(dimension: Dimension, count: int = 4) -> tuple[int, ...]:
    """Sizes that share no divisor with anything: what is written for them holds for all sizes.

    The largest primes of the range (where it has too few that are not small, the next ones beyond
    it), and its end: any three of these tell, as two of them are primes.
    """
    inside = [size for size in range(max(3, dimension.low), dimension.high + 1) if _is_prime(size)]
    beyond = (size for size in range(max(3, dimension.high + 1), 10**9) if _is_prime(size))
    chosen = inside[-count:]
    while len(chosen) < count or sum(size >= _LEAST_TELLING for size in chosen) < count - 1:
        chosen.append(next(beyond))
    return tuple(sorted({*chosen[-count:], dimension.high}))


def checked_sizes(dimension: Dimension, seed: int) -> tuple[int, ...]:
    """The sizes of a range that the judge looks at: ends, beside them, odd ones and random ones."""
    low, high = dimension.low, dimension.high
    span = high - low + 1
    drawn = [low + (seed * (number * 7919 + 104729) + number * 31) % span for number in range(1, 4)]
    odd = (low + span * 5 // 8) | 1
    chosen = [low, high, dimension.example, low + 1, high - 1, odd, *drawn]
    return tuple(sorted({size for size in chosen if low <= size <= high}))


def linear_outputs(
    tasks: Sequence[tuple[tuple[int, ...], Task]],
) -> tuple[tuple[LinearSize, ...], ...]:
    """How the outputs' shapes follow from the sizes at which the tasks were traced.

    Raises:
        RefusedError: an output's size is no multiple of one dimension's plus a constant.
    """
    first = tasks[0][1].outputs
    known = [(sizes, [output.shape for output in task.outputs]) for sizes, task in tasks]
    if any([len(s) for s in shapes] != [len(o.shape) for o in first] for _, shapes in known):
        raise refuse("The results have another number of dimensions at other sizes.")
    return tuple(
        tuple(
            _linear([(sizes, shapes[number][axis]) for sizes, shapes in known])
            for axis in range(len(output.shape))
        )
        for number, output in enumerate(first)
    )


def at_sizes(
    shapes: Sequence[Sequence[LinearSize]], outputs: Sequence[TensorSpec], sizes: Sequence[int]
) -> tuple[TensorSpec, ...]:
    """The outputs at those sizes, contiguous."""
    return tuple(
        spec.model_copy(
            update={
                "shape": tuple(
                    item.more + (0 if item.of is None else item.factor * sizes[item.of])
                    for item in shape
                ),
                "strides": None,
            }
        )
        for spec, shape in zip(outputs, shapes, strict=True)
    )


def _check_task(task: Task) -> None:
    if task.batch is not None:
        raise refuse("--shapes needs inputs that can be drawn in other sizes; these were saved.")
    if task.call is not None:
        raise refuse(f"--shapes takes plain arguments, and {task.name} takes named or nested ones.")
    for spec in task.inputs:
        if spec.tensor is not None and spec.tensor.strides is not None:
            raise refuse(f"--shapes takes contiguous inputs, and {spec.name} is not.")


def _check_points(found: Sequence[Dimension]) -> None:
    count = 1
    for item in found:
        count *= len(item.points) or 1
    if count > MOST_POINTS:
        raise refuse(
            f"--shapes asks for {count} combinations of single sizes, and each has kernels of its "
            f"own; {MOST_POINTS} are the most."
        )


def _dimension(item: str, task: Task) -> Dimension:
    read = _ITEM.fullmatch(re.sub(r"\s", "", item))
    if read is None:
        raise refuse(f"--shapes does not understand {item!r}; {_FORM}.")
    name, place = read["name"], _named(read["name"], task)
    example = _shape(task, place[0])[place[1]]
    low, high, points = _sizes(read["sizes"], item)
    others = _equal(task, example) if name == BATCH else []
    places = (place, *(other for other in others if other[0] != place[0] and other[1] == 0))
    made = Dimension(name=name, places=places, example=example, low=low, high=high, points=points)
    if not made.holds(example):
        raise refuse(
            f"--shapes says {name}={made.sizes_words}, and the example's {name} is {example}; "
            f"let it be among them, or give inputs whose {name} is."
        )
    return made


def _sizes(text: str, item: str) -> tuple[int, int, tuple[int, ...]]:
    if found := _RANGE.fullmatch(text):
        low, high = int(found[1]), int(found[2])
        if not 1 <= low < high:
            raise refuse(f"--shapes: {item!r} is no range; it goes from 1 or more up to a larger.")
        return low, high, ()
    parts = text.split("|")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise refuse(f"--shapes does not understand {item!r}; {_FORM}.")
    return 0, 0, tuple(sorted({int(part) for part in parts}))


def _named(name: str, task: Task) -> Place:
    declared = _declared(task.source)
    if name in declared:
        name = declared[name]
    elif name == BATCH:
        return _first_tensor(task), 0
    found = _PLACE.fullmatch(name)
    names = [spec.name for spec in task.inputs]
    if found is None or found["input"] not in names:
        raise refuse(f"--shapes does not know {name!r}; say batch, or one of {_known(task)}.")
    number, index = names.index(found["input"]), int(found["index"] or found["dotted"])
    rank = len(_shape(task, number))
    if not -rank <= index < rank:
        raise refuse(f"--shapes: {name} does not exist; {_known(task)} do.")
    return number, index % rank


def _declared(source: str) -> dict[str, str]:
    """What the file's own `DIMENSIONS` says."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="DIMENSIONS")], value=ast.Dict() as value):
                try:
                    held = ast.literal_eval(value)
                except ValueError:
                    return {}
                return {str(name): str(place) for name, place in held.items()}
    return {}


def _first_tensor(task: Task) -> int:
    for number, spec in enumerate(task.inputs):
        if spec.tensor is not None and spec.tensor.shape:
            return number
    raise refuse(f"--shapes: {task.name} has no input with a batch dimension.")


def _shape(task: Task, number: int) -> tuple[int, ...]:
    tensor = task.inputs[number].tensor
    return () if tensor is None else tensor.shape


def _equal(task: Task, size: int) -> list[Place]:
    """Every place in the inputs that has this size."""
    return [
        (number, at_)
        for number in range(len(task.inputs))
        for at_, other in enumerate(_shape(task, number))
        if other == size
    ]


def _called(place: Place, task: Task) -> str:
    return f"{task.inputs[place[0]].name}[{place[1]}]"


def _known(task: Task) -> str:
    return ", ".join(
        f"{_called((number, at_), task)} ({size})"
        for number in range(len(task.inputs))
        for at_, size in enumerate(_shape(task, number))
    )


def _with_shape(spec: InputSpec, shape: list[int]) -> InputSpec:
    if spec.tensor is None:
        return spec
    tensor = spec.tensor.model_copy(update={"shape": tuple(shape)})
    return spec.model_copy(update={"tensor": tensor})


def _text(spec: InputSpec) -> str:
    if spec.tensor is None:
        return str(spec.scalar)
    sizes = "x".join(map(str, spec.tensor.shape)) or "scalar"
    dtype = spec.tensor.dtype
    bounded = not dtype.is_floating and dtype.value != "bool"
    return f"{sizes}:{dtype.value}" + (f"<{int(spec.maximum or 0) + 1}" if bounded else "")


def _linear(found: Sequence[tuple[tuple[int, ...], int]]) -> LinearSize:
    """One output size as it follows from the dimensions' sizes."""
    values = {value for _, value in found}
    if len(values) == 1:
        return LinearSize(more=values.pop())
    for made in _fits(found):
        if all(made.factor * sizes[made.of or 0] + made.more == value for sizes, value in found):
            return made
    raise refuse("The sizes of the results do not follow one of the dimensions of --shapes.")


def _fits(found: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[LinearSize]:
    """Lines through two of the points, one for each dimension that tells them apart."""
    for number in range(len(found[0][0])):
        (one, value), *others = found
        other = next((item for item in others if item[0][number] != one[number]), None)
        if other is None:
            continue
        step = other[0][number] - one[number]
        if (other[1] - value) % step == 0:
            factor = (other[1] - value) // step
            yield LinearSize(of=number, factor=factor, more=value - factor * one[number])


def _is_prime(size: int) -> bool:
    return size > 1 and all(size % divisor for divisor in range(2, int(size**0.5) + 1))
