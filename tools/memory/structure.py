"""What a task computes, as keys: equal for tasks that one kernel can serve, or one recipe.

Both are hashes of the traced graph with its own names taken out. `exact` holds every shape, layout,
type and constant; tasks that have it in common compute the same on other weights. `structure`
leaves sizes out, so that it is shared by tasks of the same operators, ranks and types.

Not covered: graphs that compute the same in another order, or with other operators.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256

from kernelwright.tools.types.graph import (
    Arg,
    DType,
    DTypeArg,
    Graph,
    ListArg,
    Node,
    Ref,
    Scalar,
    TensorSpec,
    base,
    refs,
    words,
)
from kernelwright.tools.types.task import InputSpec, Task
from kernelwright.tools.types.value import Value

# Whose whole numbers are sizes and places, and not dimensions.
_SIZED = words(
    "_unsafe_view arange as_strided constant_pad_nd empty expand full linspace new_empty new_full "
    "new_ones new_zeros ones repeat reshape select slice split split_with_sizes unfold view zeros"
)
_DIMENSIONS = 8  # numbers below may be dimensions, and are kept
_GIVEN = ("input", "weight", "constant")
_NEAR = 2


class TaskKey(Value):
    """The keys of a task; `weights` are the weights that it reads, in the order of their use.

    `words` are its operators, in order, and `shape` and `dtype` those of its largest input.
    """

    exact: str
    structure: str
    weights: tuple[str, ...]
    words: str
    shape: tuple[int, ...]
    dtype: str


def key_of(task: Task) -> TaskKey | None:
    """The keys of a task; None for one that computes nothing on a tensor, or is traced in parts.

    The graph of the latter says nothing of what is computed; its regions have keys of their own.
    """
    if task.parts:
        return None
    graph = task.graph
    nodes = {node.name: node for node in graph.nodes}
    made = [node for node in graph.nodes if node.op not in _GIVEN]
    tensors = [item.tensor for item in task.inputs if item.tensor is not None]
    if not made or not tensors:
        return None
    names, weights = _names(graph, made, nodes)
    largest = max(tensors, key=lambda spec: spec.numel)
    return TaskKey(
        exact=_digest(_lines(task, made, names, nodes, _whole)),
        structure=_digest(_lines(task, made, names, nodes, _rank)),
        weights=tuple(str(nodes[name].target) for name in weights),
        words=_operators(made),
        shape=largest.shape,
        dtype=largest.dtype.value,
    )


def _names(
    graph: Graph, made: list[Node], nodes: Mapping[str, Node]
) -> tuple[dict[str, str], list[str]]:
    """Every node by its place: inputs, weights as they are used, and what is computed."""
    weights: dict[str, str] = {}
    for node in made:
        for at in refs(node):
            if nodes[at].op in ("weight", "constant") and at not in weights:
                weights[at] = f"w{len(weights)}"
    inputs = {name: f"x{number}" for number, name in enumerate(graph.inputs)}
    return {node.name: f"%{number}" for number, node in enumerate(made)} | inputs | weights, [
        *weights
    ]


def _lines(
    task: Task,
    made: list[Node],
    names: dict[str, str],
    nodes: Mapping[str, Node],
    spec: Callable[[TensorSpec], str],
) -> Iterator[str]:
    """What is hashed, line by line."""
    sized = spec is _rank
    for item in task.inputs:
        yield f"given {_given(item, spec)}"
    for name, called in names.items():
        if called.startswith("w"):
            yield f"{called}:{spec(nodes[name].out[0])}"
    for node in made:
        free = sized and base(node.op) in _SIZED
        texts = [_text(arg, names, sized=sized, free=free) for arg in node.args]
        texts += [f"{key}={_text(a, names, sized=sized, free=free)}" for key, a in node.kwargs]
        yield f"{names[node.name]}={node.op}({', '.join(texts)})"
    yield " ".join(names.get(name, name) for name in task.graph.outputs)
    sums = "" if task.graph.sums is DType.FLOAT32 else f" {task.graph.sums.value}"
    yield f"{task.graph.output_structure} {task.graph.is_tf32}{sums}"
    named = {node.target: names[at] for at, node in nodes.items() if node.target and at in names}
    for change in task.graph.mutations:
        yield f"{named.get(change.target, '?')}<-{names.get(change.node, '?')}"


def _given(item: InputSpec, spec: Callable[[TensorSpec], str]) -> str:
    return repr(item.scalar) if item.tensor is None else spec(item.tensor)


def _whole(spec: TensorSpec) -> str:
    return f"{spec.shape},{spec.strides},{spec.dtype.value}"


def _rank(spec: TensorSpec) -> str:
    return f"{len(spec.shape)},{spec.strides is None},{spec.dtype.value}"


def _text(arg: Arg, names: Mapping[str, str], *, sized: bool, free: bool) -> str:
    """An argument; of a `sized` text without sizes, where `free` without any whole number."""
    if isinstance(arg, Ref):
        return names[arg.node]
    if isinstance(arg, ListArg):
        inner = (_text(item, names, sized=sized, free=free) for item in arg.items)
        return f"[{', '.join(inner)}]"
    if isinstance(arg, DTypeArg):
        return arg.value.value
    return "#" if sized and _is_size(arg, free=free) else repr(arg.value)


def _is_size(arg: Scalar, *, free: bool) -> bool:
    value = arg.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(value, float) and not value.is_integer():
        return False
    return (free and isinstance(value, int)) or abs(value) >= _DIMENSIONS


def _digest(lines: Iterator[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:24]


def _operators(made: list[Node]) -> str:
    names = [base(node.op).lstrip("_") for node in made if node.op != "getitem"]
    told = list(dict.fromkeys(names))
    return ", ".join(told[:6]) + (", ..." if len(told) > 6 else "")


def is_near(one: TaskKey, other: TaskKey) -> bool:
    """Whether tasks of one structure differ in size by a factor of two at most, side by side.

    By their largest inputs. What was best for a task that is farther off showed no gain:
    benchmarks/results/h200/surfaces.md.
    """
    sides = zip(one.shape, other.shape, strict=False)
    alike = one.structure == other.structure and len(one.shape) == len(other.shape)
    return alike and all(max(pair) <= _NEAR * min(pair) for pair in sides)


def with_weights_named(plan: str, names: Mapping[str, str]) -> str | None:
    """A plan that reads and updates the weights of the other names; None where one has none."""
    lines = plan.splitlines(keepends=True)
    try:
        tree = ast.parse(plan)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # out of somebody's file
        return None
    for found in reversed(_weight_names(tree)):
        if found.value not in names or found.end_lineno != found.lineno:
            return None
        # The columns of the syntax tree count bytes.
        line = lines[found.lineno - 1].encode()
        renamed = repr(names[str(found.value)]).replace("'", '"').encode()
        line = line[: found.col_offset] + renamed + line[found.end_col_offset :]
        lines[found.lineno - 1] = line.decode()
    return "".join(lines)


def _weight_names(tree: ast.Module) -> list[ast.Constant]:
    """Where a plan names a weight, in the order of its text."""
    found: list[ast.Constant] = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(
                value=ast.Name(id="weights"), slice=ast.Constant(value=str()) as name
            ):
                found.append(name)
            case ast.Call(func=ast.Name(id="update"), args=[ast.Constant(value=str()) as name, *_]):
                found.append(name)
    return sorted(found, key=lambda item: (item.lineno, item.col_offset))
