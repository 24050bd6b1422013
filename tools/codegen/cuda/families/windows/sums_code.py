"""The statements of sums over windows as C++, level by level.

The skeleton owns the loops. It supplies the thread's position along each outer axis (`p_<axis>`,
along the outputs' own the first of them in `first`, with `at` counting from there), along each
inner axis (`p_<axis>`), the `tap` and the `line`. Sums lie in arrays `s_<statement>`, what is kept
of a tap in `t_<statement>`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from kernelwright.tools.codegen.cuda.printing.expressions import (
    c_type,
    convert,
    expression,
    value_type,
)
from kernelwright.tools.codegen.cuda.printing.printing import (
    INT_LIMIT,
    SLACK,
    convert_from_memory,
)
from kernelwright.tools.codegen.ir import Stmt, Store
from kernelwright.tools.codegen.ir.bounds import Bound
from kernelwright.tools.codegen.ir.rewrites import rounded_alone
from kernelwright.tools.codegen.ir.sliding import Level, SlidingSums

Context = Literal["row", "tap", "line", "pair", "after"]
_CONTEXTS: dict[Level, Context] = {
    Level.ROW: "row",
    Level.COLUMN: "row",
    Level.TAP: "tap",
    Level.LINE: "line",
    Level.PAIR: "pair",
}


class SumsCode:
    """Prints the statements of sums over windows."""

    def __init__(self, sums: SlidingSums) -> None:
        self.sums = sums
        self._types = {stmt.name: stmt.dtype for stmt in sums.loop.body}
        self._sizes = {axis.name: axis.size for axis in (*sums.loop.outer, *sums.loop.inner)}
        self._alone = rounded_alone(sums.loop)

    @property
    def count_type(self) -> str:
        """The type in which tiles are counted."""
        return "unsigned int" if self.sums.loop.rows < INT_LIMIT - SLACK else "unsigned long long"

    def at(self, level: str) -> list[str]:
        """The statements of a level, by its name in lower case."""
        wanted = Level[level.upper()]
        under = (stmt for stmt in self.sums.under() if self.sums.level(stmt.name) is wanted)
        return [self._line(stmt, _CONTEXTS[wanted]) for stmt in under]

    @cached_property
    def kept(self) -> list[tuple[str, str]]:
        """Type and name of what pairs take of a tap."""
        return [(value_type(stmt.dtype), stmt.name) for stmt in self.sums.kept]

    @cached_property
    def totals(self) -> list[tuple[str, str, str]]:
        """Type and name of each sum, and what is added to it for a tap of an output."""
        found = []
        for one in self.sums.reductions:
            (name,) = one.args
            text = convert(self._value(name, "pair"), self._types[name], one.dtype)
            found.append((value_type(one.dtype), one.name, text))
        return found

    @cached_property
    def inside(self) -> list[str]:
        """What holds where no window of the tile leaves its input."""
        under = {stmt.name for stmt in self.sums.under()}
        sides = (side for name, side in self.sums.sides.items() if name in under)
        return list(dict.fromkeys(f"{self._least(side)} >= 0" for side in sides))

    def _least(self, side: Bound) -> str:
        """The least value of an affine form over a tile."""
        parts, offset = [], side.offset
        for stride in side.steps:
            step, size = stride.step, self._sizes[stride.by]
            if stride.by == self.sums.output.name:
                furthest = "first" if step > 0 else "(first + OUTPUTS - 1)"
                parts.append(_times(furthest, step))
            elif stride.by in {axis.name for axis in self.sums.loop.outer}:
                parts.append(_times(f"p_{stride.by}", step))
            else:
                offset += min(0, step * (size - 1))
        return _total(parts, offset)

    @cached_property
    def after(self) -> list[str]:
        """What follows the sums, for one output."""
        return [self._line(stmt, "after") for stmt in self.sums.after()]

    @cached_property
    def stores(self) -> list[str]:
        """The stores of one output."""
        return [self._store(store) for store in self.sums.loop.stores]

    def _store(self, store: Store) -> str:
        access, have = store.access, self._types[store.value]
        value = self._value(store.value, "after")
        wanted = c_type(access.dtype)
        value = value if value_type(have) == wanted else f"kw::to<{wanted}>({value})"
        at = self._place(self.sums.where(access), "after", wide=self._is_wide(access.buffer))
        return f"g_{access.buffer}[{at}{self._gathered(store, 'after')}] = {value};"

    def _line(self, stmt: Stmt, context: Context) -> str:
        return f"const {value_type(stmt.dtype)} v_{stmt.name} = {self._computed(stmt, context)};"

    def _computed(self, stmt: Stmt, context: Context) -> str:
        side = self.sums.sides.get(stmt.name)
        if side is not None:
            text = f"{self._place(side, context)} >= 0"
            return text if context == "after" else f"!EDGE || {text}"
        if stmt.op == "load":
            return self._load(stmt, context)
        args = [(self._value(name, context), self._types[name]) for name in stmt.args]
        return expression(stmt, args, alone=stmt.name in self._alone)

    def _load(self, stmt: Stmt, context: Context) -> str:
        access = stmt.access
        assert access is not None
        wide = self._is_wide(access.buffer)
        at = self._place(self.sums.where(access), context, wide=wide) + self._gathered(
            stmt, context
        )
        text = f"kw::load_one<kw::DEFAULT>(g_{access.buffer} + ({at}))"
        text = convert_from_memory(text, access.dtype, stmt.dtype)
        zero = f"({value_type(stmt.dtype)})0"
        return f"{self._value(stmt.args[0], context)} ? {text} : {zero}" if stmt.args else text

    def _gathered(self, one: Stmt | Store, context: Context) -> str:
        """What indices that are no affine form add to an address."""
        strides = one.access.strides if one.access is not None else ()
        given = (s for s in strides if s.by not in self._sizes and s.by not in self.sums.places)
        return "".join(f" + {self._value(one.by, context)} * {one.step}LL" for one in given)

    def _value(self, name: str, context: Context) -> str:
        """How a value is named where it is used."""
        place = self.sums.places.get(name)
        if place is not None:
            return f"(long long)({self._place(place, context)})"
        if context == "after" and self.sums.loop.stmt(name).op == "reduce":
            return f"s_{name}[at]"
        kept = context == "pair" and any(name == one for _, one in self.kept)
        return f"t_{name}[tap]" if kept else f"v_{name}"

    def _place(self, place: Bound, context: Context, *, wide: bool = False) -> str:
        """An affine form at the position at hand."""
        cast = "(long long)" if wide else ""
        steps = {stride.by: stride.step for stride in place.steps}
        parts = []
        if context == "line" and self.sums.output.name in steps:
            # Output and tap go together: so many steps of the form for each line.
            step = steps.pop(self.sums.output.name) // self.sums.step
            steps.pop(self.sums.tap.name)
            parts.append(_times(f"({_times(f'{cast}first', self.sums.step)} + line)", step))
        names = {self.sums.output.name: "(first + at)", self.sums.tap.name: "tap"}
        parts += [_times(f"{cast}{names.get(by, f'p_{by}')}", step) for by, step in steps.items()]
        return _total(parts, place.offset)

    def _is_wide(self, buffer: str) -> bool:
        """Whether positions in a buffer need 64 bits."""
        accesses = [stmt.access for stmt in self.sums.loop.body if stmt.access is not None]
        accesses += [store.access for store in self.sums.loop.stores]
        reach = 0
        for access in accesses:
            if access.buffer == buffer:
                place = self.sums.where(access)
                moved = (abs(s.step) * self._sizes[s.by] for s in place.steps)
                reach = max(reach, abs(place.offset) + sum(moved))
        return reach >= INT_LIMIT - SLACK


def _times(text: str, step: int) -> str:
    return text if step == 1 else f"-{text}" if step == -1 else f"{text} * {step}"


def _total(parts: list[str], offset: int) -> str:
    return " + ".join([*parts, str(offset)] if offset or not parts else parts)
