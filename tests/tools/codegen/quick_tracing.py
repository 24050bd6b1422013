"""Traces that cost a fifth, for tests of what is made of a graph and not of how it is traced.

A forward is traced by running it once on fake tensors, which is the tracer's own second way. That
is the same graph as by way of torch.export unless the forward holds a composite operator that
export keeps whole, writes in place, has constants, or multiplies more than two dimensions by a
weight: such forwards are exported. With KERNELWRIGHT_TEST_DEPTH other than `first` both are made,
and are the same. That the graphs say what modules do is tested in `tests/tools/tasks`.
"""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.tools.tasks.graph.aten_graph import trace_graph, trace_symbolically
from kernelwright.tools.tasks.graph.convert import simplify, to_graph
from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.types import Graph

# Attention, resampling, recurrent layers and cells, losses of classes, spectra, what lies around;
# and what writes in place.
_WHOLE = re.compile(
    r"scaled_dot|multi_head|interpolate|upsample|grid_sample|rnn|lstm|gru|cross_entropy|stft|pad|[a-z]_$"
)
_BOTH = os.environ.get("KERNELWRIGHT_TEST_DEPTH", "first") != "first"


class _Calls(TorchFunctionMode):
    """Notes whether anything is called that export may see otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.otherwise = False

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = getattr(func, "__name__", "")
        deep = name == "linear" and isinstance(args[0], torch.Tensor) and args[0].dim() > 2
        self.otherwise |= deep or _WHOLE.search(name) is not None
        return func(*args, **(kwargs or {}))


def graph_of(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Graph:
    """The typed graph of a forward, without torch.export where that gives the same."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _Calls() as calls:
            copy.deepcopy(module)(*inputs)
        if calls.otherwise:
            return _graph(trace_graph(module, inputs, None))
        try:
            traced = trace_symbolically(module, inputs, None)
            quick = None if traced.constants else _graph(traced)
        except Exception:  # as where a function has tensors around it, which are no weights
            quick = None
        if quick is None:
            return _graph(trace_graph(module, inputs, None))
    if _BOTH:
        assert _by_place(quick) == _by_place(_graph(trace_graph(module, inputs, None)))
    return quick


def _graph(traced: Traced) -> Graph:
    simplify(traced)
    return to_graph(traced, [f"x{at}" for at in range(len(traced.inputs))])


def _by_place(graph: Graph) -> list[tuple[object, ...]]:
    """What a graph's nodes say, these named by their places: the two ways choose other names."""
    place = {node.name: f"n{at}" for at, node in enumerate(graph.nodes)}

    def renamed(value: object) -> str:
        return re.sub(r"node='([^']*)'", lambda found: place[found[1]], repr(value))

    nodes = [(node.op, renamed(node.args), renamed(node.kwargs), node.out) for node in graph.nodes]
    return [*nodes, tuple(place[name] for name in graph.outputs)]
