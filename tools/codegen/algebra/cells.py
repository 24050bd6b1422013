"""One step of a recurrent layer, read off the operators that a forward of its own wrote it with.

A step's gates are sums of products: of what the step reads, and of the state before it, each with
its part of a weight. `Products` are such sums, found behind concatenated inputs, split results,
additions and biases. `cell_of` says which of the library's cells a node's value is:

    rnn_tanh, rnn_relu  h' = tanh(P)
    lstm                h' = sigmoid(P_o) tanh(c'), c' = sigmoid(P_f) c + sigmoid(P_i) tanh(P_g)
    gru                 h' = (1 - z) n + z h, n = tanh(X_n + sigmoid(P_r) H_n), z = sigmoid(P_z)

Here P is a sum over inputs and state, X_n over inputs alone, H_n over the state alone. Both ways to
write an update gate are read: (1 - z) for the new value, and z for it, as sigmoid(-P) is 1 - z.

Not here: a reset gate inside the product (h r) W, peepholes, norms of gates, projected states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.ir.recurrence import Kind
from kernelwright.tools.codegen.lower.nests.context import Arguments
from kernelwright.tools.types import Arg, ListArg, Node, Ref, Scalar
from kernelwright.tools.types.graph import base

Span = tuple[int, int]


@dataclass(frozen=True)
class Term:
    """`source` (rows x features) times rows and columns of `weight` (features x outputs)."""

    source: str
    weight: str
    rows: Span
    columns: Span


@dataclass(frozen=True)
class Products:
    """A sum of products and of biases; each bias with the part of it that is added."""

    terms: tuple[Term, ...]
    biases: tuple[tuple[str, Span], ...] = ()

    @property
    def width(self) -> int:
        """Outputs."""
        first, last = self.terms[0].columns
        return last - first

    @property
    def sources(self) -> tuple[str, ...]:
        """What is multiplied, in order."""
        return tuple(term.source for term in self.terms)

    def plus(self, other: Products) -> Products:
        """Both together."""
        return Products(self.terms + other.terms, self.biases + other.biases)

    def part(self, first: int, last: int) -> Products:
        """Some of the outputs."""
        terms = (replace(one, columns=_within(one.columns, first, last)) for one in self.terms)
        biases = ((name, _within(span, first, last)) for name, span in self.biases)
        return Products(tuple(terms), tuple(biases))

    def of(self, sources: frozenset[str]) -> tuple[Term, ...]:
        """The terms that multiply one of these."""
        return tuple(term for term in self.terms if term.source in sources)


def _within(span: Span, first: int, last: int) -> Span:
    return span[0] + first, span[0] + last


@dataclass(frozen=True)
class StepCell:
    """A step of `kind` that makes `node`.

    `gates` are in the library's order. Of a GRU the last one is what its inputs give the new value,
    and `inner` what the state gives it; `is_flipped` says that its update gate weighs the new
    value. `state` is the state before where the cell itself names it (GRU), `cell` and `made_cell`
    an LSTM's cells before and after; "" where there are none.
    """

    kind: Kind
    node: str
    gates: tuple[Products, ...]
    inner: Products | None = None
    is_flipped: bool = False
    state: str = ""
    cell: str = ""
    made_cell: str = ""

    @property
    def all_products(self) -> tuple[Products, ...]:
        """Every sum of products of the step."""
        return self.gates if self.inner is None else (*self.gates, self.inner)

    @property
    def roles(self) -> tuple[str, ...]:
        """All that is multiplied, each once, in order."""
        return tuple(dict.fromkeys(name for one in self.all_products for name in one.sources))

    def signature(self) -> tuple[object, ...]:
        """What steps of one layer have in common: all but what they read."""
        place = {name: at for at, name in enumerate(self.roles)}
        sums = tuple(
            (tuple(replace(term, source=str(place[term.source])) for term in one.terms), one.biases)
            for one in self.all_products
        )
        return self.kind, self.is_flipped, sums


class CellReader:
    """Reads cells of one graph; what was read of a node is remembered."""

    def __init__(self, sketch: Sketch) -> None:
        self._sketch = sketch
        self._read: dict[str, Products | None] = {}

    def cell_of(self, node: Node) -> StepCell | None:
        """The cell that a node's value is; None where it is none."""
        if len(node.out) != 1 or len(node.out[0].shape) != 2:
            return None
        name = base(node.op)
        if name in ("tanh", "relu"):
            products = self.products(node.args[0])
            kind: Kind = "rnn_tanh" if name == "tanh" else "rnn_relu"
            return StepCell(kind, node.name, (products,)) if products else None
        if name == "mul":
            return next(self._lstm(node), None)
        return next(self._gru(node), None) if name == "add" else None

    def _lstm(self, node: Node) -> Iterator[StepCell]:
        for gate, other in self._pairs(node, "mul"):
            out, made = self._applied(gate, "sigmoid"), self._inside(other, "tanh")
            if out is None or not isinstance(made, Ref):
                continue
            for fresh, kept in self._pairs(self._sketch.node(made.node), "add"):
                for one, new in self._factors(fresh):
                    for forget, cell in self._factors(kept):
                        gates = [self._applied(gate, "sigmoid") for gate in (one, forget)]
                        found = _all_of((*gates, self._applied(new, "tanh"), out))
                        if found and isinstance(cell, Ref):
                            yield StepCell(
                                "lstm", node.name, found, cell=cell.node, made_cell=made.node
                            )

    def _gru(self, node: Node) -> Iterator[StepCell]:
        for new, gate, state, flipped in self._updates(node):
            update, inside = self._applied(gate, "sigmoid"), self._inside(new, "tanh")
            if update is None or not isinstance(inside, Ref) or not isinstance(state, Ref):
                continue
            for given, gated in self._pairs(self._sketch.node(inside.node), "add"):
                for one, held in self._factors(gated):
                    reset = self._applied(one, "sigmoid")
                    found, inner = (
                        _all_of((reset, update, self.products(given))),
                        self.products(held),
                    )
                    if found and inner and set(inner.sources) == {state.node}:
                        yield StepCell("gru", node.name, found, inner, flipped, state.node)

    def _updates(self, node: Node) -> Iterator[tuple[Arg, Arg, Arg, bool]]:
        """(new value, update gate, state, whether the gate weighs the new value) of a sum."""
        for one, other in self._pairs(node, "add"):
            # (state - new) z + new, and (new - state) z + state
            for difference, gate in self._factors(one):
                left, right = self._difference(difference)
                if right is not None and right == other:
                    yield other, gate, left, False
                    yield left, gate, other, True
            # (1 - z) new + z state, and (1 - z) state + z new
            for gate, second in self._factors(one):
                for rest, first in self._factors(other):
                    if self._complement(rest) == gate:
                        yield first, gate, second, False
                        yield second, gate, first, True

    def products(self, arg: Arg) -> Products | None:
        """The sum of products that a tensor is; None where it is none."""
        if not isinstance(arg, Ref):
            return None
        if arg.node not in self._read:
            self._read[arg.node] = self._products(self._sketch.node(arg.node))
        return self._read[arg.node]

    def _products(self, node: Node) -> Products | None:
        name, args = base(node.op), node.args
        if node.kwargs or not node.out or len(node.out[0].shape) != 2:
            return None
        if name == "mm":
            return self._product(args[0], args[1])
        if name == "addmm":
            made = self._product(args[1], args[2])
            bias = self._bias(args[0], node)
            return made.plus(bias) if made and bias else None
        if name == "add" and len(args) == 2:
            return next(self._sums(node), None)
        cut = self._cut(node)
        whole = self.products(cut[0]) if cut else None
        return _columns(whole, cut[1], node.out[0].shape[1]) if cut and whole else None

    def _product(self, x: Arg, weight: Arg) -> Products | None:
        if not isinstance(x, Ref) or not isinstance(weight, Ref):
            return None
        start, terms = 0, list[Term]()
        columns = (0, self._sketch.shape(weight)[1])
        for source in self._sources(x):
            features = self._sketch.shape(source)[1]
            terms.append(Term(source.node, weight.node, (start, start + features), columns))
            start += features
        return Products(tuple(terms))

    def _sources(self, x: Ref) -> list[Ref]:
        """What was put beside each other to be multiplied."""
        node = self._sketch.node(x.node)
        listed, dim = node.args[0] if node.args else None, node.args[1:]
        if base(node.op) != "cat" or not isinstance(listed, ListArg) or node.kwargs:
            return [x]
        if dim not in ((Scalar(value=1),), (Scalar(value=-1),)):
            return [x]
        return [item for item in listed.items if isinstance(item, Ref)]

    def _sums(self, node: Node) -> Iterator[Products]:
        for one, other in self._pairs(node, "add"):
            left, right = self.products(one), self.products(other) or self._bias(other, node)
            if left and right:
                yield left.plus(right)

    def _bias(self, arg: Arg, node: Node) -> Products | None:
        """One number an output, added to every row."""
        width = node.out[0].shape[1]
        if not isinstance(arg, Ref) or self._sketch.shape(arg) != (width,):
            return None
        return Products((), ((arg.node, (0, width)),))

    def _cut(self, node: Node) -> tuple[Ref, int] | None:
        """What a node is some columns of, and the first of them; None where it is not."""
        source = node.args[0] if node.args else None
        if not isinstance(source, Ref) or node.kwargs:
            return None
        if base(node.op) == "slice":
            given = Arguments(node)
            first = given.integer(2, "start", 0)
            plain = first >= 0 and given.integer(4, "step", 1) == 1
            return (source, first) if plain and given.integer(1, "dim", 0) in (1, -1) else None
        split = self._sketch.node(source.node)
        dims, whole = split.args[2:] or (Scalar(value=0),), split.args[0] if split.args else None
        if node.op != "getitem" or dims[0] not in _COLUMNS or not isinstance(whole, Ref):
            return None
        if base(split.op) not in ("split_with_sizes", "split") or split.kwargs:
            return None
        at = node.args[1]
        assert isinstance(at, Scalar)
        return whole, sum(one.shape[1] for one in split.out[: int(at.value or 0)])

    def _inside(self, arg: Arg, op: str) -> Arg | None:
        """What an operator of that name was applied to."""
        if not isinstance(arg, Ref):
            return None
        node = self._sketch.node(arg.node)
        return node.args[0] if base(node.op) == op else None

    def _applied(self, arg: Arg, op: str) -> Products | None:
        """The products under an operator of that name, which may have been split after it."""
        inside = self._inside(arg, op)
        if inside is not None or not isinstance(arg, Ref):
            return self.products(inside) if inside is not None else None
        cut = self._cut(self._sketch.node(arg.node))
        whole = self._applied(cut[0], op) if cut else None
        return _columns(whole, cut[1], self._sketch.shape(arg)[1]) if cut and whole else None

    def _pairs(self, node: Node, op: str) -> Iterator[tuple[Arg, Arg]]:
        """Both orders of the two arguments of a sum or product of tensors of one shape."""
        if base(node.op) != op or node.kwargs or len(node.args) != 2:
            return
        one, other = node.args
        yield one, other
        yield other, one

    def _factors(self, arg: Arg) -> Iterator[tuple[Arg, Arg]]:
        if isinstance(arg, Ref):
            yield from self._pairs(self._sketch.node(arg.node), "mul")

    def _difference(self, arg: Arg) -> tuple[Arg, Arg] | tuple[Arg, None]:
        if isinstance(arg, Ref):
            node = self._sketch.node(arg.node)
            if base(node.op) == "sub" and len(node.args) == 2 and not node.kwargs:
                return node.args[0], node.args[1]
        return arg, None

    def _complement(self, arg: Arg) -> Arg | None:
        """The z of a 1 - z."""
        if not isinstance(arg, Ref):
            return None
        node = self._sketch.node(arg.node)
        if node.kwargs or len(node.args) < 2 or node.args[2:] not in ((), (Scalar(value=1),)):
            return None
        if base(node.op) == "rsub" and _is_one(self._sketch, node.args[1]):
            return node.args[0]
        is_rest = base(node.op) == "sub" and _is_one(self._sketch, node.args[0])
        return node.args[1] if is_rest else None


def _all_of(found: Sequence[Products | None]) -> tuple[Products, ...]:
    """All of them; none where one is missing."""
    made = tuple(one for one in found if one is not None)
    return made if len(made) == len(found) else ()


def _columns(whole: Products, first: int, width: int) -> Products:
    return whole.part(first, first + width)


_COLUMNS = (Scalar(value=1), Scalar(value=-1))


def _is_one(sketch: Sketch, arg: Arg) -> bool:
    """Whether an argument is the number 1, or a tensor filled with it."""
    if isinstance(arg, Scalar):
        return arg.value == 1
    node = sketch.node(arg.node) if isinstance(arg, Ref) else None
    return node is not None and base(node.op) == "full" and _is_one(sketch, node.args[1])
