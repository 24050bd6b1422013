"""Loops over time that a forward writes out: every step's operators become one recurrent layer.

A trace holds all steps one after the other. Steps of one layer are cells (`cells`) that differ only
in what they read, each the next one's state; they become one call of the library's recurrent layer,
which kernels of ours replace, and of which step t's state is a part. What steps read is put
together as it was taken apart: parts of one tensor are that tensor, and what was computed of each
part is computed of all at once. So is what was computed of each step's state and then concatenated.

Layers above each other are found one after the other. Not rewritten: steps that read what was made
of the states before them in another way (decoders that are given their own answers), an LSTM of
whose cells any but the last is read, fewer than four steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernelwright.tools.codegen.algebra.cells import CellReader, Products, StepCell, Term
from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.algebra.together import Together
from kernelwright.tools.types import DType, Graph, ListArg, Node, Ref, Scalar
from kernelwright.tools.types.graph import refs

FEWEST_STEPS = 4
_TYPES = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


def unrolled_recurrence(graph: Graph, node: Node) -> Graph | None:
    """The graph with the steps of one layer as a recurrent layer; asked of its first node alone."""
    if node is not graph.nodes[0] or len(graph.nodes) < 4 * FEWEST_STEPS:
        return None
    sketch = Sketch(graph)
    for chain in _chains(sketch):
        layer = _Layer.of(sketch, chain)
        if layer is not None:
            return layer.rewritten()
    return None


def _chains(sketch: Sketch) -> list[list[StepCell]]:
    """Cells of one signature, each of which is a state that the next one reads; longest first."""
    reader = CellReader(sketch)
    found = (reader.cell_of(node) for node in sketch.graph.nodes)
    cells = {cell.node: cell for cell in found if cell is not None}
    after: dict[str, StepCell] = {}
    for cell in cells.values():
        before = _before(cell, cells)
        if before is not None and before.node not in after:
            after[before.node] = cell
    followers = {cell.node for cell in after.values()}
    chains = [_followed(one, after) for one in cells.values() if one.node not in followers]
    long = [chain for chain in chains if len(chain) >= FEWEST_STEPS]
    return sorted(long, key=len, reverse=True)


def _before(cell: StepCell, cells: Mapping[str, StepCell]) -> StepCell | None:
    """The step before: it makes the state that this one reads."""
    for name in (cell.state,) if cell.state else cell.roles:
        other = cells.get(name)
        if other is None or other.signature() != cell.signature():
            continue
        if cell.cell == other.made_cell:
            return other
    return None


def _followed(first: StepCell, after: Mapping[str, StepCell]) -> list[StepCell]:
    chain = [first]
    while chain[-1].node in after:
        chain.append(after[chain[-1].node])
    return chain


@dataclass
class _Layer:
    """One chain of steps on its way to be a layer; `state` is the place of the state in roles."""

    sketch: Sketch
    steps: list[StepCell]
    state: int
    hidden: int
    batch: int
    dtype: DType

    @classmethod
    def of(cls, sketch: Sketch, steps: list[StepCell]) -> _Layer | None:
        """The layer, where the library has one like it."""
        state = steps[1].roles.index(steps[0].node)
        (spec,) = sketch.node(steps[0].node).out
        batch, hidden = spec.shape
        layer = cls(sketch, steps, state, hidden, batch, spec.dtype)
        linked = all(one.node == two.roles[state] for one, two in pairwise(steps))
        fits = linked and layer._is_plain() and layer._is_free() and layer._keeps_its_cells()
        return layer if fits and spec.dtype in _TYPES else None

    @property
    def inputs(self) -> list[int]:
        """The places of what steps read besides the state."""
        return [at for at in range(len(self.steps[0].roles)) if at != self.state]

    def _is_plain(self) -> bool:
        """Whether every gate has one product of the state and one of all that is read."""
        first = self.steps[0]
        state, roles = first.roles[self.state], set(first.roles)
        if len(roles) < 2 or any(len(step.roles) != len(roles) for step in self.steps):
            return False
        gates = list(first.gates)
        if first.inner is not None:
            inner = first.inner
            if state in gates[-1].sources or len(inner.terms) != 1:
                return False
            gates[-1] = gates[-1].plus(inner)
        for gate in gates:
            spans = [*(term.columns for term in gate.terms), *(span for _, span in gate.biases)]
            if any(last - start != self.hidden for start, last in spans):
                return False
            if sorted(gate.sources) != sorted(roles):
                return False
        if not self._are_whole(gates):
            return False
        made = [term.weight for gate in gates for term in gate.terms]
        biases = [name for gate in gates for name, _ in gate.biases]
        return all(self._type(name) == self.dtype for name in (*made, *biases, *roles))

    def _are_whole(self, gates: Sequence[Products]) -> bool:
        """Whether nothing that steps read is broadcast: states, cells, what is multiplied."""
        first = self.steps[0]
        terms = {term.source: term for gate in gates for term in gate.terms}
        widths = [term.rows[1] - term.rows[0] for term in map(terms.__getitem__, first.roles)]
        for step in self.steps:
            for name, width in zip(step.roles, widths, strict=True):
                if self.sketch.node(name).out[0].shape != (self.batch, width):
                    return False
        if not first.cell:
            return True
        cell = self.sketch.node(first.cell).out[0]
        return (cell.shape, cell.dtype) == ((self.batch, self.hidden), self.dtype)

    def _type(self, name: str) -> DType:
        return self.sketch.node(name).out[0].dtype

    def _is_free(self) -> bool:
        """Whether nothing that steps read depends on the states."""
        made = {step.node for step in self.steps} | {step.made_cell for step in self.steps}
        for node in self.sketch.graph.nodes:
            if node.name not in made and not made.isdisjoint(refs(node)):
                made.add(node.name)
        first = self.steps[0]
        read = {step.roles[at] for step in self.steps for at in self.inputs}
        weights = {term.weight for one in first.all_products for term in one.terms}
        biases = {name for one in first.all_products for name, _ in one.biases}
        start = {first.roles[self.state], first.cell} - {""}
        return made.isdisjoint(read | weights | biases | start)

    def _keeps_its_cells(self) -> bool:
        """Whether an LSTM's cells but the last are read by its own steps alone."""
        known = {step.node for step in self.steps}
        inside = known | {self.steps[-1].made_cell}
        for cell in (step.made_cell for step in self.steps[:-1] if step.made_cell):
            pending = [cell]
            if cell in self.sketch.kept:
                return False
            while pending:
                for user in self.sketch.users(pending.pop()):
                    if user.name in inside:
                        continue
                    if user.name in self.sketch.kept:
                        return False
                    inside.add(user.name)
                    pending.append(user.name)
        return True

    def rewritten(self) -> Graph:
        """The graph with the layer in the place of its steps."""
        sketch, first, last = self.sketch, self.steps[0], self.steps[-1]
        x, dim = self._read()
        weights = [self._weights(self.inputs), self._weights([self.state]), *self._biases()]
        start = self._start(first.roles[self.state])
        states = [start, self._start(first.cell)] if first.cell else [start]
        made = self._call(x, states, weights, dim)
        results: dict[str, Node] = {}
        for at, step in enumerate(self.steps):
            results[step.node] = self._taken(step.node, made[0], dim, at)
        if last.made_cell:
            results[last.made_cell] = self._taken(last.made_cell, made[2], 0, 0)
        return sketch.replaced(results)

    def _taken(self, name: str, whole: Ref, dim: int, at: int) -> Node:
        """A node of the old name that is a part of what the layer makes."""
        args = (whole, Scalar(value=dim), Scalar(value=at))
        return Node(name=name, op="aten.select.int", args=args, out=self.sketch.node(name).out)

    def _read(self) -> tuple[Ref, int]:
        """What all steps read, and the dimension of it that is time: 0, or 1 after the batch."""
        together = Together(self.sketch)
        read = [[step.roles[at] for step in self.steps] for at in self.inputs]
        dim = together.time_of(read[0]) if len(read) == 1 else 0
        parts = [together.all_of(names, dim) for names in read]
        if len(parts) == 1:
            return parts[0], dim
        width = sum(self.sketch.shape(part)[2] for part in parts)
        args = (ListArg(items=tuple(parts)), Scalar(value=2))
        return self.sketch.call("cat.default", args, (len(self.steps), self.batch, width)), 0

    def _start(self, name: str) -> Ref:
        """A first state as the library takes it, for one layer in one direction."""
        return self.sketch.view(Ref(node=name), (1, self.batch, self.hidden))

    def _gates(self) -> list[tuple[Products, bool]]:
        """Every gate with its products of inputs and state, and whether it is turned round."""
        first = self.steps[0]
        gates = list(first.gates)
        if first.inner is not None:
            gates[-1] = gates[-1].plus(first.inner)
        return [(gate, first.is_flipped and at == 1) for at, gate in enumerate(gates)]

    def _weights(self, places: Sequence[int]) -> Ref:
        """The weight of all gates (gates x hidden, features) of some of what is read."""
        names = [self.steps[0].roles[at] for at in places]
        columns = [self._column(name) for name in names]
        return self._joined(columns, 1)

    def _column(self, name: str) -> Ref:
        pieces: list[tuple[Term, bool]] = []
        for gate, is_turned in self._gates():
            (term,) = gate.of(frozenset([name]))
            before = pieces[-1] if pieces else None
            if before and not is_turned and not before[1] and _adjoin(before[0], term):
                joined = Term(name, term.weight, term.rows, (before[0].columns[0], term.columns[1]))
                pieces[-1] = joined, False
            else:
                pieces.append((term, is_turned))
        return self._joined([self._turned(*piece) for piece in pieces], 0)

    def _turned(self, term: Term, is_turned: bool) -> Ref:
        """A part of a weight, as (outputs, features); its negative where the gate is turned."""
        sketch = self.sketch
        made = sketch.transposed(Ref(node=term.weight))
        cut = sketch.cut(sketch.cut(made, 0, *term.columns), 1, *term.rows)
        return sketch.neg(cut) if is_turned else cut

    def _joined(self, parts: Sequence[Ref], dim: int) -> Ref:
        if len(parts) == 1:
            return parts[0]
        shape = list(self.sketch.shape(parts[0]))
        shape[dim] = sum(self.sketch.shape(part)[dim] for part in parts)
        args = (ListArg(items=tuple(parts)), Scalar(value=dim))
        return self.sketch.call("cat.default", args, shape)

    def _biases(self) -> list[Ref]:
        """Biases of what is read and of the state; one that is missing is zeros."""
        first = self.steps[0]
        if not any(one.biases for one in first.all_products):
            return []
        inner = first.inner.biases if first.inner is not None else ()
        gates = [list(gate.biases) for gate in first.gates]
        given = [self._bias(one, first.is_flipped and at == 1) for at, one in enumerate(gates)]
        held = [self._bias([], False) for _ in gates[:-1]] + [self._bias(list(inner), False)]
        return [self._joined(given, 0), self._joined(held, 0)]

    def _bias(self, parts: list[tuple[str, tuple[int, int]]], is_turned: bool) -> Ref:
        sketch = self.sketch
        if not parts:
            return sketch.full(self.steps[0].node, self.hidden, 0.0)
        cut = [sketch.cut(Ref(node=name), 0, *span) for name, span in parts]
        total = cut[0]
        for one in cut[1:]:
            total = sketch.add(total, one)
        return sketch.neg(total) if is_turned else total

    def _call(self, x: Ref, states: list[Ref], weights: list[Ref], dim: int) -> tuple[Ref, ...]:
        """The library's layer, and its results: all states, the last one, the last cells."""
        kind, steps = self.steps[0].kind, len(self.steps)
        listed = ListArg(items=tuple(weights))
        start = ListArg(items=tuple(states)) if kind == "lstm" else states[0]
        # biases, layers, dropout, training, both directions, batch first
        flags = (len(weights) == 4, 1, 0.0, False, False, dim == 1)
        args = (x, start, listed, *(Scalar(value=value) for value in flags))
        whole = (self.batch, steps) if dim else (steps, self.batch)
        shapes = [(*whole, self.hidden), *[(1, self.batch, self.hidden)] * len(states)]
        return self.sketch.call_many(f"{kind}.input", args, shapes)


def _adjoin(one: Term, other: Term) -> bool:
    """Whether one part of a weight follows on another."""
    same = (one.weight, one.rows) == (other.weight, other.rows)
    return same and one.columns[1] == other.columns[0]
