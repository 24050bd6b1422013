"""Prints an epilogue that reduces results over a side of the product: passes, then stores.

A kernel whose tile has all columns of a fold goes through them once for every fold that waits for
another (a softmax: the maximum, then the sum), and once more where what is stored differs from
column to column; what each pass needs is computed again from the sums. Stores of folded values
alone are made once. Folds over windows of outputs add one result at a time (`folds_in_turns`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter, Printed
from kernelwright.tools.codegen.cuda.contractions.windows import Windows
from kernelwright.tools.codegen.cuda.printing.expressions import value_type
from kernelwright.tools.codegen.ir import ReduceKind, Stmt, Store
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.roofline import statement_flops
from kernelwright.tools.types import DType

# What joins two values, and what changes none.
_OPERATORS = {
    ReduceKind.SUM: "kw::ScanSum", ReduceKind.PROD: "kw::ScanProduct",
    ReduceKind.MAX: "kw::ScanMaximum", ReduceKind.MIN: "kw::ScanMinimum",
}  # fmt: skip
# What a pass takes that stores nothing, of one that does (an estimate: it waits for no memory).
_WITHOUT_STORES = 0.5
# Columns that warps take apart in registers, the most of a tile, and those that a lane has at once.
_EVEN, _MOST, _OF_LANE = 8, 256, 4


@dataclass(frozen=True)
class Folding:
    """Columns that are reduced together; `is_whole` where those are all of a product's."""

    columns: int
    is_whole: bool

    @property
    def is_of_lane(self) -> bool:
        """Whether a lane has all of a fold at once."""
        return self.columns == _OF_LANE and not self.is_whole

    def fits(self, of_tile: int) -> bool:
        """Whether a tile of so many columns has all of every fold that it has some of."""
        if self.is_whole:
            return of_tile >= self.columns
        return of_tile % self.columns == 0

    def spans(self, usual: Sequence[int]) -> tuple[int, ...]:
        """Columns that may pass through shared memory at a time."""
        if self.is_whole or self.is_of_lane:
            return tuple(usual)
        return tuple(one for one in usual if self.columns % one == 0) or (_EVEN,)


def folds_in_turns(contraction: Contraction, windows: Windows) -> bool:
    """Whether results are folded over the outputs of a place, which are made in turns."""
    names = frozenset(axis.name for axis in windows.members)
    (fold, *others) = contraction.folds
    alone = not any(one.access.step(name) for one in contraction.stores for name in names)
    alike = alone and not others and frozenset(fold.along) == names
    return alike and fold.reduce in _OPERATORS and fold.dtype is DType.FLOAT32


def folding_of(contraction: Contraction, side: str) -> Folding | None:
    """How the side's results are folded; None where they are not, or not so.

    Args:
        contraction: The product.
        side: "row" or "column", the side whose positions a tile has beside each other.
    """
    axes = contraction.rows if side == "row" else contraction.columns
    along = {stmt.along for stmt in contraction.folds}
    if len({frozenset(one) for one in along}) != 1:
        return None
    (names, *_) = along
    columns = prod(axis.size for axis in axes if axis.name in names)
    alike = all(s.reduce in _OPERATORS and s.dtype is DType.FLOAT32 for s in contraction.folds)
    if not alike or not {*names} <= {axis.name for axis in axes} or columns > _MOST:
        return None
    found = Folding(columns, columns == prod(axis.size for axis in axes))
    even = columns % _EVEN == 0 or found.is_of_lane
    return found if found.is_whole or even else None


@dataclass(frozen=True)
class Fold:
    """One reduction: the variable that holds it, what joins values, and the value at a column."""

    name: str
    type: str
    operator: str
    value: str


@dataclass(frozen=True)
class Pass:
    """What is computed of every column, and the reductions that take some of it."""

    lines: tuple[str, ...]
    folds: tuple[Fold, ...]

    @property
    def share(self) -> float:
        """What it takes of a pass that stores every result."""
        return _WITHOUT_STORES if self.folds else 1.0


class FoldPrinter:
    """Prints passes over the columns of a fold.

    Args:
        printer: Of the contraction's elements.
        contraction: The product.
        total: A column's sum, as C++ text.
        known: What the kernel has of a column already, as C++ text.
    """

    def __init__(
        self,
        printer: ElementPrinter,
        contraction: Contraction,
        total: str,
        known: Mapping[str, str],
    ) -> None:
        self._printer, self._contraction, self._total = printer, contraction, total
        self._folded = {one.name: f"fold_{one.name}" for one in contraction.folds}
        self._known = {**known, **self._folded}

    @cached_property
    def _levels(self) -> Mapping[str, int]:
        """How many passes must be over before a value is known."""
        levels: dict[str, int] = {self._contraction.total: 0}
        for stmt in self._contraction.epilogue:
            read = [levels.get(name, 0) for name in _reads(stmt)]
            levels[stmt.name] = max(read, default=0) + (stmt.op == "fold")
        return levels

    @cached_property
    def _of_columns(self) -> frozenset[str]:
        """The values that differ from column to column of a fold."""
        folded = {name for one in self._contraction.folds for name in one.along}
        found = {self._contraction.total}
        for stmt in self._contraction.epilogue:
            if stmt.op != "fold" and (found | folded) & {*_reads(stmt)}:
                found.add(stmt.name)
        return frozenset(found)

    def flops(self) -> int:
        """Arithmetic of one result, however often it is done; that of folds is shared."""
        return sum(
            statement_flops(stmt)
            for stmt in self._contraction.epilogue
            if stmt.name in self._of_columns or stmt.op == "fold"
        )

    def passes(self) -> tuple[Pass, ...]:
        """One for each fold that waits for another, in order; the last one may only store."""
        depth = 1 + max(self._levels[stmt.args[0]] for stmt in self._contraction.folds)
        found = [self._reducing(level) for level in range(depth)]
        stores = [one for one in self._contraction.stores if self._differs(one)]
        if stores:
            printed = self._printer.part(self._total, (), stores, self._known)
            found.append(Pass(printed.lines(), ()))
        return tuple(found)

    def _reducing(self, level: int) -> Pass:
        mine = [one for one in self._contraction.folds if self._levels[one.args[0]] == level]
        wanted = tuple(one.args[0] for one in mine)
        printed = self._printer.part(self._total, wanted, (), self._known)
        return Pass(printed.lines(), tuple(map(self._fold, mine)))

    def _fold(self, stmt: Stmt) -> Fold:
        kind = value_type(stmt.dtype)
        assert stmt.reduce is not None
        operator = f"{_OPERATORS[stmt.reduce]}<{kind}>"
        return Fold(self._folded[stmt.name], kind, operator, f"v_{stmt.args[0]}")

    def _differs(self, store: Store) -> bool:
        folded = {name for one in self._contraction.folds for name in one.along}
        return store.value in self._of_columns or any(store.access.step(name) for name in folded)

    def stored_once(self) -> Printed | None:
        """The stores of what is folded; None where there are none."""
        stores = [one for one in self._contraction.stores if not self._differs(one)]
        return self._printer.part("", (), stores, self._folded) if stores else None


def folded_values(
    printer: ElementPrinter, contraction: Contraction, folding: Folding | None, kept: Sequence[str]
) -> dict[str, object]:
    """What a skeleton is told of passes; it has what is `kept` of columns as `four_<name>`."""
    known = {name: f"four_{name}[n]" for name in kept}
    folds = FoldPrinter(printer, contraction, "whole[n]", known)
    once = folds.stored_once()
    return {
        "passes": folds.passes(),
        "stored_once": once.lines() if once is not None else (),
        "fold_columns": 0 if folding is None or folding.is_whole else folding.columns,
    }


def _reads(stmt: Stmt) -> tuple[str, ...]:
    strides = stmt.access.strides if stmt.access is not None else ()
    return (*stmt.args, *(one.by for one in strides if one.step))
