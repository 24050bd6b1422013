"""Prints what stands before and after a product: an operand's elements, and the epilogue's.

A kernel for products moves along four linear positions: `batch`, `row`, `column` and `depth`, each
over merged axes. Here the statements of an operand, or of the epilogue with its stores, are printed
for one element or for `width` neighbours along one of the positions, which are decoded into axes
(`printing/side_positions.py`). Neighbours that lie next to each other in memory are moved in one
access; everything else goes element by element, at neighbour `k`. Values are named `v_<statement>`
and buffers `g_<buffer>`, as everywhere in this language.

Not here: whether a position is inside of the product, which is for the kernel to say, and how far
tiles lie apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from types import MappingProxyType

from kernelwright.tools.codegen.cuda.contractions.statements import StatementPrinter
from kernelwright.tools.codegen.cuda.printing.expressions import c_type, value_type
from kernelwright.tools.codegen.cuda.printing.printing import convert_from_memory
from kernelwright.tools.codegen.cuda.printing.side_positions import SidePositions
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES
from kernelwright.tools.codegen.ir import Access, Loop, Stmt, Store
from kernelwright.tools.codegen.ir.bounds import Bound, bounds_of
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand, needed_where
from kernelwright.tools.types import DType

Range = tuple[str, str]
# Times a position below 2^24 it stays within 32 bits, and larger matrices do not fit a device.
_MOST_STEP = 64


@dataclass(frozen=True)
class Printed:
    """Statements of `width` neighbours, as lines of a scope.

    `before` stands once, `element` in a loop over neighbour `k` (or once, where width is 1), and
    `after` once behind that loop. `value` is the operand's value at a neighbour, inside of it.
    """

    before: tuple[str, ...]
    element: tuple[str, ...]
    after: tuple[str, ...]
    value: str = ""
    width: int = 1

    def lines(self, *more: str) -> tuple[str, ...]:
        """Everything in order, with more lines at each neighbour."""
        body = (*self.element, *more)
        if self.width == 1:
            return (*self.before, *body, *self.after)
        loop = ("#pragma unroll", f"for (int k = 0; k < {self.width}; ++k) {{")
        return (*self.before, *loop, *(f"    {line}" for line in body), "}", *self.after)


class ElementPrinter:
    """Prints elements of one contraction.

    Args:
        loop: The loop that the contraction was read off.
        contraction: The product.
    """

    def __init__(self, loop: Loop, contraction: Contraction) -> None:
        self._contraction = contraction
        self.positions = SidePositions(contraction, [stmt.name for stmt in loop.body])
        self._axes = self.positions.axes
        self.statements = StatementPrinter(loop)

    # -- what can be moved at once

    def width(self, operand: Operand, along: str) -> int:
        """The most neighbours of an operand along a side that every load moves at once.

        Args:
            operand: Left or right.
            along: "row", "column" or "depth".
        """
        return self._width([stmt for stmt in operand.body if stmt.access is not None], (), along)

    def lies_along(self, operand: Operand, along: str) -> bool:
        """Whether elements that are read lie next to each other along a side."""
        return operand.contiguous(self._axes[along])

    def width_of_epilogue(self, along: str = "column") -> int:
        """The most neighbours that every store moves at once.

        Loads beside them that lie otherwise (a residual turned, say) go element by element.
        """
        return self._width((), self._contraction.stores, along)

    def width_of_reads(self, along: str = "column") -> int:
        """The most neighbours that every load of the epilogue moves at once."""
        loads = [stmt for stmt in self._contraction.epilogue if stmt.access is not None]
        return self._width(loads, (), along)

    def _width(self, loads: Sequence[Stmt], stores: Iterable[Store], along: str) -> int:
        axes = self._axes[along]
        if not axes:
            return 1
        width = gcd(axes[-1].size, MOVED_BYTES)
        for stmt in loads:
            assert stmt.access is not None
            width = min(
                width, self.positions.fitting(stmt.access, along, conditional=bool(stmt.args))
            )
        for store in stores:
            width = min(width, self.positions.fitting(store.access, along))
            width = gcd(width, self._alike(store, along)) if store.when else width
        return width

    def _alike(self, store: Store, along: str) -> int:
        """Neighbours of which a conditional store stores all or none."""
        bounds = bounds_of(store.when, self._contraction.epilogue)
        axis, width = self._axes[along][-1], MOVED_BYTES
        for bound in bounds or ():
            step = sum(one.step for one in bound.steps if one.by == axis.name)
            others = [one.step for one in bound.steps if one.by != axis.name]
            # Where it ends at a multiple of them, and all else moves it by multiples.
            ends = bound.offset + 1 if step == -1 else bound.offset
            width = gcd(width, ends, *others) if step in (1, -1) else 1 if step else width
        return width if bounds is not None else 1

    # -- tiles

    def tile_is_needed(self, rows: Range, columns: Range) -> str:
        """Whether a result of a tile depends on its sum, as C++; "true" where that is not told.

        Args:
            rows: The tile's first row and the number of them, as C++.
            columns: The same of columns.
        """
        sides = {"row": rows, "column": columns}
        found = [self._may_hold(bound, sides) for bound in needed_where(self._contraction)]
        return " && ".join(text for text in found if text) or "true"

    def _may_hold(self, bound: Bound, sides: Mapping[str, Range]) -> str:
        """Whether a bound holds somewhere in a tile; "" where its axes are not whole sides."""
        alone = {self._axes[side][0].name: side for side in sides if len(self._axes[side]) == 1}
        terms = []
        for stride in bound.steps:
            if stride.by not in alone or abs(stride.step) > _MOST_STEP:
                return ""
            first, count = sides[alone[stride.by]]
            end = f"({first} + {count} - 1)" if stride.step > 0 else first
            terms.append(f"{end} * {stride.step}")
        return f"{' + '.join([*terms, str(bound.offset)])} >= 0"

    # -- elements

    def left(self, *, along: str = "row", width: int = 1) -> Printed:
        """The left operand at `batch`, `row` and `depth`, with neighbours along a side."""
        return self._operand(self._contraction.left, ("batch", "row", "depth"), along, width)

    def right(self, *, along: str = "column", width: int = 1) -> Printed:
        """The right operand at `batch`, `column` and `depth`, with neighbours along a side."""
        return self._operand(self._contraction.right, ("batch", "column", "depth"), along, width)

    def _operand(self, operand: Operand, sides: Sequence[str], along: str, width: int) -> Printed:
        scope = _Scope(self, operand.body, (), along, width)
        return Printed(
            before=(*self._decoded(sides, scope), *scope.vector_loads()),
            element=tuple(scope.elements()),
            after=(),
            value=f"v_{operand.value}",
            width=width,
        )

    def loads_of(self, side: str) -> tuple[Stmt, ...]:
        """Float32 values that the epilogue reads once for a whole line of results.

        They depend on the position along this side ("column" or "row") and on the batch alone.
        """
        axes = self._contraction.names_of((*self._axes["batch"], *self._axes[side]))
        return tuple(
            stmt
            for stmt in self._contraction.epilogue
            if stmt.access is not None and not stmt.args and stmt.dtype is DType.FLOAT32
            if {stride.by for stride in stmt.access.strides if stride.step} <= axes
        )

    def loaded(self, loads: Sequence[Stmt], side: str) -> Printed:
        """Those values, as `v_<statement>`, at `batch` and a position of the side."""
        scope = _Scope(self, tuple(loads), (), side, 1)
        before = self._decoded(("batch", side), scope)
        return Printed(before=tuple(before), element=tuple(scope.elements()), after=())

    def epilogue(
        self,
        total: str,
        *,
        along: str = "column",
        width: int = 1,
        known: Mapping[str, str] = MappingProxyType({}),
    ) -> Printed:
        """The epilogue and the stores at `batch`, `row` and `column`.

        Args:
            total: The sum as C++ text, at neighbour `k` where width is more than 1.
            along: The side of the neighbours, "column" or "row".
            width: How many; `width_of_epilogue` says how many are moved at once.
            known: Loads by name that the kernel has made already, as C++ text at a neighbour.
        """
        contraction = self._contraction
        body, stores, counted = contraction.epilogue, contraction.stores, contraction.counted
        scope = _Scope(self, body, stores, along, width, known, counted)
        kind = value_type(contraction.dtype)
        return Printed(
            before=(
                *self._decoded(("batch", "row", "column"), scope),
                *scope.vector_loads(),
                *scope.vectors_to_store(),
            ),
            element=(
                f"const {kind} v_{contraction.total} = {total};",
                *scope.elements(),
                *scope.stored_elements(),
            ),
            after=tuple(scope.stored_vectors()),
            width=width,
        )

    def part(
        self, total: str, wanted: Iterable[str], stores: Sequence[Store], known: Mapping[str, str]
    ) -> Printed:
        """Some of the epilogue's values, as `v_<statement>`, and some of its stores.

        `total` is empty where nothing depends on the sum; `known` are values that the kernel has.
        """
        contraction = self._contraction
        scope = _Scope(self, contraction.epilogue, tuple(stores), "", 1, known, tuple(wanted))
        first = f"const {value_type(contraction.dtype)} v_{contraction.total} = {total};"
        return Printed(
            before=tuple(self._decoded(("batch", "row", "column"), scope)),
            element=(*[first] * bool(total), *scope.elements(), *scope.stored_elements()),
            after=(),
        )

    def _decoded(self, sides: Sequence[str], scope: _Scope) -> list[str]:
        """Positions along the axes that a scope uses, from the linear ones."""
        return self.positions.decoded(sides, scope.used, scope.along, scope.width)

    def offset(self, access: Access) -> str:
        """Where the first neighbour lies in the access's buffer, in elements."""
        return self.positions.offset(access)


@dataclass(frozen=True)
class _Scope:
    """The statements of one element, with neighbours along a side."""

    printer: ElementPrinter
    body: tuple[Stmt, ...]
    stores: tuple[Store, ...]
    along: str
    width: int
    known: Mapping[str, str] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()

    @cached_property
    def used(self) -> frozenset[str]:
        """The axes that something depends on."""
        names = {stmt.args[0] for stmt in self.body if stmt.op == "index"}
        every = [stmt.access for stmt in self._loads() if stmt.access is not None]
        for access in (*every, *(store.access for store in self.stores)):
            names |= {stride.by for stride in access.strides if stride.step}
        return frozenset(names)

    @property
    def _positions(self) -> SidePositions:
        return self.printer.positions

    def _loads(self) -> list[Stmt]:
        """What is read here."""
        return [one for one in self.body if one.access is not None and one.name not in self.known]

    def _is_vector(self, access: Access, conditional: bool = False) -> bool:
        return self._positions.is_vector(access, self.along, self.width, conditional=conditional)

    def _at(self, access: Access) -> str:
        return self._positions.offset(access)

    def vector_loads(self) -> list[str]:
        """Loads of all neighbours at once."""
        return [
            f"const auto raw_{stmt.name} = kw::load<kw::DEFAULT, {self.width}>"
            f"(g_{stmt.access.buffer} + ({self._at(stmt.access)}));"
            for stmt in self._loads()
            if stmt.access is not None and self._is_vector(stmt.access, bool(stmt.args))
        ]

    def elements(self) -> list[str]:
        """Every value at neighbour `k`."""
        crossed = self._positions.decoded_of_neighbour(self.used, self.along, self.width)
        return crossed + [
            f"const {self.printer.statements.type_of(stmt)} v_{stmt.name} = {self._value(stmt)};"
            for stmt in self._needed()
        ]

    def _needed(self) -> list[Stmt]:
        """What is wanted and what the stores need, in order; all of a scope that has neither."""
        if not self.stores and not self.wanted:
            return [*self.body]
        wanted = {name for store in self.stores for name in (store.value, store.when)}
        wanted |= {*self.wanted}
        wanted |= {stride.by for store in self.stores for stride in store.access.strides}
        found: list[Stmt] = []
        for stmt in reversed(self.body):
            if stmt.name in wanted:
                found.append(stmt)
                if stmt.name not in self.known:
                    wanted |= self.printer.statements.read_by(stmt)
        return found[::-1]

    def _value(self, stmt: Stmt) -> str:
        if stmt.name in self.known:
            return self.known[stmt.name]
        if stmt.op == "index":
            at = self._positions.counts(stmt.args[0], self.along, self.width)
            return f"({self.printer.statements.type_of(stmt)})({at})"
        if stmt.access is None:
            return self.printer.statements.statement(stmt)
        text = convert_from_memory(self._loaded(stmt, stmt.access), stmt.access.dtype, stmt.dtype)
        if not stmt.args:
            return text
        return f"{self.printer.statements.condition(stmt)} ? {text} : ({value_type(stmt.dtype)})0"

    def _loaded(self, stmt: Stmt, access: Access) -> str:
        if self._is_vector(access, bool(stmt.args)):
            return f"raw_{stmt.name}[k]"
        neighbour = self._positions.neighbour(access, self.along, self.width)
        return f"kw::load_one<kw::DEFAULT>(g_{access.buffer} + ({self._at(access)}{neighbour}))"

    def vectors_to_store(self) -> list[str]:
        """Room for the vectors that are stored at once."""
        lines = []
        for at, store in enumerate(self.stores):
            if self._is_vector(store.access):
                lines.append(f"kw::Vec<{c_type(store.access.dtype)}, {self.width}> out_{at};")
                lines += [f"bool holds_{at};"] * bool(store.when)
        return lines

    def stored_elements(self) -> list[str]:
        """Each neighbour's stores, into memory or into the vector that goes there."""
        lines = []
        for at, store in enumerate(self.stores):
            value = self.printer.statements.stored(store)
            if self._is_vector(store.access):
                lines.append(f"out_{at}[k] = {value};")
                lines += [f"holds_{at} = v_{store.when};"] * bool(store.when)
                continue
            neighbour = self._positions.neighbour(store.access, self.along, self.width)
            where = f"g_{store.access.buffer}[{self._at(store.access)}{neighbour}]"
            inside = f"if (v_{store.when}) " if store.when else ""
            lines.append(f"{inside}{where} = {value};")
        return lines

    def stored_vectors(self) -> list[str]:
        """The stores of all neighbours at once."""
        return [
            f"{f'if (holds_{at}) ' if store.when else ''}kw::store<kw::DEFAULT>"
            f"(g_{store.access.buffer} + ({self._at(store.access)}), out_{at});"
            for at, store in enumerate(self.stores)
            if self._is_vector(store.access)
        ]
