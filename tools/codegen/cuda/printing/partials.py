"""What each kind of reduction accumulates: the prelude's type, its size, how results are read."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.printing.nest import Nest
from kernelwright.tools.codegen.cuda.printing.types import value_type
from kernelwright.tools.codegen.ir import ReduceKind, Stmt
from kernelwright.tools.codegen.ir.types import computed
from kernelwright.tools.types import DType

_INT_LIMIT = 1 << 31
_POSITIONAL = {ReduceKind.ARGMAX: "ArgMaximum", ReduceKind.ARGMIN: "ArgMinimum"}
_PLAIN = {
    ReduceKind.SUM: ("Sum", 2),
    ReduceKind.PROD: ("Product", 1),
    ReduceKind.MAX: ("Maximum", 1),
    ReduceKind.MIN: ("Minimum", 1),
    ReduceKind.MOMENTS: ("Moments", 4),
    ReduceKind.SOFTMAX: ("OnlineSoftmax", 2),
}


@dataclass(frozen=True)
class Member:
    """One reduction of a pass: its C++ type and layout, and the type of its argument."""

    stmt: Stmt
    type: str
    size: int
    align: int
    argument: DType
    position_type: str = ""

    @property
    def name(self) -> str:
        """The member's name in the pass's struct, which is also its value's."""
        return f"v_{self.stmt.name}"

    def results(self) -> tuple[tuple[str, str], ...]:
        """(name, C++ expression of a partial's member) of each result, `{}` being the partial."""
        first = (self.name, f"{{}}.{self.name}.value()")
        second = f"{{}}.{self.name}.second()"
        if self.stmt.reduce is ReduceKind.MOMENTS:
            return (first, (f"{self.name}_m2", second))
        if self.stmt.reduce is ReduceKind.SOFTMAX:
            return (first, (f"{self.name}_sum", second))
        return (first,)


def member(stmt: Stmt, argument: DType, nest: Nest) -> Member:
    """What a reduction statement accumulates.

    Args:
        stmt: The reduction.
        argument: The type of the value reduced.
        nest: Its nest; positions are 32 bits wide where that suffices.
    """
    kind = stmt.reduce
    dtype = computed(stmt.dtype)
    if kind in _POSITIONAL:
        return _positional(stmt, computed(argument), nest)
    if kind in (ReduceKind.ANY, ReduceKind.ALL) or dtype is DType.BOOL:
        # Over truth values max is any, min and prod are all, and so is a sum's "more than none".
        every = kind in (ReduceKind.ALL, ReduceKind.MIN, ReduceKind.PROD)
        return Member(stmt, "kw::All" if every else "kw::Any", 4, 4, DType.BOOL)
    if kind is None or kind not in _PLAIN:
        raise ValueError(f"{stmt.name}: no reduction {kind}")
    name, words = _PLAIN[kind]
    if kind is ReduceKind.SUM and dtype is DType.INT64:
        words = 1
    size = dtype.itemsize_bytes
    return Member(stmt, f"kw::{name}<{value_type(dtype)}>", words * size, size, dtype)


def _positional(stmt: Stmt, argument: DType, nest: Nest) -> Member:
    kind = stmt.reduce
    assert kind is not None
    index = "int" if nest.columns < _INT_LIMIT else "long long"
    align = max(argument.itemsize_bytes, 4 if index == "int" else 8)
    name = f"kw::{_POSITIONAL[kind]}<{value_type(argument)}, {index}>"
    return Member(stmt, name, 2 * align, align, argument, index)


def struct_bytes(members: Sequence[Member]) -> int:
    """The size of a struct of these members, in bytes, as C++ lays it out."""
    at = 0
    for one in members:
        at = _aligned(at, one.align) + one.size
    return _aligned(at, max(one.align for one in members))


def _aligned(at: int, to: int) -> int:
    return (at + to - 1) // to * to
