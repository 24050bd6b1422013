"""The second way to a graph: dispatch-level tracing with functionalisation.

It sees only the operators that run, so context managers, hooks and attributes set on the way do
not matter to it. Python scalars are baked in, as with torch.export.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from kernelwright.tools.tasks.arguments import argument_names
from kernelwright.tools.tasks.decompositions import decompositions
from kernelwright.tools.tasks.traced import (
    Structure,
    Traced,
    input_changed,
    output_tensor,
    structure_of,
)

aten = torch.ops.aten


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
