"""From a file's text to a Task, or to the sentence that says why not.

Runs inside a worker process: it executes the user's file. Limits on time and memory, and what
ends the process itself, are the worker's.

A fresh process can be made ready to trace, as torch imports half of its exporter at the first
export. That is a second and a half of importing for 0.3 s of work, so a worker that stands ready
exports a module of ours beforehand. It computes nothing: an export runs on fake tensors.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from kernelwright.tools.runtime import imports_out_of_sight
from kernelwright.tools.tasks.audit.doubts import graph_badges
from kernelwright.tools.tasks.graph.aten_graph import trace_graph, trace_selections
from kernelwright.tools.tasks.graph.convert import (
    constants_of,
    simplify,
    tensor_spec,
    to_graph,
)
from kernelwright.tools.tasks.graph.cost import bytes_moved, flops
from kernelwright.tools.tasks.graph.lean_export import UNCHECKED, unchecked_distributions
from kernelwright.tools.tasks.graph.random_draws import random_operators, unkept_draws, unused_draws
from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.tasks.inputs.domains import input_spec, keep_needed_domains, try_out
from kernelwright.tools.tasks.inputs.shapes import tied
from kernelwright.tools.tasks.loading.held import drawn_names, drawn_table
from kernelwright.tools.tasks.loading.modules import build_call, build_module, check_inputs
from kernelwright.tools.tasks.loading.packing import argument_names, flattened, result_apart
from kernelwright.tools.tasks.loading.probe import Probe, probe, quiet_fake_tensors, size_bytes
from kernelwright.tools.tasks.loading.saved import saved_batch, saved_state
from kernelwright.tools.tasks.loading.user_file import (
    Entry,
    choose_entry,
    draws_at_import,
    imported_anew,
    load_module,
    project_read,
    sha256,
)
from kernelwright.tools.tasks.loading.watch import Described, agreed, described
from kernelwright.tools.tasks.parts import find_parts, run_unseen, whole_graph
from kernelwright.tools.tasks.refusals import message, user_code
from kernelwright.tools.types import (
    DType,
    Graph,
    InputSpec,
    ProjectFile,
    Refusal,
    RefusedError,
    Task,
    TracePolicy,
    WeightSpec,
    refuse,
)
from kernelwright.tools.types.packing import CallPacking, Packing
from kernelwright.tools.types.task import Submodule, Untraced

# What torch imports when it exports for the first time; a release may lack one of them.
_MODULES = ("_dynamo", "_export", "export._trace", "_inductor.decomposition")


class _Tiny(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).sum(dim=1)


def import_exporter() -> None:
    """Import what the first export would, without the collector's company."""
    if "torch._dynamo" in sys.modules:
        return
    with imports_out_of_sight():
        for name in _MODULES:
            with contextlib.suppress(ImportError):
                import_module(f"torch.{name}")


def rehearse() -> None:
    """Export something small."""
    import_exporter()
    trace_graph(_Tiny(), (torch.empty(2, 2),), None)


@contextlib.contextmanager
def _precision_of_one_file() -> Iterator[None]:
    """Whether convolutions may use TF32 is set for a process; what a file says is its own."""
    before = torch.backends.cudnn.allow_tf32
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def trace(source: str, path: str, policy: TracePolicy) -> Task | Refusal:
    """Turn the text of a user's file into a task.

    Args:
        source: the text; `path` is where it stands, for its imports and for messages.
        path: the file's path; its folder becomes importable.
        policy: which entry to take and which inputs, where the person said so.
    """
    try:
        # A part that is already under torch.compile must be seen through, not run.
        stance = torch.compiler.set_stance("force_eager")
        with stance, quiet_fake_tensors(), _precision_of_one_file():
            return _allowed(_at_all_sizes(source, str(Path(path).absolute()), policy), policy)
    except RefusedError as refused:
        return refused.refusal
    except (MemoryError, RecursionError, torch.OutOfMemoryError) as error:
        said = message(error) or type(error).__name__
        return Refusal(sentence=f"Tracing ran out of memory or depth: {said}.", exit_status=3)


def _allowed(task: Task, policy: TracePolicy) -> Task:
    """The task, unless it has numbers of eight bits that nobody asked for."""
    nodes = {node.name: node.out for node in task.graph.nodes}
    held = [(f"weight {one.name}", (one.tensor,)) for one in task.weights]
    for name, specs in (*nodes.items(), *held):
        if not policy.eights and any(spec.dtype is DType.FLOAT8_E4M3FN for spec in specs):
            kind = DType.FLOAT8_E4M3FN.value
            raise refuse(f"The forward has the type {kind} ({name}), which is not supported.")
    return task


def _at_all_sizes(source: str, path: str, policy: TracePolicy) -> Task:
    """The task; where it shall serve other sizes, with what changes together when they do."""
    task = _trace(source, path, policy)
    if not policy.shapes:
        return task
    if task.parts:
        words = "cannot be traced as a whole, so it is optimised for the example's sizes alone"
        raise refuse(f"{task.name} {words} (without --shapes).")

    def traced(inputs: tuple[str, ...]) -> Task:
        return _trace(source, path, policy.model_copy(update={"inputs": inputs}))

    return task.model_copy(update={"dimensions": tied(policy.shapes, task, traced)})


def _trace(source: str, path: str, policy: TracePolicy) -> Task:
    file = load_module(source, path, within=policy.project)
    chosen = choose_entry(file, policy.entry, makes=policy.makes)
    entry = replace(chosen, evaluation=policy.evaluation)
    try:
        whole = _traced_whole(source, path, policy, file, entry)
    except RefusedError as refused:
        task = _in_parts(source, path, policy, file, entry, refused.refusal)
        if task is None:
            raise
        return task
    if draws_at_import(file):
        _check_imports(whole, policy, file)
    return whole


def _traced_whole(
    source: str, path: str, policy: TracePolicy, file: ModuleType, entry: Entry
) -> Task:
    batch = saved_batch(policy.inputs)
    with unchecked_distributions() as checks:
        found = probe(file, entry, policy.inputs, batch)
        names = argument_names(found.module, len(found.inputs))
        with flattened(found.module, file.__name__) as flat:
            traced = _graph(found)
    traced = replace(traced, structure=flat.structure)
    _check_tables(file, entry, found, traced)
    random = random_operators(traced.graph)
    unkept = (*unkept_draws(traced.graph), *unused_draws(found.ran.dead if found.ran else ()))
    simplify(traced)
    specs = _input_specs(found, names)
    graph = to_graph(traced, [spec.name for spec in specs if spec.tensor is not None])
    operations = flops(traced.graph)
    trial = try_out(file, entry, found, graph, operations)
    badges = graph_badges(graph, found.ran, random, unkept)
    task = _task(
        source,
        path,
        policy,
        entry,
        found.module,
        graph,
        inputs=keep_needed_domains(specs, graph, trial),
        call=found.call,
        returns=flat.packing,
        batch=batch,
    )
    update = {
        "flops": operations,
        "training": task.training and entry.kind != "function",
        "draws_random": bool(random),
        "unkept_draws": unkept,
        "badges": badges,
        "state": saved_state(_with_weights(file, entry, found)) if policy.makes else None,
        "warnings": (
            *(badge.words for badge in badges),
            *_warnings(entry, found, specs),
            *((UNCHECKED,) if checks.asked else ()),
        ),
        "submodules": _submodules(agreed(found.was, described(found.module))),
    }
    return task.model_copy(update=update)


def _graph(found: Probe) -> Traced:
    """The forward; RefusedError where it cannot be traced, or a mask's selection is left in it."""
    if found.selects is None:
        return trace_graph(found.module, found.inputs, found.mode)
    try:
        return trace_selections(found.module, found.inputs)
    except Exception as error:
        raise found.selects from error


def _check_tables(file: ModuleType, entry: Entry, found: Probe, traced: Traced) -> None:
    """RefusedError where the graph has values that a constructor drew beside its weights."""
    baked = [item for item in traced.constants.values() if not isinstance(item, FakeTensor)]
    place = drawn_table(found.module, baked, lambda: build_module(file, entry, 1))
    if place:
        raise refuse(
            f"The forward reads {place}, which the constructor draws at random and which is no "
            "parameter or buffer; register it, as with register_buffer or nn.ParameterList."
        )


def _check_imports(task: Task, policy: TracePolicy, file: ModuleType) -> None:
    """RefusedError where the file computes something else when it is imported the next time."""
    names = [spec.name for spec in task.inputs if spec.tensor is not None]
    try:
        with imported_anew(task.source, task.path, 1) as again:
            other = _graph_alone(policy, again, names)
    except RefusedError:  # it can be imported once only, which says nothing
        return
    if repr(other.nodes) == repr(task.graph.nodes):  # NaN is no other value than NaN
        return
    held = drawn_names(file, again, constants_of(task.graph, "cpu").values())
    what = ", ".join(held) or "a value"
    place = "pass it as an argument" if task.entry_kind == "function" else "register it as a buffer"
    raise refuse(
        f"The forward computes with {what}, which the file draws at random when it is imported, so "
        f"that every import computes something else; {place}, or call torch.manual_seed before it."
    )


def _graph_alone(policy: TracePolicy, file: ModuleType, names: list[str]) -> Graph:
    """What another import of a task's file computes."""
    chosen = choose_entry(file, policy.entry, makes=policy.makes)
    entry = replace(chosen, evaluation=policy.evaluation)
    with unchecked_distributions():
        found = probe(file, entry, policy.inputs, saved_batch(policy.inputs))
        with flattened(found.module, file.__name__):
            traced = _graph(found)
    simplify(traced)
    return to_graph(traced, names)


def _with_weights(file: ModuleType, entry: Entry, found: Probe) -> nn.Module:
    """The module that was traced, where it has real weights: nothing was computed with them."""
    tensors = [*found.module.parameters(), *found.module.buffers()]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return build_module(file, entry, 0)
    return found.module


def _task(
    source: str,
    path: str,
    policy: TracePolicy,
    entry: Entry,
    module: nn.Module,
    graph: Graph,
    *,
    inputs: tuple[InputSpec, ...],
    call: CallPacking,
    returns: Packing,
    batch: ProjectFile | None,
) -> Task:
    """What a task is whichever way its graph was found."""
    return Task(
        name=Path(path).stem,
        path=path,
        source=source,
        source_sha256=sha256(source),
        entry=entry.name,
        entry_kind=entry.kind,
        input_override=policy.inputs,
        inputs=inputs,
        outputs=tuple(graph.node(name).out[0] for name in graph.outputs),
        weights=_weights(module, graph),
        graph=graph,
        call=None if call.plain else call,
        returns=None if returns.plain else returns,
        bytes_moved=bytes_moved(graph),
        flops=0,
        training=module.training,
        evaluation=policy.evaluation,
        allow=policy.allow,
        project=project_read(source, path),
        batch=batch,
    )


def _input_specs(found: Probe, names: list[str]) -> tuple[InputSpec, ...]:
    samples = found.samples or [None] * len(found.inputs)
    return tuple(
        input_spec(name, value, sample)
        for name, value, sample in zip(names, found.inputs, samples, strict=True)
    )


# A model that is run for real to find its parts, and its arguments, are at most so large.
_LARGEST_BYTES = 2**31


def _in_parts(
    source: str,
    path: str,
    policy: TracePolicy,
    file: ModuleType,
    entry: Entry,
    why: Refusal,
) -> Task | None:
    """The task as a model with parts that can be traced; None where that is of no use."""
    batch = saved_batch(policy.inputs)
    try:
        (arguments, call), (others, _) = (
            build_call(file, policy.inputs, seed, batch) for seed in (0, 1)
        )
        check_inputs(arguments)
        module = build_module(file, entry, 0, call)
        was = described(module)
        held = [*module.parameters(), *module.buffers(), *arguments]
        if entry.kind == "function" or size_bytes(held) > _LARGEST_BYTES:
            return None
        with user_code("The forward", path):
            result = run_unseen(module, arguments)
            parts, untraced = find_parts(module, [arguments, others])
        names = argument_names(module, len(arguments))
        specs = tuple(map(input_spec, names, arguments, arguments))
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        given = [spec.name for spec in specs if spec.tensor is not None]
        graph = whole_graph(given, tensors, result)
        returns = result_apart(result, own=file.__name__)[1]
    except RefusedError:
        return None
    if not parts:
        return None
    if not untraced:
        said = why.sentence.rstrip(".")
        untraced = (Untraced(path="", kind=type(module).__name__, why=said),)
    task = _task(
        source,
        path,
        policy,
        entry,
        module,
        graph,
        inputs=specs,
        call=call,
        returns=returns,
        batch=batch,
    )
    update = {
        "state": saved_state(module) if policy.makes else None,
        "warnings": (f"It cannot be traced as a whole: {why.sentence}",),
        "parts": parts,
        "untraced": untraced,
        "submodules": _submodules(agreed(was, described(module))),
    }
    return task.model_copy(update=update)


def _submodules(was: Described) -> tuple[Submodule, ...]:
    """What its parts compute by beside tensors, as a task keeps it."""
    return tuple(
        Submodule(
            path=path,
            kind=kind,
            hooks=hooks,
            attributes=tuple(attributes.items()),
            shared=tuple(shared.items()),
        )
        for path, (kind, hooks, attributes, shared) in was.items()
    )


def _weights(module: nn.Module, graph: Graph) -> tuple[WeightSpec, ...]:
    """Parameters, buffers and, as buffers, the graph's constants; used or not.

    A tensor that several parts share stands under each of its names, as in a state dict. Sparse
    ones are none of a plan's.
    """
    weights = [
        WeightSpec(name=name, tensor=tensor_spec(tensor, with_strides=True))
        for name, tensor in module.named_parameters(remove_duplicate=False)
        if tensor.layout is torch.strided
    ]
    weights += [
        WeightSpec(name=name, tensor=tensor_spec(tensor, with_strides=True), is_buffer=True)
        for name, tensor in module.named_buffers(remove_duplicate=False)
        if tensor.layout is torch.strided
    ]
    constants = [
        WeightSpec(name=str(node.target), tensor=node.out[0], is_buffer=True)
        for node in graph.nodes
        if node.op == "constant"
    ]
    return (*weights, *constants)


def _warnings(entry: Entry, found: Probe, specs: tuple[InputSpec, ...]) -> tuple[str, ...]:
    said: list[str] = []
    if any(spec.tensor is not None and spec.minimum is None for spec in specs):
        said.append("The inputs are too large to be looked at while tracing.")
    if entry.kind != "function" and found.module.training and _mode_matters(found.module):
        said.append("The module runs in training mode, as its constructor left it.")
    return tuple(said)


def _mode_matters(module: torch.nn.Module) -> bool:
    """Whether some part behaves differently in training: dropout, and norms with statistics."""
    kinds = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)
    return any(isinstance(part, (*kinds, torch.nn.RReLU)) for part in module.modules())
