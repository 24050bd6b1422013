"""Turns a module into one functional ATen graph: torch.export first, make_fx as the fallback.

Both ways end in the same `Traced` value. The fallback takes what export refuses (attributes set
during the forward, context managers it does not know), as long as nothing depends on values.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind, OutputKind

from kernelwright.tools.tasks.decompositions import decompositions
from kernelwright.tools.tasks.recurrent import shapes_without_unrolling
from kernelwright.tools.tasks.refusals import RefusedError, message, refuse
from kernelwright.tools.tasks.symbolic import trace_symbolically
from kernelwright.tools.tasks.traced import Traced, input_changed, output_tensor, structure_of


def trace_graph(module: nn.Module, inputs: Sequence[object], mode: FakeTensorMode | None) -> Traced:
    """The forward of `module` on `inputs` as a graph; RefusedError when neither way works."""
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
            raise refuse(_why(first), f"export: {first}\nfallback: {second}"[-4000:]) from first


def _why(error: Exception) -> str:
    words = message(error)
    if "data-dependent" in str(error) or "unbacked" in str(error).lower():
        return "The forward branches or takes shapes from the values of tensors; not supported."
    return f"The forward cannot be traced: {type(error).__name__}: {words}."


def _exported(module: nn.Module, inputs: Sequence[object]) -> Traced:
    with shapes_without_unrolling():
        program = torch.export.export(module, tuple(inputs), strict=False)
    with shapes_without_unrolling():
        program = program.run_decompositions(decompositions())
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
