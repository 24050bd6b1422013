"""Prints what happens at one position: addresses, loads, operators, stores.

A *unit* is the part of a loop between its outer loops and the vector loop: pointers are computed
there once, and the vector loop indexes them by `j`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.tools.codegen.cpp.analysis import Analysis
from kernelwright.tools.codegen.cpp.expressions import expression
from kernelwright.tools.codegen.cpp.geometry import LaneGroup, address
from kernelwright.tools.codegen.cpp.spelling import STORED, Names, loaded, stored
from kernelwright.tools.codegen.ir import Access, Store


class Unit:
    """Prints statements for one position of the loops around a vector loop.

    Args:
        facts: The loop.
        names: Identifiers of the kernel.
        group: Axes of the vector loop.
        coordinates: C++ text of every other axis's coordinate.
        start: C++ text of the vector loop's first position in the group.
        tag: Keeps pointers of several units in one function apart.

    After the vector loop is printed, `preamble` holds the pointers it needs.
    """

    def __init__(
        self,
        facts: Analysis,
        names: Names,
        group: LaneGroup,
        coordinates: Mapping[str, str],
        start: str,
        tag: str,
    ) -> None:
        self.facts, self.names, self.group = facts, names, group
        self.preamble: list[str] = []
        self.decodes = False
        self._coordinates = {k: v for k, v in coordinates.items() if k not in group.names()}
        self._start, self._tag = start, tag
        self._pointers: dict[Access, str] = {}

    def value(self, name: str) -> str:
        """A value as it is written in an expression."""
        facts = self.facts
        return facts.spelled(name) if facts.is_literal(name) else self.names("value", name)

    def define(self, name: str) -> str:
        """The statement that computes a value from values in scope."""
        return f"const {self.facts.type_of(name)} {self.value(name)} = {self.compute(name)};"

    def compute(self, name: str) -> str:
        """The expression of a load, an index or a pointwise statement."""
        stmt = self.facts.statements[name]
        if stmt.op == "index":
            return f"int64_t({self._coordinate(stmt.args[0])})"
        if stmt.op == "load" and stmt.access is not None:
            text = loaded(self.element(stmt.access), stmt.access.dtype)
            zero = f"{self.facts.type_of(name)}(0)"
            return f"{self.value(stmt.args[0])} ? {text} : {zero}" if stmt.args else text
        if stmt.op in ("load", "reduce", "scan"):
            raise ValueError(f"{stmt.op} {stmt.name!r} has no expression")
        exponent = self.facts.constant(stmt.args[1]) if stmt.op == "pow" else None
        types = [self.facts.type_of(arg) for arg in stmt.args]
        args = [self.value(arg) for arg in stmt.args]
        kinds = {*types, self.facts.type_of(name)}
        if name in self.facts.alone and kinds in ({"float"}, {"double"}):
            return f"kw::product({args[0]}, {args[-1]})"
        return expression(stmt, args, types, exponent)

    def write(self, store: Store) -> str:
        """The statement that makes a store."""
        return f"{self.element(store.access, writing=True)} = {self.converted(store)};"

    def converted(self, store: Store) -> str:
        """A stored value in the buffer's type."""
        type_ = self.facts.type_of(store.value)
        return stored(self.value(store.value), type_, store.access.dtype)

    def element(self, access: Access, *, writing: bool = False) -> str:
        """The element at an access's position, as an lvalue."""
        if not self._moves(access):
            return f"{self.names('buffer', access.buffer)}[{self._fixed(access)}]"
        return f"{self.pointer(access, writing=writing)}[{self._index(access)}]"

    def pointer(self, access: Access, *, writing: bool = False) -> str:
        """The identifier of a pointer to an access's element at lane position `start`."""
        if access not in self._pointers:
            number = len(self._pointers)
            name = self.names("pointer" + self._tag, f"{access.buffer}{self._tag}_{number}")
            constant = "" if writing else "const "
            base = f"{self.names('buffer', access.buffer)} + ({self._fixed(access)})"
            self.preamble.append(f"{constant}{STORED[access.dtype]}* const {name} = {base};")
            self._pointers[access] = name
        return self._pointers[access]

    def _varies(self, name: str) -> bool:
        return bool(self.facts.depends[name] & self.group.names())

    def _moves(self, access: Access) -> bool:
        along = any(access.step(axis) for axis in self.group.names())
        return along or any(self._varies(name) for name in self.facts.indices(access))

    def _fixed(self, access: Access) -> str:
        """The part of an address that does not move within the vector loop."""
        extra = [
            (access.step(name), self.value(name))
            for name in self.facts.indices(access)
            if not self._varies(name)
        ]
        step = self.group.step(access)
        if step is not None:
            extra.append((step, self._start))
        return address(access, self._coordinates, extra)

    def _index(self, access: Access) -> str:
        """The part of an address that does."""
        step = self.group.step(access)
        terms: list[tuple[int, str]] = []
        if step is not None:
            terms.append((step, "j"))
        else:
            terms += [(access.step(a.name), self._coordinate(a.name)) for a in self.group.axes]
        for name in self.facts.indices(access):
            if self._varies(name):
                terms.append((access.step(name), self.value(name)))
        return " + ".join(t if s == 1 else f"{s} * {t}" for s, t in terms if s) or "0"

    def _coordinate(self, axis: str) -> str:
        if axis not in self.group.names():
            return self._coordinates.get(axis, "0")
        if len(self.group.axes) == 1:
            return "j" if self._start == "0" else f"({self._start} + j)"
        self.decodes = True
        return f"({self.group.coordinate(axis, 'at')})"

    def decoding(self) -> list[str]:
        """What a vector loop that divides its position into coordinates starts with."""
        if not self.decodes:
            return []
        # 32-bit division by a constant is a vector multiplication.
        type_ = "int32_t" if self.group.size < 1 << 31 else "int64_t"
        return [f"const {type_} at = {type_}({self._start} + j);"]
