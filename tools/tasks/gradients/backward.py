"""Traces the backward of a module and writes it as a module file of its own.

The gradients are traced at the level of ATen (make_fx over torch.func.vjp) with the operators that
autograd itself runs, so that PyTorch's time for the file is that of its own backward. What is
differentiated is the forward as `torch.export` reads it, so that code which asks for values where
nothing exports (masks of all ones are left out) is read as in the forward's own trace. Where the
graph uses results of the forward, they are given. What else it needs of the forward it computes
again from the forward's arguments, unless that would take products: then a forward of the step's
own keeps it (`kept.py`), also a module file. Of several results those that are floating have a
gradient. Buffers that a forward updates are written by whoever runs it: the step's own forward
returns their new values. Only called inside workers.
Not covered: backwards that read what the forward writes into a buffer, and recurrent layers, whose
gradients would be unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import cast

import torch
from torch import fx
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelwright.tools.tasks.gradients.beside_autograd import Forward, Tensors, timed
from kernelwright.tools.tasks.gradients.exported import constants_of, exported, functional
from kernelwright.tools.tasks.gradients.kept import Step, make_empty_anew, split
from kernelwright.tools.tasks.graph.aten_graph import reads_values
from kernelwright.tools.tasks.graph.convert import names_of, simplify, to_graph
from kernelwright.tools.tasks.graph.inner_gradients import inner_gradient
from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.tasks.loading.packing import leaves_of
from kernelwright.tools.tasks.outline import looked_at
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.tasks.regions import region_source
from kernelwright.tools.types import RefusedError, Task, refuse
from kernelwright.tools.types.backward import Backward, BackwardGives, BackwardRead, ReadKind
from kernelwright.tools.types.outline import Outline, Region

_ORDER: Mapping[ReadKind, int] = {"input": 0, "weight": 0, "kept": 1, "result": 2, "gradient": 3}

Values = tuple[torch.Tensor, ...]
Pull = Callable[[Values], Values]


def backward_of(reference: Reference, task: Task, arguments: Sequence[object]) -> Backward:
    """The backward of a task's forward on these arguments.

    Args:
        reference: the module on its device.
        task: what it is.
        arguments: of one call, flat.

    Raises:
        RefusedError: the module has no backward that can be a task of its own.
    """
    if why := why_no_backward(task):
        raise refuse(why)
    tensors = _tensors(reference, task, arguments)
    wanted = [
        read for read in tensors if _is_wanted(read, task) and tensors[read].is_floating_point()
    ]
    if not wanted:
        raise refuse("There is nothing to be differentiated.")
    forward = _forward(reference.module, task, arguments)
    try:
        results = forward(tensors)
        gradients = tuple(
            torch.randn_like(result, memory_format=torch.contiguous_format) for result in results
        )
        module = exported(reference.module, arguments)
        constants = constants_of(module)
        with _attention(reference.device):
            read = _forward(module, task, arguments)
            traced = _traced(
                read, {**tensors, **constants}, len(constants), wanted, _updated(task), gradients
            )
        given: Tensors = {**tensors, **_ends(task, results, gradients)}
        return timed(forward, given, wanted, _written(task, traced, given, wanted))
    except RefusedError:
        raise
    except Exception as error:  # whatever the user's module does that cannot be differentiated
        raise refuse(_why(error, reference.module, arguments)) from error


def _why(error: Exception, module: torch.nn.Module, arguments: Sequence[object]) -> str:
    if values := reads_values(error):
        return f"The backward {values}, so that it cannot be traced."
    if inner := inner_gradient(module, arguments):
        return f"The forward takes gradients itself by {inner}; gradients of those are PyTorch's."
    words = " ".join(str(error).split())[:200]
    return f"The backward cannot be traced: {words}"


def _ends(
    task: Task, results: Iterable[torch.Tensor], gradients: Iterable[torch.Tensor]
) -> Tensors:
    """The floating results, then their gradients."""
    names = result_names(task)
    made = (BackwardRead(kind="result", name=name) for name in names)
    back = (BackwardRead(kind="gradient", name=name) for name in names)
    return dict(zip((*made, *back), (*results, *gradients), strict=True))


def result_names(task: Task) -> list[str]:
    """What the results that can have a gradient are called: by place, a lone one not at all."""
    places = [at for at, spec in enumerate(task.outputs) if spec.dtype.is_floating]
    return [""] if len(task.outputs) == 1 else [str(at) for at in places]


def why_no_backward(task: Task) -> str:
    """Why a task's backward cannot be a task of its own; "" where it may."""
    if task.parts:
        return "A module that cannot be traced as a whole has no backward that can be."
    if task.draws_random:
        return "The module draws random numbers."
    if not any(spec.dtype.is_floating for spec in task.outputs):
        return "No result is a floating tensor."
    read = {str(node.target) for node in task.graph.nodes if node.op == "weight"}
    for weight in task.weights:
        if weight.tensor.dtype.is_complex and weight.name in read:
            return (
                f"The forward computes with complex numbers, {weight.name!r}; keep real ones and "
                "call torch.view_as_complex in the forward."
            )
    return ""


def _updated(task: Task) -> list[BackwardRead]:
    """The buffers that the forward writes."""
    return [BackwardRead(kind="weight", name=item.target) for item in task.graph.mutations]


def _attention(device: str) -> AbstractContextManager[object]:
    """Attention by its products and softmax, where the device's operators compute no float64.

    A GPU's are for float32 and half types alone, so that nothing could be held against them.
    """
    return nullcontext() if device == "cpu" else sdpa_kernel(SDPBackend.MATH)


def _is_wanted(read: BackwardRead, task: Task) -> bool:
    """Whether it has a gradient: parameters, and inputs but those of a whole model, its data."""
    buffers = {weight.name for weight in task.weights if weight.is_buffer}
    trains = task.entry_kind == "built" and len(buffers) < len(task.weights)
    return not trains if read.kind == "input" else read.name not in buffers


def _tensors(reference: Reference, task: Task, arguments: Sequence[object]) -> Tensors:
    """What the forward reads, by what it stands for."""
    found: Tensors = {}
    for spec, value in zip(task.inputs, arguments, strict=True):
        if isinstance(value, torch.Tensor):
            found[BackwardRead(kind="input", name=spec.name)] = value
    module = reference.module
    weights: dict[str, torch.Tensor] = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    if len({id(tensor) for tensor in weights.values()}) < len(weights):
        raise refuse("Parts of the module share a weight.")
    for item in task.graph.mutations:  # the forward is called here, and the module's stay
        weights[item.target] = weights[item.target].clone()
    found |= {BackwardRead(kind="weight", name=name): held for name, held in weights.items()}
    return found


def _forward(module: torch.nn.Module, task: Task, arguments: Sequence[object]) -> Forward:
    """The forward as a function of its tensors, which returns its floating results."""

    def forward(tensors: Tensors) -> tuple[torch.Tensor, ...]:
        weights = {read.name: held for read, held in tensors.items() if read.kind == "weight"}
        inputs = tuple(
            tensors[BackwardRead(kind="input", name=spec.name)]
            if isinstance(value, torch.Tensor)
            else value
            for spec, value in zip(task.inputs, arguments, strict=True)
        )
        leaves = leaves_of(functional_call(module, weights, inputs))
        tensors_made = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        return tuple(leaf for leaf in tensors_made if leaf.is_floating_point())

    return forward


def _traced(
    forward: Forward,
    tensors: Tensors,
    constants: int,
    wanted: Sequence[BackwardRead],
    updated: Sequence[BackwardRead],
    gradients: tuple[torch.Tensor, ...],
) -> Step:
    """The whole step's graph; its placeholders: the tensors, then the results' gradients.

    So many of the tensors, the last, are no arguments but constants.
    """

    def step(values: list[torch.Tensor], gradients: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        held = dict(zip(tensors, values, strict=True))

        def of_wanted(*chosen: torch.Tensor) -> tuple[Values, Values]:
            written = {read: held[read].clone() for read in updated}
            results = forward({**held, **dict(zip(wanted, chosen, strict=True)), **written})
            return results, tuple(written.values())

        found = torch.func.vjp(of_wanted, *(held[read] for read in wanted), has_aux=True)
        results, pull, updates = cast("tuple[Values, Pull, Values]", found)
        return [*results, *updates, *pull(gradients)]

    graph = functional(step, list(tensors.values()), gradients)
    placeholders = graph.find_nodes(op="placeholder")
    leaves = cast("list[fx.Node]", graph.output_node().args[0])
    if graph.find_nodes(op="get_attr"):
        raise refuse(
            "The forward computes with a tensor that is no parameter or buffer; register it as a "
            "buffer for kernels both ways."
        )
    first = len(tensors) - constants
    baked, built = placeholders[first : len(tensors)], [*tensors.values()][first:]
    traced = Traced(
        graph=graph,
        inputs=tuple(node.name for node in placeholders if node not in baked),
        weights={},
        outputs=list(leaves),
        structure="tuple",
        constants={node.name: value for node, value in zip(baked, built, strict=True)},
    )
    simplify(traced)
    make_empty_anew(graph)
    count = len(gradients)
    ends = [*map(_unwrapped, traced.outputs)]
    return Step(
        traced=traced,
        results=tuple(ends[:count]),
        updates=tuple(map(_copied, ends[count : count + len(updated)])),
        gradients=tuple(ends[count + len(updated) :]),
        upstream=tuple(placeholders[-count:]),
    )


def _copied(node: fx.Node) -> fx.Node:
    """What is written into a buffer of its own type."""
    while node.target is torch.ops.aten.copy.default:
        into, value = node.args[:2]
        if not isinstance(into, fx.Node) or not isinstance(value, fx.Node):
            break
        if into.meta["val"].dtype != value.meta["val"].dtype:
            break
        node = value
    return node


def _unwrapped(node: fx.Node) -> fx.Node:
    """A value without what autograd hides it behind."""
    while node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        node = cast("fx.Node", node.args[0])
    return node


def _written(
    task: Task,
    step: Step,
    given: Tensors,
    wanted: Sequence[BackwardRead],
) -> Backward:
    placeholders = _arguments(step)
    passed = [read for read in given if read.kind != "result"]
    ends = [read for read in given if read.kind == "result"]
    reads = {
        **dict(zip(step.results, ends, strict=True)),
        **dict(zip(placeholders, passed, strict=True)),  # a result may be an argument
    }
    _check_gradients(step, reads)
    made = list(dict.fromkeys(node for node in step.gradients if node not in reads))
    parts = split(step, may_keep=all(spec.dtype.is_floating for spec in task.outputs))
    reads |= {
        node: BackwardRead(kind="kept", name=str(number)) for number, node in enumerate(parts.kept)
    }
    values = dict(zip(placeholders, (given[read] for read in passed), strict=True))
    write = partial(_file, _outlined(step, values), reads)
    source, read_back = write(f"The backward of {task.name}", parts.backward, made)
    updated = _updated(task)
    if changed := next((read.name for read in read_back if read in updated), None):
        raise refuse(f"The backward reads the buffer {changed!r}, which the forward updates.")
    forward, read_forward = "", tuple[BackwardRead, ...]()
    if parts.kept:
        title = f"The forward of {task.name} in a training step"
        made_forward = [*step.results, *step.updates, *parts.kept]
        forward, read_forward = write(title, parts.forward, made_forward)
    return Backward(
        source=source,
        reads=read_back,
        forward=forward,
        forward_reads=read_forward,
        kept=len(parts.kept),
        updates=tuple(read.name for read in updated),
        gives=tuple(
            BackwardGives(
                kind=read.kind,
                name=read.name,
                place=made.index(node) if node in made else None,
                of="" if node in made else reads[node].name,
            )
            for read, node in zip(wanted, step.gradients, strict=True)
        ),
    )


def _check_gradients(step: Step, reads: Mapping[fx.Node, BackwardRead]) -> None:
    """Refuse gradients that are nothing to be computed, or the forward's own values."""
    made = [node for node in step.gradients if node not in reads]
    if any(reads[node].kind != "gradient" for node in step.gradients if node in reads):
        raise refuse("A gradient is one of the forward's own tensors.")
    if not made:
        raise refuse("The gradients need no computing.")
    if constant := next((node for node in made if not _depends(node)), None):
        raise refuse(f"A gradient is a constant ({constant.target}), whatever the inputs are.")


def _arguments(step: Step) -> list[fx.Node]:
    """The placeholders of what the step is given."""
    placeholders = step.traced.graph.find_nodes(op="placeholder")
    return [node for node in placeholders if node.name not in step.traced.constants]


Named = tuple[Outline, Mapping[fx.Node, str]]


def _outlined(step: Step, values: Mapping[fx.Node, object]) -> Named:
    """The step's graph with what its values look like, and what its nodes are called there."""
    labels = [f"t{number}" for number in range(len(values))]
    names = names_of(step.traced, labels)
    graph = to_graph(step.traced, labels, with_strides=True)
    constants = step.traced.constants
    baked = {node: constants[node.name] for node in names if node.name in constants}
    seen = looked_at(step.traced.graph, {**values, **baked}, names)
    return Outline(graph=graph, seen=tuple(seen.values()), whole_ms=0.0), names


def _file(
    outlined: Named,
    reads: Mapping[fx.Node, BackwardRead],
    title: str,
    nodes: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
) -> tuple[str, tuple[BackwardRead, ...]]:
    """The text of a module file of these nodes, and its arguments."""
    outline, names = outlined
    inside = set(nodes)
    read_by = {at for node in nodes for at in node.all_input_nodes}
    baked = [at for at in names if at in read_by and at.op == "placeholder" and at not in reads]
    nodes, inside = [*baked, *nodes], {*baked, *inside}
    used = dict.fromkeys(at for node in nodes for at in node.all_input_nodes if at not in inside)
    given = [node for node in names if node in used]  # in the order of the graph, then of kinds
    given.sort(key=lambda node: _ORDER[reads[node].kind])
    region = Region(
        nodes=tuple(names[node] for node in nodes),
        inputs=tuple(names[node] for node in given),
        weights=(),
        outputs=tuple(names[node] for node in outputs),
    )
    words = ", ".join(_words(reads[node]) for node in given)
    text = region_source(outline, region, f"{title}, given {words}")
    return text, tuple(reads[node] for node in given)


def _words(read: BackwardRead) -> str:
    if read.kind in ("input", "weight"):
        return read.name
    if read.kind == "kept":
        return f"what was kept as {read.name}"
    return f"the {read.kind}" if not read.name else f"the {read.kind} at place {read.name}"


def _depends(node: fx.Node) -> bool:
    """Whether a node is computed from an argument."""
    waiting, seen = [node], set[fx.Node]()
    while waiting:
        at = waiting.pop()
        if at.op == "placeholder":
            return True
        if at not in seen:
            seen.add(at)
            waiting.extend(at.all_input_nodes)
    return False
