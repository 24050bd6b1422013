"""A module's forward in a form that can be differentiated as a graph.

It is the forward as `torch.export` reads it, written so that autograd's own formulas look at no
value where they need not, and begin no transform inside another. Tensors that it builds of numbers
are given to it like weights, as nothing can be computed of them while a graph is traced.
Not covered: recurrent layers, whose gradients would be unrolled.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from kernelwright.tools.tasks.gradients.beside_autograd import Tensors
from kernelwright.tools.tasks.graph.aten_graph import RECURRENT_LAYERS
from kernelwright.tools.types import refuse
from kernelwright.tools.types.backward import BackwardRead

aten = torch.ops.aten


def exported(module: torch.nn.Module, arguments: Sequence[object]) -> fx.GraphModule:
    """A module as `torch.export` reads it: its operators, with the weights under their own names.

    Raises:
        RefusedError: it has a recurrent layer, or bags of embeddings whose offsets it is given.
    """
    program = torch.export.export(module, tuple(arguments), strict=False)
    for node in program.graph.nodes:
        if node.target in RECURRENT_LAYERS:
            kind = str(node.target).split(".")[1]
            raise refuse(f"The gradients of the recurrent layer ({kind}) are left to PyTorch.")
        if node.target is aten.embedding_bag.padding_idx:
            _check_offsets(node, {*program.graph_signature.user_inputs})
    if any(map(_is_transform, program.graph.nodes)):
        program = program.run_decompositions({})
    read = program.module(check_guards=False)
    _compare_classes(read.graph)
    _show_updates(read.graph)
    read.recompile()
    return read


def _check_offsets(bag: fx.Node, inputs: Collection[object]) -> None:
    """RefusedError where bags begin at an input's values: a task of the backward draws others."""
    waiting = [at for at in bag.args[2:3] if isinstance(at, fx.Node)]
    while waiting:
        at = waiting.pop()
        if at.name in inputs:
            raise refuse(
                f"The offsets of an EmbeddingBag depend on the input {at.name!r}, and there is no "
                "telling which others are valid; bags of one length, as rows of a matrix, need "
                "no offsets."
            )
        waiting.extend(at.all_input_nodes)


def _is_transform(node: fx.Node) -> bool:
    """Whether it is a step of `vmap`, which cannot be carried out inside another transform."""
    return str(getattr(node.target, "__module__", "")).startswith("torch._functorch")


# What a forward builds of numbers, as a list of indices, has fewer; more is to be registered.
_MOST_CONSTANT = 4096


def constants_of(module: fx.GraphModule) -> Tensors:
    """The tensors of an export that are no weights, made buffers of it so that they are given."""
    weights = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    found: Tensors = {}
    for node in module.graph.find_nodes(op="get_attr"):
        name, read = str(node.target), BackwardRead(kind="weight", name=str(node.target))
        value = None if name in weights or read in found else getattr(module, name)
        if not isinstance(value, torch.Tensor):
            continue
        if isinstance(value, FakeTensor) or value.numel() > _MOST_CONSTANT:
            words = f"a tensor of {value.numel()} elements outside its parameters and buffers"
            raise refuse(f"The module holds {words}; register it as a buffer.")
        delattr(module, name)
        module.register_buffer(name, value.detach())
        found[read] = value.detach()
    return found


def _show_updates(graph: fx.Graph) -> None:
    """Write a batch norm's running values beside it, as it hides that it updates them."""
    for node in graph.find_nodes(op="call_function", target=aten.batch_norm.default):
        x, weight, bias, mean, variance, training, momentum, eps, _ = node.args
        if not training or mean is None:
            continue
        with graph.inserting_before(node):
            _update_running_values(graph, x, mean, variance, momentum)
            plain = (x, weight, bias, None, None, True, momentum, eps)
            made = graph.call_function(aten.native_batch_norm.default, plain)
            result = graph.call_function(operator.getitem, (made, 0))
        result.meta["val"] = x.meta["val"]
        node.replace_all_uses_with(result)
        graph.erase_node(node)


def _update_running_values(
    graph: fx.Graph, x: fx.Node, mean: fx.Node, variance: fx.Node, momentum: float
) -> None:
    """What is taken of `x` is what the norm's broken-down form takes: it is computed once."""
    call, value, kept_in = graph.call_function, x.meta["val"], mean.meta["val"].dtype
    dims = [dim for dim in range(value.dim()) if dim != 1]
    count = value.numel() // value.shape[1]
    if value.dtype != kept_in:
        x = call(aten._to_copy.default, (x,), {"dtype": kept_in})
    both = call(aten.var_mean.correction, (x, dims), {"correction": 0, "keepdim": True})
    for place, held, factor in ((1, mean, 1.0), (0, variance, count / (count - 1))):
        found = call(aten.squeeze.dims, (call(operator.getitem, (both, place)), dims))
        new = call(aten.mul.Tensor, (found, momentum * factor))
        old = call(aten.mul.Tensor, (held, 1 - momentum))
        call(aten.copy_.default, (held, call(aten.add.Tensor, (new, old))))


def _compare_classes(graph: fx.Graph) -> None:
    """Write `one_hot` as a comparison: autograd would look whether all of its classes are there."""
    for node in graph.find_nodes(op="call_function", target=aten.one_hot.default):
        count = node.args[1] if len(node.args) > 1 else -1
        if count == -1:
            continue
        with graph.inserting_before(node):
            device = {"device": node.meta["val"].device}
            classes = graph.call_function(aten.arange.default, (count,), device)
            at = graph.call_function(aten.unsqueeze.default, (node.args[0], -1))
            equal = graph.call_function(aten.eq.Tensor, (at, classes))
            made = graph.call_function(aten._to_copy.default, (equal,), {"dtype": torch.int64})
        node.replace_all_uses_with(made)
        graph.erase_node(node)


def functional(step: Callable[..., object], *given: Sequence[torch.Tensor]) -> fx.Graph:
    """The step's graph, in which nothing is changed in place.

    What autograd's own formulas make and then fill shows in a first graph, and is functional in a
    graph of that.
    """

    def traced(function: Callable[..., object]) -> fx.GraphModule:
        pure = functionalize(function, remove="mutations")
        with _transforms_ended():
            return make_fx(pure, tracing_mode="fake")(*given)

    made = traced(step)
    return (traced(made) if any(map(_is_in_place, made.graph.nodes)) else made).graph


@contextmanager
def _transforms_ended() -> Iterator[None]:
    """Where torch.func fails it may leave transforms begun, inside which nothing can be traced."""
    stack = torch._C._functorch
    before = stack.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        stack.pop_dynamic_layer_stack_and_undo_to_depth(before)


def _is_in_place(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable
