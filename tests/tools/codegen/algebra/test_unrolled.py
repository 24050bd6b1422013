"""Loops over time that a forward writes out become recurrent layers, however they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.tools.codegen.algebra import loops_as_layers, rewritten
from kernelwright.tools.codegen.ir import LibraryCall
from kernelwright.tools.codegen.ir.recurrence import recurrence_of
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.types import Graph
from kernelwright.tools.types.graph import base

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 6, 4
Forward = Callable[..., torch.Tensor]


def x(time: int = 0) -> torch.Tensor:
    torch.manual_seed(7)
    shape = (STEPS, BATCH, INPUTS) if time == 0 else (BATCH, STEPS, INPUTS)
    return torch.randn(shape, dtype=torch.float64)


def h() -> torch.Tensor:
    torch.manual_seed(8)
    return torch.randn(BATCH, HIDDEN, dtype=torch.float64)


class Cells(nn.Module):
    """The weights that the loops below use."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(INPUTS + HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, 2)
        self.gates = nn.Linear(INPUTS + HIDDEN, 4 * HIDDEN)
        self.read = nn.Linear(INPUTS, 3 * HIDDEN)
        self.held = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.plain = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.second = nn.Linear(2 * HIDDEN, HIDDEN)
        self.embed = nn.Linear(INPUTS, INPUTS)
        self.lstm, self.gru = nn.LSTMCell(INPUTS, HIDDEN), nn.GRUCell(INPUTS, HIDDEN, bias=False)


def elman(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    outs = []
    for t in range(x.shape[0]):
        h = torch.tanh(m.both(torch.cat((x[t], h), dim=1)))
        outs.append(m.out(h))
    return torch.stack(outs)


def backwards(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    outs = []
    for t in reversed(range(x.shape[1])):
        h = torch.relu(m.both(torch.cat((h, x[:, t]), dim=1)))
        outs.insert(0, torch.sigmoid(m.out(h)) * 2)
    return torch.stack(outs, dim=1)


def lstm_cell(m: Cells, x: torch.Tensor) -> torch.Tensor:
    state = torch.zeros(BATCH, HIDDEN).double(), torch.ones(BATCH, HIDDEN).double()
    outs = []
    for one in x.unbind(1):
        state = m.lstm(one, state)
        outs.append(state[0])
    return torch.cat([torch.stack(outs, 1).flatten(1), state[1]], 1)


def gru_cell(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    for t in range(x.shape[0]):
        h = m.gru(x[t], h)
    return h


def chunked(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """An LSTM with its gates in an order of its own, split after the sigmoid."""
    c, outs = h * 0.5, []
    for t in range(x.shape[0]):
        gates = m.gates(torch.cat([h, torch.tanh(m.embed(x[t]))], -1))
        o, f, i = torch.sigmoid(gates[:, : 3 * HIDDEN]).chunk(3, dim=-1)
        c = torch.tanh(gates[:, 3 * HIDDEN :]) * i + c * f
        h = torch.tanh(c) * o
        outs.append(h)
    return torch.stack(outs)


def papers_gru(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """The update gate weighs the new value, as in the paper."""
    for t in range(x.shape[0]):
        (a, b, c), (d, e, f) = m.read(x[t]).chunk(3, 1), m.held(h).chunk(3, 1)
        z, n = torch.sigmoid(b + e), torch.tanh(c + torch.sigmoid(a + d) * f)
        h = (1 - z) * h + z * n
    return h


def two_layers(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    upper, outs = h, []
    for t in range(x.shape[0]):
        h = torch.tanh(m.both(torch.cat((x[t], h), dim=1)))
        upper = torch.tanh(m.second(torch.cat((upper, h), dim=1)))
        outs.append(upper)
    return torch.stack(outs)


LOOPS: dict[str, tuple[Forward, tuple[torch.Tensor, ...], dict[str, int]]] = {
    "tanh, concatenated, with an output a step": (elman, (x(), h()), {"rnn_tanh": 1, "addmm": 1}),
    "relu, from the end, batch first": (backwards, (x(1), h()), {"rnn_relu": 1, "addmm": 1}),
    "LSTMCell over unbound steps": (lstm_cell, (x(1),), {"lstm": 1}),
    "GRUCell without biases": (gru_cell, (x(), h()), {"gru": 1}),
    "an LSTM's gates in another order": (chunked, (x(), h()), {"lstm": 1, "addmm": 1}),
    "a GRU as in the paper": (papers_gru, (x(), h()), {"gru": 1}),
    "two layers": (two_layers, (x(), h()), {"rnn_tanh": 2}),
}


def operators(graph: Graph) -> Counter[str]:
    known = {"rnn_tanh", "rnn_relu", "lstm", "gru", "addmm", "mm"}
    return Counter(base(node.op) for node in graph.nodes if base(node.op) in known)


@pytest.mark.parametrize("name", LOOPS)
def test_a_written_loop_is_a_layer(name: str, traced: Callable[..., Any]) -> None:
    function, inputs, wanted = LOOPS[name]
    one = traced(function, *inputs, part=Cells())
    changed, used = rewritten(one.graph)
    assert operators(changed) == operators(loops_as_layers(one.graph)) == wanted
    assert "unrolled_recurrence" in {rewrite.name for rewrite in used}
    one.agrees(changed)


@pytest.mark.parametrize("function", [elman, papers_gru])
def test_kernels_for_recurrent_layers_take_it(
    function: Forward, traced: Callable[..., Any]
) -> None:
    """Weights that are parts of others are buffers of their own, which these kernels read."""
    one = traced(function, x(), h(), part=Cells())
    changed, _ = rewritten(in_float32(one.graph))
    program = lower(changed)
    calls = [step for step in program.nodes if isinstance(step, LibraryCall)]
    layer = recurrence_of(next(call for call in calls if call.line.operator.endswith(".input")))
    assert (layer.steps, layer.batch, layer.inputs) == (STEPS, BATCH, INPUTS)
    made = {store.access.buffer for loop in program.loops for store in loop.stores}
    cell = layer.cells[0][0]
    given = {buffer.name for buffer in program.buffers if buffer.role == "weight"}
    assert {cell.input_weight, cell.hidden_weight} <= made | given


def in_float32(graph: Graph) -> Graph:
    """The same graph of a module in float32, in which recurrent layers have kernels."""
    return Graph.model_validate_json(graph.model_dump_json().replace("float64", "float32"))


def scaled_by_counts(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.tanh(counts * x[t]) for t in range(x.shape[0])])


def test_what_is_computed_of_all_steps_has_the_type_that_it_had(traced: Callable[..., Any]) -> None:
    """Numbers of another type may stand first."""
    one = traced(scaled_by_counts, x(), torch.arange(INPUTS))
    changed, used = rewritten(one.graph)
    assert [rewrite.name for rewrite in used] == ["steps_together"]
    one.agrees(changed)


def decoder(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """What a step reads depends on the state before it."""
    given = x[0]
    for _ in range(6):
        h = torch.tanh(m.both(torch.cat((given, h), dim=1)))
        given = given + h.sum()
    return h


def keeps_cells(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    c, cells = h, []
    for t in range(x.shape[0]):
        h, c = m.lstm(x[t], (h, c))
        cells.append(c)
    return torch.stack(cells)


def reset_inside(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    for t in range(x.shape[0]):
        r = torch.sigmoid(m.both(torch.cat((x[t], h), 1)))
        h = torch.tanh(m.both(torch.cat((x[t], r * h), 1)))
    return h


def other_weights(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    for t in range(4):
        h = torch.tanh(m.both(torch.cat((x[t], h), 1)) * (t + 1))
    return h


def three_steps(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return elman(m, x[:3], h)


def broadcast_state(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """A first state for all sequences, as a parameter often is."""
    h = h[:1]
    for t in range(x.shape[0]):
        h = torch.tanh(m.read(x[t])[:, :HIDDEN] + m.plain(h))
    return h


def broadcast_input(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """What is read is the same for all sequences."""
    for t in range(x.shape[0]):
        h = torch.tanh(m.read(x[t, :1])[:, :HIDDEN] + m.plain(h))
    return h


def narrow_term(m: Cells, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """The state counts by one number alone."""
    for t in range(x.shape[0]):
        h = torch.tanh(m.read(x[t])[:, :HIDDEN] + h @ m.plain.weight[:, :1])
    return h


@pytest.mark.parametrize(
    "function",
    [
        decoder, keeps_cells, reset_inside, other_weights, three_steps, broadcast_state,
        broadcast_input, narrow_term,
    ],
)  # fmt: skip
def test_other_loops_stay_as_they_are(function: Forward, traced: Callable[..., Any]) -> None:
    one = traced(function, x(), h(), part=Cells())
    changed, _ = rewritten(one.graph)
    assert operators(changed).keys() <= {"addmm", "mm"}
    one.agrees(changed)
