"""Turns a module into one functional ATen graph: torch.export first, dispatch-level tracing else.

Both ways end in the same `Traced` value. The second one (make_fx with functionalisation) takes what
export refuses (attributes set during the forward, context managers it does not know), as long as
nothing depends on values. It sees only the operators that run, so context managers, hooks and
attributes set on the way do not matter to it. Python scalars are baked in, as with torch.export.

Recurrent layers stay one operator too, and are not unrolled for their shapes: torch finds the
shapes of an LSTM's results by decomposing it into a cell for every step and layer, in each of its
passes, which takes minutes for a few hundred steps. The shapes follow from the arguments.
Not covered: packed sequences.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from functools import lru_cache, partial
from typing import cast

import torch
from torch import fx, nn
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch._subclasses.fake_impls import _deregister_op_impl, register_op_impl
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind, OutputKind
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from kernelwright.tools.tasks.graph.composites import registered_composites, remembered_composites
from kernelwright.tools.tasks.graph.decompositions import Table, decompositions
from kernelwright.tools.tasks.graph.inner_gradients import inner_gradient
from kernelwright.tools.tasks.graph.lean_export import only_graphs, unchecked_distributions
from kernelwright.tools.tasks.graph.selections import fixed_sizes
from kernelwright.tools.tasks.graph.traced import (
    Structure,
    Traced,
    buffer_made,
    input_changed,
    output_tensor,
    structure_of,
)
from kernelwright.tools.tasks.loading.packing import argument_names
from kernelwright.tools.tasks.refusals import message, user_line
from kernelwright.tools.types import RefusedError, refuse

aten = torch.ops.aten
Rule = Callable[..., tuple[torch.Tensor, ...]]

_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
RECURRENT_LAYERS = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)


@contextmanager
def shapes_without_unrolling() -> Iterator[None]:
    """While inside, torch's decompositions of recurrent layers only make empty results.

    To be entered anew for every pass: torch drops the rules for fake tensors after each.
    """
    saved = {layer: dict(layer.py_kernels) for layer in RECURRENT_LAYERS}
    table = dict(decomposition_table)
    try:
        for layer in RECURRENT_LAYERS:
            rule: Rule = _lstm if layer is aten.lstm.input else _one_state
            layer.py_kernels.update(dict.fromkeys(_KEYS, rule))
            layer._dispatch_cache.clear()
            decomposition_table[layer] = rule
            _deregister_op_impl(layer)
            register_op_impl(layer)(partial(_on_fake_tensors, rule))
        yield
    finally:
        decomposition_table.update(table)
        for layer, kernels in saved.items():
            layer.py_kernels.clear()
            layer.py_kernels.update(kernels)
            layer._dispatch_cache.clear()
            _deregister_op_impl(layer)


def _on_fake_tensors(rule: Rule, mode: FakeTensorMode, layer: OpOverload, *args: object) -> object:
    with mode:
        return rule(*args)


def _lstm(
    x: torch.Tensor, states: Sequence[torch.Tensor], params: Sequence[torch.Tensor], *flags: int
) -> tuple[torch.Tensor, ...]:
    out, hidden = _one_state(x, states[0], params, *flags)
    return out, hidden, torch.empty_like(states[1])


def _one_state(
    x: torch.Tensor, state: torch.Tensor, params: Sequence[torch.Tensor], *flags: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Flags end in (..., bidirectional, batch_first); every token gets its directions' states."""
    width = state.shape[-1] * (2 if flags[4] else 1)
    return x.new_empty([*x.shape[:-1], width]), torch.empty_like(state)


def trace_symbolically(
    module: nn.Module, inputs: Sequence[object], mode: FakeTensorMode | None
) -> Traced:
    """The forward as a graph, by running it once on fake tensors."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    state = {name: tensor.detach() for name, tensor in state.items()}
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    specs: list[pytree.TreeSpec] = []

    def forward(weights: dict[str, torch.Tensor], arguments: list[torch.Tensor]) -> object:
        fresh = iter(arguments)
        full = [next(fresh) if isinstance(v, torch.Tensor) else v for v in inputs]
        leaves, spec = pytree.tree_flatten(functional_call(module, weights, tuple(full)))
        specs.append(spec)
        return leaves

    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    state = {name: _fake(mode, tensor) for name, tensor in state.items()}
    tensors = [_fake(mode, tensor) for tensor in tensors]
    with mode:
        traced = make_fx(functionalize(forward, remove="mutations"), decompositions(), "real")(
            state, tensors
        )
    return _read(traced, list(state), _names(module, inputs), structure_of(specs[-1]))


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    return tensor if isinstance(tensor, torch._subclasses.FakeTensor) else mode.from_tensor(tensor)


def _names(module: nn.Module, inputs: Sequence[object]) -> list[str]:
    names = argument_names(module, len(inputs))
    return [
        name for name, value in zip(names, inputs, strict=True) if isinstance(value, torch.Tensor)
    ]


def _read(
    traced: fx.GraphModule, weights: list[str], names: list[str], structure: Structure
) -> Traced:
    placeholders = traced.graph.find_nodes(op="placeholder")
    by_node = dict(zip(placeholders, weights, strict=False))
    mutations: dict[str, fx.Node] = {}
    for node in list(traced.graph.nodes):
        if node.target is aten.copy_.default:
            if node.args[0] not in by_node:
                raise input_changed(names[placeholders.index(node.args[0]) - len(weights)])
            mutations[by_node[node.args[0]]] = node.args[1]
            traced.graph.erase_node(node)
    leaves = cast("Sequence[object]", traced.graph.output_node().args[0])
    outputs = [output_tensor(i, leaf) for i, leaf in enumerate(leaves)]
    return Traced(
        graph=traced.graph,
        inputs=tuple(node.name for node in placeholders[len(weights) :]),
        weights={node.name: name for node, name in by_node.items()},
        outputs=outputs,
        structure=structure,
        constants={
            node.name: getattr(traced, str(node.target))
            for node in traced.graph.find_nodes(op="get_attr")
        },
        mutations=mutations,
    )


def trace_graph(module: nn.Module, inputs: Sequence[object], mode: FakeTensorMode | None) -> Traced:
    """The forward of `module` on `inputs` as a graph; RefusedError when neither way works.

    One that makes distributions is to be traced inside `unchecked_distributions`, which tells the
    caller whether checks were left out.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return _exported(module, inputs)
        except RefusedError:
            raise
        except Exception as error:  # whatever export cannot do, the fallback may
            first = error
        try:
            return trace_symbolically(module, inputs, mode)
        except RefusedError:
            raise
        except Exception as second:
            said = f"export: {first}\nfallback: {second}"[-4000:]
            raise refuse(_why(first, module, inputs), said) from first


def trace_selections(module: nn.Module, inputs: Sequence[object]) -> Traced:
    """As `trace_graph` of a forward that sums up what masks select; whatever export raises."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    with mode:
        given = [
            torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
            if isinstance(one, torch.Tensor)
            else one
            for one in inputs
        ]
    with warnings.catch_warnings(), torch.no_grad(), _without_advice():
        warnings.simplefilter("ignore")
        traced = _exported(module, given)
    made = fixed_sizes(traced.graph)
    outputs = [made.get(node, node) for node in traced.outputs]
    mutations = {name: made.get(node, node) for name, node in traced.mutations.items()}
    return replace(traced, outputs=outputs, mutations=mutations)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Where sizes stay unknown torch writes down the graph, and what its author might do."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    was = logger.disabled
    logger.disabled = True
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.disabled = was


def _why(error: Exception, module: nn.Module, inputs: Sequence[object]) -> str:
    if values := reads_values(error):
        return f"The forward {values}; not supported."
    inner = inner_gradient(module, inputs)
    if inner.startswith("autograd"):
        return (
            f"The forward takes gradients by {inner}, which cannot be "
            "traced; torch.func.grad of a function that computes the same value can be."
        )
    words, line = message(error), user_line(error)
    at = f" at {line}" if line else ""
    return f"The forward cannot be traced{at}: {type(error).__name__}: {words}."


def reads_values(error: Exception) -> str:
    """That a forward depends on values, as an export's error tells it; "" where it does not."""
    if "data-dependent" not in str(error) and "unbacked" not in str(error).lower():
        return ""
    line = user_line(error)
    return f"branches or takes shapes from the values of tensors{f' at {line}' if line else ''}"


def trace_outline(
    module: nn.Module, inputs: Sequence[object], whole: Collection[str]
) -> tuple[Traced, list[fx.Node]]:
    """The forward with the operators of these names kept whole, as eager PyTorch runs them.

    Returns:
        The graph, and the placeholders of all tensors: weights, constants and arguments.

    Raises:
        RefusedError: the forward cannot be exported.
    """
    with warnings.catch_warnings(), torch.no_grad(), unchecked_distributions():
        warnings.simplefilter("ignore")
        default = _default_table(*registered_composites())
        table = {op: rule for op, rule in default.items() if _name(op) not in whole}
        try:
            traced = _exported(module, inputs, table)
        except RefusedError:
            raise
        except Exception as error:
            raise refuse(_why(error, module, inputs), str(error)[-4000:]) from error
    return traced, traced.graph.find_nodes(op="placeholder")


@lru_cache(maxsize=1)  # torch makes its rules anew for every asker, and they are to be recognised
def _default_table(*registered: int) -> Table:
    return dict(torch.export.default_decompositions())


def _name(op: OpOverload) -> str:
    return str(op).split(".")[1]


def _exported(module: nn.Module, inputs: Sequence[object], table: Table | None = None) -> Traced:
    known = {name for name, _ in module.named_buffers()}
    with only_graphs(), shapes_without_unrolling():
        program = torch.export.export(module, tuple(inputs), strict=False)
    if made := sorted(name for name, _ in module.named_buffers() if name not in known):
        raise buffer_made(made[0])
    with only_graphs(), shapes_without_unrolling(), remembered_composites():
        program = program.run_decompositions(decompositions() if table is None else table)
    _refuse_regions(program.graph)
    signature = program.graph_signature
    returned = _returned(program.graph)
    by_name = {node.name: node for node in returned if isinstance(node, fx.Node)}
    mutations: dict[str, fx.Node] = {}
    outputs: list[fx.Node] = []
    for spec, node in zip(signature.output_specs, returned, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            outputs.append(output_tensor(len(outputs), node))
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            raise input_changed(str(spec.target))
        elif spec.target is not None:
            mutations[spec.target] = by_name[spec.arg.name]
    return Traced(
        graph=program.graph,
        inputs=_tensor_inputs(program, inputs),
        weights={
            spec.arg.name: str(spec.target)
            for spec in signature.input_specs
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        },
        outputs=outputs,
        structure=structure_of(program.call_spec.out_spec),
        constants={
            spec.arg.name: program.constants[str(spec.target)]
            for spec in signature.input_specs
            if spec.kind is InputKind.CONSTANT_TENSOR
        },
        mutations=mutations,
    )


def _tensor_inputs(
    program: torch.export.ExportedProgram, inputs: Sequence[object]
) -> tuple[str, ...]:
    users = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    return tuple(
        spec.arg.name
        for spec, value in zip(users, inputs, strict=True)
        if isinstance(value, torch.Tensor)
    )


def _returned(graph: fx.Graph) -> list[object]:
    found = graph.output_node().args[0]
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _refuse_regions(graph: fx.Graph) -> None:
    """Regions (autocast, grad modes, branches) are graphs in graphs; the fallback inlines them."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise NotImplementedError(f"the forward contains a region: {node.target}")
