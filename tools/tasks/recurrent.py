"""Shapes of recurrent layers while tracing, without unrolling them.

torch finds the shapes of an LSTM's results by decomposing it into a cell for every step and
layer, in each of its passes: minutes for a few hundred steps. The shapes follow from the
arguments. The layer itself stays one operator in the graph.
What is not covered: packed sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch._subclasses.fake_impls import _deregister_op_impl, register_op_impl
from torch._subclasses.fake_tensor import FakeTensorMode

aten = torch.ops.aten
Rule = Callable[..., tuple[torch.Tensor, ...]]

_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_LAYERS = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)


@contextmanager
def shapes_without_unrolling() -> Iterator[None]:
    """While inside, torch's decompositions of recurrent layers only make empty results.

    To be entered anew for every pass: torch drops the rules for fake tensors after each.
    """
    saved = {layer: dict(layer.py_kernels) for layer in _LAYERS}
    table = dict(decomposition_table)
    try:
        for layer in _LAYERS:
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
