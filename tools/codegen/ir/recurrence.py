"""A recurrent layer (or a stack of them) read off the library call that would run it.

`torch.nn.RNN`, `LSTM` and `GRU` are traced as one operator each, whose arguments stand in the text
of the call: what it reads, the states it starts from, every layer's weights, and how layers are
stacked. Read here are stacks of any depth, in one direction or both, with and without biases, batch
first or second, for a whole batch of sequences of one length.

Not here, each with its reason: packed sequences (their steps have batches of different sizes),
projected states (`proj_size` puts a second product into every step), dropout between layers while
training (it draws random numbers), and weights that are views or of several types.
"""

from __future__ import annotations

import ast
from typing import Literal

from kernelwright.tools.codegen.ir.program import Buffer, LibraryCall
from kernelwright.tools.types import DType, Value

Kind = Literal["gru", "lstm", "rnn_tanh", "rnn_relu"]
# Products of a hidden unit, in the order in which the library keeps their weights.
GATES: dict[str, int] = {"gru": 3, "lstm": 4, "rnn_tanh": 1, "rnn_relu": 1}
_TYPES = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


class Cell(Value):
    """The weights of one direction of one layer, by their names in the plan; no biases are ""."""

    input_weight: str
    hidden_weight: str
    input_bias: str = ""
    hidden_bias: str = ""


class Recurrence(Value):
    """A stack of recurrent layers.

    `x` and `first_states` (hidden, and for an LSTM the cells') are plan expressions; `results` are
    the buffers of all steps' states and of the last states. `cells` holds one row a layer, one cell
    a direction. Sizes are counts of elements; `inputs` is the width of what the first layer reads.
    """

    kind: Kind
    dtype: DType
    steps: int
    batch: int
    inputs: int
    hidden: int
    batch_first: bool
    has_biases: bool
    x: str
    first_states: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    results: tuple[str, ...]

    @property
    def gates(self) -> int:
        """Products of a hidden unit."""
        return GATES[self.kind]

    @property
    def directions(self) -> int:
        """1, or 2 where a second set of weights reads from the end."""
        return len(self.cells[0])

    @property
    def layers(self) -> int:
        """Layers, each of which reads what the one before it made."""
        return len(self.cells)

    @property
    def tokens(self) -> int:
        """Steps of all sequences."""
        return self.steps * self.batch

    def width(self, layer: int) -> int:
        """Elements of a token that a layer reads."""
        return self.inputs if layer == 0 else self.directions * self.hidden


def recurrence_of(call: LibraryCall) -> Recurrence:
    """The recurrence that a call runs.

    Raises:
        ValueError: When it is none, or one of those that are not read; the message says why.
    """
    kind = call.family
    if kind not in GATES or not call.line.operator.endswith(".input"):
        raise ValueError(f"{call.name}: {call.line.operator} is no layer over whole sequences")
    return _Reading(call).recurrence()


class _Reading:
    """The arguments of one call, and what they must agree on."""

    def __init__(self, call: LibraryCall) -> None:
        assignment = ast.parse(call.line.text).body[0]
        assert isinstance(assignment, ast.Assign)
        assert isinstance(assignment.value, ast.Call)
        self.call, self.arguments = call, assignment.value.args
        self.buffers = {buffer.name: buffer for buffer in call.operands}
        # (biases, layers, dropout, training, both directions, batch first)
        self.flags = [ast.literal_eval(one) for one in self.arguments[3:9]]

    def refused(self, why: str) -> ValueError:
        return ValueError(f"{self.call.name}: {why}")

    def recurrence(self) -> Recurrence:
        has_biases, layers, dropout, training, both, batch_first = self.flags
        if training and dropout:
            raise self.refused("dropout between layers draws random numbers while training")
        out, state = self.call.results[0], self.call.results[1]
        if len(out.shape) != 3 or len(state.shape) != 3:
            raise self.refused("it is not over a batch of sequences")
        if 0 in out.shape:
            raise self.refused("there is nothing to compute")
        directions, hidden = 2 if both else 1, state.shape[2]
        cells = self.cells(layers, directions, has_biases)
        steps, batch = (out.shape[1], out.shape[0]) if batch_first else out.shape[:2]
        made = Recurrence.model_validate({
            "kind": self.call.family, "dtype": out.dtype, "steps": steps, "batch": batch,
            "inputs": self.weight(cells[0][0].input_weight).shape[1], "hidden": hidden,
            "batch_first": batch_first, "has_biases": has_biases,
            "x": ast.unparse(self.arguments[0]), "first_states": self.first_states(),
            "cells": cells, "results": tuple(buffer.name for buffer in self.call.results),
        })  # fmt: skip
        self.check(made)
        return made

    def first_states(self) -> tuple[str, ...]:
        given = self.arguments[1]
        states = given.elts if isinstance(given, ast.List) else [given]
        return tuple(map(ast.unparse, states))

    def cells(self, layers: int, directions: int, has_biases: bool) -> tuple[tuple[Cell, ...], ...]:
        listed = self.arguments[2]
        assert isinstance(listed, ast.List)
        names = [one.id for one in listed.elts if isinstance(one, ast.Name)]
        if len(names) < len(listed.elts):
            raise self.refused("weights that are views of others")
        each = 4 if has_biases else 2
        if len(names) != layers * directions * each:
            raise self.refused("proj_size puts a second product into every step")
        found = [self.cell(names[at : at + each]) for at in range(0, len(names), each)]
        return tuple(tuple(found[at : at + directions]) for at in range(0, len(found), directions))

    def cell(self, names: list[str]) -> Cell:
        fields = ("input_weight", "hidden_weight", "input_bias", "hidden_bias")
        return Cell.model_validate(dict(zip(fields, names, strict=False)))

    def weight(self, name: str) -> Buffer:
        return self.buffers[name]

    def check(self, made: Recurrence) -> None:
        if made.dtype not in _TYPES:
            raise self.refused(f"states in {made.dtype.value}")
        if any(buffer.dtype is not made.dtype for buffer in self.call.operands):
            raise self.refused("weights and states of several types")
        for layer, cells in enumerate(made.cells):
            wanted = [(made.gates * made.hidden, n) for n in (made.width(layer), made.hidden)]
            for cell in cells:
                weights = map(self.weight, (cell.input_weight, cell.hidden_weight))
                if [one.shape for one in weights] != wanted:
                    raise self.refused("weights that are views of others")
