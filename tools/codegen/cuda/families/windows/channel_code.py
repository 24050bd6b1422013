"""The statements of sums over windows of neighbouring channels as C++, scope by scope.

A thread has `VECTOR` lanes from `lane` on. The skeleton supplies what it does for `sums_code`, and
`e`, a lane's place in the thread; `r`, the place of an output in the tile across lines; `row`, the
line at hand across. Samples are read as vectors before the loop over lanes; what lanes share is
computed there as well. Sums lie in arrays `s_<statement>[r][at][e]`, samples under them in
`x_<statement>[line][e]`, weights in shared memory, as `w_<statement>`, and registers, as
`t_<statement>[e]`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernelwright.tools.codegen.cuda.families.windows.sums_code import Context, SumsCode
from kernelwright.tools.codegen.cuda.printing.expressions import c_type, value_type
from kernelwright.tools.codegen.ir import Access, Stmt
from kernelwright.tools.codegen.ir.bounds import Bound
from kernelwright.tools.codegen.ir.loops import axis_names, operands
from kernelwright.tools.codegen.ir.sliding import Level, SlidingSums

WIDTHS = (2, 4, 1)
_WIDEST_BYTES = 16


@dataclass(frozen=True)
class ChannelScopes:
    """The statements under the sums by where a thread of several channels computes them."""

    sums: SlidingSums

    @cached_property
    def _needed(self) -> frozenset[str]:
        """What pairs need, back to samples and weights."""
        names = {one.args[0] for one in self.sums.reductions}
        for stmt in reversed(self.sums.under()):
            if stmt.name in names and self.sums.level(stmt.name) not in (Level.LINE, Level.TAP):
                names |= self._operands(stmt)
        return frozenset(names)

    def _operands(self, stmt: Stmt) -> set[str]:
        axes = axis_names(self.sums.loop)
        return set() if stmt.name in self.sums.sides else {*operands(stmt, axes)}

    def _of_level(self, level: Level) -> tuple[Stmt, ...]:
        under = self.sums.under()
        return tuple(
            s for s in under if s.name in self._needed and self.sums.level(s.name) is level
        )

    @cached_property
    def samples(self) -> tuple[Stmt, ...]:
        """What is computed of a line and used for every output that sees it."""
        return self._of_level(Level.LINE)

    @cached_property
    def weights(self) -> tuple[Stmt, ...]:
        """What is computed of a tap and used for every output."""
        return self._of_level(Level.TAP)

    @cached_property
    def pairs(self) -> tuple[Stmt, ...]:
        """What is computed for every tap of every output."""
        both = {stmt.name for stmt in (*self.samples, *self.weights)}
        under = self.sums.under()
        return tuple(s for s in under if s.name in self._needed and s.name not in both)

    def behind(self, roots: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """These statements and all that they are computed from."""
        names = {stmt.name for stmt in roots}
        for stmt in reversed(self.sums.under()):
            if stmt.name in names:
                names |= self._operands(stmt)
        return tuple(stmt for stmt in self.sums.under() if stmt.name in names)

    @property
    def zeros(self) -> frozenset[str]:
        """Conditions without which every product is zero: samples are chosen by them, or 0."""
        known = {stmt.name: stmt for stmt in self.sums.loop.body}
        samples = {stmt.name for stmt in self.samples}
        products = [known.get(one.args[0]) for one in self.sums.reductions]
        if not all(p is not None and p.op == "mul" and samples & {*p.args} for p in products):
            return frozenset()
        found = [_conjuncts(known, stmt) for stmt in self.samples]
        return frozenset.intersection(*found) if found else frozenset()

    def is_chosen_already(self, stmt: Stmt) -> bool:
        """Whether a value is chosen by what its read asked for: that gave zero where it failed."""
        known = {one.name: one for one in self.sums.loop.body}
        asked = _conjuncts(known, stmt)
        read = known.get(stmt.args[1]) if asked else None
        if read is None or read.op != "load" or not read.args:
            return False
        return asked <= _joined(known, read.args[0])

    def widths(self) -> list[int]:
        """Lanes that a thread may take, so that its vectors are aligned; [] where it cannot."""
        accesses = [
            stmt.access
            for stmt in self.behind(self.samples)
            if stmt.access and self._is_vector(stmt)
        ]
        accesses += [store.access for store in self.sums.loop.stores]
        return [n for n in WIDTHS if all(self.is_aligned(one, n) for one in accesses)]

    def _is_vector(self, stmt: Stmt) -> bool:
        return stmt.op == "load" and self.sums.varies(stmt.name)

    def is_aligned(self, access: Access, lanes: int) -> bool:
        """Whether so many lanes from a multiple of them on are one vector."""
        place, lane = self.sums.where(access), self.sums.lane
        steps = {stride.by: stride.step for stride in place.steps}
        others = [place.offset, *(step for by, step in steps.items() if by != lane.name)]
        fits = lanes * access.dtype.itemsize_bytes <= _WIDEST_BYTES and lane.size % lanes == 0
        return fits and steps.get(lane.name) == 1 and not any(step % lanes for step in others)


def _conjuncts(known: Mapping[str, Stmt], stmt: Stmt) -> frozenset[str]:
    """The conditions that choose between a value and zero, together."""
    if stmt.op != "where":
        return frozenset()
    other = known.get(stmt.args[2])
    if other is None or other.op != "const" or other.value != 0.0:
        return frozenset()
    return _joined(known, stmt.args[0])


def _joined(known: Mapping[str, Stmt], name: str) -> frozenset[str]:
    """The conditions that one is made of, all of which have to hold."""
    names, found = [name], set[str]()
    while names:
        one = known.get(names.pop())
        if one is not None and one.op == "logical_and":
            names += one.args
        elif one is not None:
            found.add(one.name)
    return frozenset(found)


class ChannelCode(SumsCode):
    """Prints them; `across` is the other pair of axes of a tile, if there is one."""

    def __init__(self, sums: SlidingSums, across: SlidingSums | None) -> None:
        super().__init__(sums)
        self.scopes, self.across = ChannelScopes(sums), across

    @property
    def plain_columns(self) -> list[str]:
        """Names of the inner axes that are walked one by one."""
        rows = self.across.tap.name if self.across else ""
        return [axis.name for axis in self.sums.columns if axis.name != rows]

    @cached_property
    def weights(self) -> list[tuple[str, str]]:
        """Type and name of what shared memory keeps."""
        return [(value_type(stmt.dtype), stmt.name) for stmt in self.scopes.weights]

    @cached_property
    def samples(self) -> list[tuple[str, str]]:
        """Type and name of what is kept of a line."""
        return [(value_type(stmt.dtype), stmt.name) for stmt in self.scopes.samples]

    @property
    def of_tap(self) -> list[str]:
        """What shared memory keeps of a tap, computed for one channel."""
        return [self._line(stmt, "tap") for stmt in self.scopes.behind(self.scopes.weights)]

    @property
    def of_line(self) -> tuple[list[str], list[str]]:
        """What lanes of a line share or read as vectors, and what each computes."""
        return self._shared_and_own(self.scopes.behind(self.scopes.samples), "line")

    @property
    def of_pair(self) -> list[str]:
        """What each lane computes of a tap of an output."""
        return [self._line(stmt, "pair") for stmt in self.scopes.pairs]

    @property
    def of_output(self) -> tuple[list[str], list[str]]:
        """What follows the sums, for one output."""
        return self._shared_and_own(self.sums.after(), "after")

    @property
    def skips(self) -> list[str]:
        """What holds of rows that are worth reading at all."""
        zeros = self.scopes.zeros
        sides = ((n, s) for n, s in self.sums.sides.items() if n in zeros)
        rows = (side for name, side in sides if self.sums.level(name) is not Level.LINE)
        return [f"{self._place(side, 'row')} >= 0" for side in rows]

    @property
    def seen(self) -> list[str]:
        """What holds of lines whose products are not zero."""
        zeros = self.scopes.zeros
        sides = ((n, s) for n, s in self.sums.sides.items() if n in zeros)
        lines = (side for name, side in sides if self.sums.level(name) is Level.LINE)
        return [f"{self._place(side, 'line')} >= 0" for side in lines]

    @cached_property
    def inside(self) -> list[str]:
        """What holds where no line of the tile leaves its input."""
        under = {stmt.name for stmt in self.sums.under()}
        sides = ((n, s) for n, s in self.sums.sides.items() if n in under)
        lines = (side for name, side in sides if self.sums.level(name) is Level.LINE)
        return list(dict.fromkeys(f"{self._least(side)} >= 0" for side in lines))

    @property
    def written(self) -> list[tuple[str, str, str, str]]:
        """Type, buffer, address and value of each store."""
        found = []
        for store in self.sums.loop.stores:
            access = store.access
            place = self._place(self.sums.where(access), "after", wide=self._is_wide(access.buffer))
            wanted, have = c_type(access.dtype), self._types[store.value]
            value = self._value(store.value, "after")
            value = value if value_type(have) == wanted else f"kw::to<{wanted}>({value})"
            found.append((wanted, access.buffer, place, value))
        return found

    def _shared_and_own(
        self, stmts: Sequence[Stmt], context: Context
    ) -> tuple[list[str], list[str]]:
        """Lines that stand before the loop over lanes, and in it."""
        shared, own = list[str](), list[str]()
        for stmt in stmts:
            if self._is_vector(stmt):
                shared.append(self._vector(stmt, context))
                own.append(f"const {value_type(stmt.dtype)} v_{stmt.name} = l_{stmt.name}[e];")
            else:
                into = own if self.sums.varies(stmt.name) else shared
                into.append(self._line(stmt, context))
        return shared, own

    def _is_vector(self, stmt: Stmt) -> bool:
        """Whether lanes read a value together."""
        if stmt.op != "load" or stmt.access is None or not self.sums.varies(stmt.name):
            return False
        if any(self.sums.varies(name) for name in stmt.args):
            return False
        known = {*axis_names(self.sums.loop), *self.sums.places}
        placed = all(stride.by in known for stride in stmt.access.strides)
        widths = self.scopes.widths()
        return placed and all(self.scopes.is_aligned(stmt.access, n) for n in widths)

    def _vector(self, stmt: Stmt, context: Context) -> str:
        """Reads a vector, zeros where its condition does not hold."""
        access = stmt.access
        assert access is not None
        kind, at = value_type(stmt.dtype), self._address(access, context)
        text = f"kw::load<kw::DEFAULT, VECTOR>({at})"
        if stmt.args:
            text = f"kw::load_if<kw::DEFAULT, VECTOR>({self._value(stmt.args[0], context)}, {at})"
        return f"const kw::Vec<{kind}, VECTOR> l_{stmt.name} = kw::widened<{kind}>({text});"

    def _address(self, access: Access, context: Context) -> str:
        """A pointer; a line's is a number of elements behind the first one's."""
        place, wide = self.sums.where(access), self._is_wide(access.buffer)
        steps = {stride.by: stride.step for stride in place.steps}
        output, tap = self.sums.output.name, self.sums.tap.name
        if context != "line" or output not in steps:
            return f"g_{access.buffer} + ({self._place(place, context, wide=wide)})"
        others = tuple(stride for stride in place.steps if stride.by not in (output, tap))
        first = f"{'(long long)' if wide else ''}first * {steps[output]}"
        rest = self._place(Bound(offset=place.offset, steps=others), context, wide=wide)
        step = steps[output] // self.sums.step
        line = f"{'(long long)' if wide else ''}line * {step}"
        return f"g_{access.buffer} + ({first} + {rest}) + {line}"

    def _computed(self, stmt: Stmt, context: Context) -> str:
        side = self.sums.sides.get(stmt.name)
        if side is not None and self.sums.level(stmt.name) is not Level.LINE:
            return f"{self._place(side, context)} >= 0"
        if context == "line" and self.scopes.is_chosen_already(stmt):
            return self._value(stmt.args[1], context)
        return super()._computed(stmt, context)

    def _value(self, name: str, context: Context) -> str:
        if name in self.sums.places:
            return super()._value(name, context)
        if context == "after" and self.sums.loop.stmt(name).op == "reduce":
            return f"s_{name}[r][at][e]"
        if context == "pair" and name in _names(self.scopes.weights):
            return f"t_{name}[e]"
        if context == "pair" and name in _names(self.scopes.samples):
            return f"x_{name}[line][e]"
        return f"v_{name}"


def _names(stmts: Sequence[Stmt]) -> Collection[str]:
    return {stmt.name for stmt in stmts}
