"""Prints a nest's statements as C++: addresses, loads, values and stores of one pass.

Two modes. In *row* mode a thread takes neighbours along the walked axis and a row has one value
of each row-level statement. In *column* mode a thread takes neighbouring rows (the last kept
axis is the contiguous one), so row-level values are arrays over them, indexed by `k`.
The skeletons own the loops; they supply `row` (or `block` and `c`), `j`, `u`, `k` and `slot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kernelwright.tools.codegen.cuda.printing.expressions import (
    c_type,
    convert,
    expression,
    value_type,
)
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace, Nest
from kernelwright.tools.codegen.cuda.printing.schedule import Member, Pass, member
from kernelwright.tools.codegen.cuda.printing.vectors import Vectors
from kernelwright.tools.codegen.ir import Stmt
from kernelwright.tools.codegen.ir.loops import computed
from kernelwright.tools.codegen.ir.rewrites import rounded_alone
from kernelwright.tools.types import DType

INT_LIMIT = 1 << 31
# Loops step past the end by at most one round of a block; that too must fit the index type.
SLACK = 1 << 24


_SCANS = {"sum": "ScanSum", "prod": "ScanProduct", "max": "ScanMaximum", "min": "ScanMinimum"}


@dataclass(frozen=True)
class Stream:
    """A pointer into a buffer at the start of a row."""

    name: str
    type: str
    base: str
    const: bool


@dataclass(frozen=True)
class Running:
    """A scan: its operator, the type it runs in, what it takes and the type it gives."""

    op: str
    type: str
    value: str
    runs_in: DType
    gives: DType

    def result(self, text: str) -> str:
        """A running value in the statement's type."""
        return convert(text, self.runs_in, self.gives)


class Printer:
    """Prints the statements of one nest.

    Args:
        nest: The nest.
        vectors: Its vector accesses; their axis sets the mode.
    """

    def __init__(self, nest: Nest, vectors: Vectors):
        self.nest = nest
        self.vectors = vectors
        self.columns = vectors.axis == "kept"
        self.types: Mapping[str, DType] = _types(nest)
        self._alone = rounded_alone(nest.loop)

    @property
    def index(self) -> str:
        """The type of positions along a row."""
        return "int" if self.nest.columns < INT_LIMIT - SLACK else "long long"

    @property
    def row_index(self) -> str:
        """The type of row numbers."""
        return "int" if self.nest.rows < INT_LIMIT - SLACK else "long long"

    # -- where things are

    def row_decode(self) -> tuple[str, ...]:
        """Lines that turn `row` (in column mode `block`) into positions along kept axes."""
        sizes = self.nest.kept[:-1] if self.columns else self.nest.kept
        lines = decoded("o", "block" if self.columns else "row", sizes, self.row_index)
        if self.columns:
            lines.append(f"const {self.row_index} o{len(sizes)} = c;")
        return tuple(lines)

    def walk_decode(self, places: Sequence[AxisPlace]) -> list[str]:
        """Lines that turn `j` into positions along walked axes, if one of `places` needs them."""
        if self.vectors.crossing or self._all_linear(places):
            return []
        return decoded("i", "j", self.nest.walked, self.index)

    def lane_decode(self, places: Sequence[AxisPlace]) -> list[str]:
        """The same for neighbour `k` alone, where a vector's elements may lie in several rows."""
        if not self.vectors.crossing or self._all_linear(places):
            return []
        return decoded("i", "(j + k)", self.nest.walked, self.index)

    def _all_linear(self, places: Sequence[AxisPlace]) -> bool:
        return all(self.nest.linear(place) is not None for place in places)

    def base(self, place: AxisPlace) -> str:
        """The offset of a row's start."""
        terms = [str(place.offset)] if place.offset else []
        for axis, step in enumerate(place.outer):
            if step:
                terms.append(f"(long long)o{axis} * {step}")
        return " + ".join(terms) or "0"

    def walked_offset(self, place: AxisPlace) -> str:
        """The offset of position `j` from the row's start."""
        sizes, steps = self.nest.walked, place.inner
        wide = sum((n - 1) * abs(s) for n, s in zip(sizes, steps, strict=True)) >= INT_LIMIT
        cast = "(long long)" if wide else ""
        linear = self.nest.linear(place)
        if linear is not None:
            return "0" if linear == 0 else _times(f"{cast}j", linear)
        terms = [_times(f"{cast}i{a}", step) for a, step in enumerate(steps) if step]
        return " + ".join(terms)

    def neighbour(self, place: AxisPlace) -> int:
        """The step from one of a thread's neighbours to the next; 0 where each is decoded."""
        if self.vectors.crossing and self.nest.linear(place) is None:
            return 0
        steps = place.outer if self.columns else place.inner
        return steps[-1] if steps else 0

    def gathered(self, place: AxisPlace) -> str:
        """What indirect access adds to an offset."""
        return "".join(f" + {self.value(name)} * {step}LL" for name, step in place.gathers)

    def streams(self, names: Sequence[str], stores: Sequence[int]) -> list[Stream]:
        """Row pointers for element-level loads and stores."""
        found = []
        for name in names:
            place = self.nest.places[name]
            found.append(Stream(f"at_{name}", c_type(place.dtype), self._start(place), True))
        for at in stores:
            place = self.nest.targets[at]
            found.append(Stream(f"to_{at}", c_type(place.dtype), self._start(place), False))
        return found

    def _start(self, place: AxisPlace) -> str:
        return f"g_{place.buffer} + ({self.base(place)})"

    # -- values

    def value(self, name: str) -> str:
        """How a value is named where it is used."""
        if self.columns and self.nest.levels[name] == "row":
            return f"v_{name}[k]"
        return f"v_{name}"

    def statement(self, stmt: Stmt, raw: str = "") -> str:
        """The C++ expression of a statement, at element `k` of a thread's neighbours.

        Args:
            stmt: The statement.
            raw: The vector that a load takes its element from; "" to load it here.
        """
        place = self.nest.places.get(stmt.name)
        if stmt.op == "index":
            assert place is not None
            return f"(long long)({self.position(stmt.name)})"
        if stmt.op == "load":
            assert place is not None
            source = raw or self._load_one(stmt, place)
            text = convert_from_memory(source, place.dtype, stmt.dtype)
            zero = f"({value_type(stmt.dtype)})0"
            return f"{self.value(stmt.args[0])} ? {text} : {zero}" if stmt.args else text
        args = [(self.value(name), self.types[name]) for name in stmt.args]
        if stmt.op == "div" and stmt.dtype is DType.FLOAT32 and self._by_row(stmt):
            parts = (convert(text, dtype, stmt.dtype) for text, dtype in args)
            return f"kw::divide_by_row({', '.join(parts)})"
        return expression(stmt, args, alone=stmt.name in self._alone)

    def _by_row(self, stmt: Stmt) -> bool:
        """Whether many elements are divided by one value."""
        levels = self.nest.levels
        return levels[stmt.name] == "element" and levels[stmt.args[1]] == "row"

    def position(self, name: str) -> str:
        """The value of a computed position at the element at hand."""
        place = self.nest.places[name]
        terms = [self.base(place), self.walked_offset(place)]
        if self.neighbour(place):
            terms.append(f"k * {self.neighbour(place)}")
        return " + ".join(term for term in terms if term != "0") or "0"

    def rises(self, name: str) -> bool:
        """Whether a computed position grows with the position along a row."""
        step = self.nest.linear(self.nest.places[name])
        return step is not None and step > 0

    def _load_one(self, stmt: Stmt, place: AxisPlace) -> str:
        if self.nest.levels[stmt.name] == "row":
            address = f"g_{place.buffer} + ({self.base(place)})"
        else:
            address = f"at_{stmt.name} + {self.walked_offset(place)}"
        # Row-level places do not move along the walked axis, so in row mode `k` is not theirs.
        element = self.columns or self.nest.levels[stmt.name] == "element"
        if element and self.neighbour(place):
            address += f" + k * {self.neighbour(place)}"
        return f"kw::load_one<kw::DEFAULT>({address}{self.gathered(place)})"

    def stored(self, at: int) -> str:
        """The value of store `at`, in the type of memory."""
        place = self.nest.targets[at]
        name = self.nest.loop.stores[at].value
        have = value_type(self.types[name])
        text = self.value(name)
        return text if have == c_type(place.dtype) else f"kw::to<{c_type(place.dtype)}>({text})"

    def store_one(self, at: int) -> str:
        """A store of one element."""
        place = self.nest.targets[at]
        if self.nest.is_element_store(at):
            address = f"to_{at}[{self.walked_offset(place)}"
            step = self.neighbour(place)
        else:
            address = f"g_{place.buffer}[{self.base(place)}"
            step = self.neighbour(place) if self.columns else 0
        if step:
            address += f" + k * {step}"
        return f"{address}{self.gathered(place)}] = {self.stored(at)};"

    def running(self, stmt: Stmt) -> Running:
        """What a scan statement runs on; truth values run as integers.

        Products of single precision run in double: a scan by parts multiplies each part by what
        came before it, and a part that overflows by itself makes NaN of a 0 that stays 0 in order.
        """
        kind = computed(stmt.dtype)
        kind = DType.INT64 if kind is DType.BOOL else kind
        kind = DType.FLOAT64 if stmt.scan == "prod" and kind is DType.FLOAT32 else kind
        name = stmt.args[0]
        assert stmt.scan is not None
        return Running(
            op=f"kw::{_SCANS[stmt.scan]}<{value_type(kind)}>",
            type=value_type(kind),
            value=convert(self.value(name), self.types[name], kind),
            runs_in=kind,
            gives=stmt.dtype,
        )

    def members(self, one: Pass) -> tuple[Member, ...]:
        """What the reductions of a pass accumulate."""
        return tuple(member(stmt, self.types[stmt.args[0]], self.nest) for stmt in one.reductions)

    def argument(self, one: Member) -> str:
        """The value that a reduction takes at the element at hand."""
        name = one.stmt.args[0]
        return convert(self.value(name), self.types[name], one.argument)


def convert_from_memory(text: str, stored: DType, wanted: DType) -> str:
    """`text` of a storage type in the type that `wanted` is computed in."""
    if c_type(stored) == value_type(wanted):
        return text
    return f"kw::to<{value_type(wanted)}>({text})"


def _types(nest: Nest) -> dict[str, DType]:
    types: dict[str, DType] = {}
    for stmt in nest.loop.body:
        for name in (stmt.name, f"{stmt.name}_m2", f"{stmt.name}_sum"):
            types[name] = stmt.dtype
    return types


def _times(text: str, step: int) -> str:
    return text if step == 1 else f"{text} * {step}"


def decoded(letter: str, source: str, sizes: Sequence[int], index: str) -> list[str]:
    """Positions along axes from a linear one; divisors are constants, so this is cheap."""
    if len(sizes) < 2:
        return [f"const {index} {letter}0 = {source};"] if sizes else []
    unsigned = "unsigned int" if index == "int" else "unsigned long long"
    lines = []
    for axis in range(len(sizes)):
        inner = prod(sizes[axis + 1 :])
        text = f"({unsigned}){source}" + (f" / {inner}u" if inner > 1 else "")
        text = f"{text} % {sizes[axis]}u" if axis else text
        lines.append(f"const {index} {letter}{axis} = ({index})({text});")
    return lines
