"""Prints what a module makes of a score: what is known of a head, of a row, and of each key.

The statements of a score function are printed once for a tile where they depend on the head alone
(the slope of ALiBi), once for each of a thread's rows where they depend on the row as well, and for
each score otherwise, around it in registers. Positions are those of the tile, so that nothing of
them is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.statements import StatementPrinter
from kernelwright.tools.codegen.ir import Loop, Stmt
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand
from kernelwright.tools.codegen.ir.loops import (
    axis_names,
    operands,
    statements_behind,
    varies_along,
)
from kernelwright.tools.codegen.ir.scores import ScoreFunction
from kernelwright.tools.types import DType


@dataclass(frozen=True)
class Kept:
    """A value that is computed before scores: its type, its name then, and where it is made."""

    type: str
    name: str
    value: str


@dataclass(frozen=True)
class PrintedScores:
    """Lines that stand in a tile, for one of its rows, and for one score.

    Lines of a tile know `batch`, those of a row `row` besides, and those of a score `column` and
    `row_of`, the number of the row among the thread's; a score's value is `value`, `score` before.
    `kept` are values of a row. `alone` are the lines of one score by itself, with all of these.
    """

    tile: tuple[str, ...]
    row: tuple[str, ...]
    kept: tuple[Kept, ...]
    element: tuple[str, ...]
    value: str
    alone: tuple[str, ...]


def printed_scores(scores: ScoreFunction, dtype: DType) -> PrintedScores:
    """What a skeleton says of a score function, of queries and keys of that type."""
    # Products of half types were rounded to them, and a softmax asks for no digits of small scores.
    printer = _Printer(scores, is_quick=dtype is not DType.FLOAT32 and scores.is_softmax)
    batch, rows, _ = ({axis.name for axis in side} for side in scores.axes())
    varies = varies_along(scores.loop)
    product = scores.score.name

    def within(axes: set[str]) -> Callable[[Stmt], bool]:
        known = _of_scores(scores.loop, product)
        return lambda stmt: stmt.name not in known and varies[stmt.name] <= axes

    of_head = _edge(scores.loop, within(batch))
    head = {stmt.name: f"of_head_{stmt.name}" for stmt in of_head}
    of_row = [s for s in _edge(scores.loop, within(batch | rows)) if s.name not in head]
    row = {stmt.name: f"of_row_{stmt.name}[row_of]" for stmt in of_row}
    return PrintedScores(
        tile=printer.kept_lines(of_head, head),
        row=printer.lines([stmt.name for stmt in of_row], head),
        kept=tuple(printer.kept(stmt, f"of_row_{stmt.name}") for stmt in of_row),
        element=printer.lines([scores.value], {**head, **row}, "score"),
        value=f"v_{scores.value}",
        alone=printer.lines([scores.value], {}, "score"),
    )


class _Printer:
    """Prints parts of a score function, as the epilogue of a product whose sum is the score."""

    def __init__(self, scores: ScoreFunction, *, is_quick: bool) -> None:
        self._scores, self._is_quick = scores, is_quick
        self._known = {stmt.name: stmt for stmt in scores.loop.body}
        self._statements = StatementPrinter(scores.loop)

    def lines(
        self, wanted: Sequence[str], known: Mapping[str, str], total: str = ""
    ) -> tuple[str, ...]:
        """Lines that compute some values, given others."""
        if not wanted:
            return ()
        axes = axis_names(self._scores.loop)
        behind = statements_behind(
            wanted,
            self._known,
            lambda stmt: operands(stmt, axes),
            opened=lambda stmt: stmt.name not in known,
        )
        body = tuple(stmt for stmt in self._scores.loop.body if stmt.name in behind)
        printer = ElementPrinter(self._scores.loop, self._product(body))
        lines = printer.part(total, wanted, (), known).lines()
        if not self._is_quick:
            return lines
        return tuple(line.replace("kw::tanh(", "kw::quick_tanh(") for line in lines)

    def _product(self, body: Sequence[Stmt]) -> Contraction:
        scores = self._scores
        batch, rows, columns = scores.axes()
        nothing = Operand(value="", body=())
        return Contraction(
            batch=batch, rows=rows, columns=columns, depth=(), left=nothing, right=nothing,
            total=scores.score.name, dtype=DType.FLOAT32, precision=DType.FLOAT32,
            epilogue=tuple(stmt for stmt in body if stmt.name != scores.score.name),
            stores=scores.loop.stores,
        )  # fmt: skip

    def kept(self, stmt: Stmt, name: str) -> Kept:
        """A value under a name."""
        return Kept(self._statements.type_of(stmt), name, f"v_{stmt.name}")

    def kept_lines(self, wanted: Sequence[Stmt], names: Mapping[str, str]) -> tuple[str, ...]:
        """Values of a head under their names; what they are computed from stays inside."""
        if not wanted:
            return ()
        made = [self.kept(stmt, names[stmt.name]) for stmt in wanted]
        inside = [*self.lines([stmt.name for stmt in wanted], {})]
        inside += [f"{one.name} = {one.value};" for one in made]
        declared = [f"{one.type} {one.name};" for one in made]
        return (*declared, "{", *(f"    {line}" for line in inside), "}")


def _of_scores(loop: Loop, product: str) -> set[str]:
    """The statements that depend on the score."""
    found, axes = {product}, axis_names(loop)
    for stmt in loop.body:
        if found & set(operands(stmt, axes)):
            found.add(stmt.name)
    return found


def _edge(loop: Loop, known: Callable[[Stmt], bool]) -> list[Stmt]:
    """The known statements that others read, but for constants and positions."""
    axes = axis_names(loop)
    read = {name for stmt in loop.body if not known(stmt) for name in operands(stmt, axes)}
    plain = ("const", "index")
    return [s for s in loop.body if known(s) and s.name in read and s.op not in plain]
