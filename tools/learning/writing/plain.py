"""Plain kernels: a loop of the intermediate form as the shortest text that is still fair.

The playbook's own kernels are templates of a hundred lines. A small model cannot write those, and
learns more from a kernel that fits a page: index arithmetic in the open, one reduction after the
other, no tunables. Nor can it multiply in its head: sizes are written as products of the sizes that
the question names, a constant stands where it is used, and values are numbered as they appear. How
rows are spread over threads is the `Way`, and the ways of one loop differ in speed, which is what
preferences are made of. Not covered: loops whose reductions the dialects lack, and running values
along a row that several threads share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from math import prod
from typing import Literal

from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store
from kernelwright.tools.codegen.ir.loops import (
    axis_names,
    operands,
    results,
    statements_behind,
    walks_before,
)
from kernelwright.tools.learning.contract.launches import Launched
from kernelwright.tools.learning.writing.dialects import (
    CppDialect,
    CudaDialect,
    Dialect,
    UnwritableError,
)
from kernelwright.tools.learning.writing.sizes import Sizes
from kernelwright.tools.types import LanguageName, Value

Group = Literal["thread", "warp", "block", "host", "threads"]
DIALECTS: dict[LanguageName, Dialect] = {"cuda": CudaDialect(), "cpp": CppDialect()}


class Way(Value):
    """Who does a row: one thread, a warp or a block of so many threads; on a CPU one or all."""

    group: Group
    threads: int = 1

    @property
    def name(self) -> str:
        """Short, for provenance."""
        return f"{self.group}{self.threads}" if self.threads > 1 else self.group


class PlainKernel(Value):
    """The text of one kernel with its launch; arguments are still the loop's own buffers."""

    source: str
    launch: Launched


def ways(loop: Loop, language: LanguageName) -> tuple[Way, ...]:
    """The ways that a loop can be done in, without looking at which is fast."""
    if language == "cpp":
        return (Way(group="threads"), Way(group="host"))
    alone = tuple(Way(group="thread", threads=size) for size in (256, 128, 64, 32))
    shares = bool(loop.inner) and not any(stmt.op == "scan" for stmt in loop.body)
    if not shares:
        return alone
    blocks = tuple(Way(group="block", threads=size) for size in (256, 128, 32, 1024))
    return (*blocks, Way(group="warp", threads=256), Way(group="warp", threads=64), *alone)


def plain_kernel(
    loop: Loop, way: Way, name: str, language: LanguageName, sizes: Sizes | None = None
) -> PlainKernel:
    """Print a loop.

    Args:
        loop: What to compute.
        way: One of `ways`.
        name: The kernel's.
        language: `cuda` or `cpp`.
        sizes: How sizes are written; None writes numbers.

    Raises:
        UnwritableError: There is no plain kernel for it.
    """
    return _Printer(loop, way, name, DIALECTS[language], sizes or Sizes(())).printed()


class _Printer:
    def __init__(self, loop: Loop, way: Way, name: str, dialect: Dialect, sizes: Sizes) -> None:
        loop = _without_moments(loop) if dialect.language == "cpp" else loop
        if loop.rows * max(loop.columns, 1) >= 2**31:
            raise UnwritableError("it has more elements than an int counts")
        self._loop, self._way, self._name, self._dialect = loop, way, name, dialect
        self._sizes = sizes
        self._axes, self._levels = axis_names(loop), loop.levels()
        self._walks = walks_before(loop)
        self._behind = {made: stmt for stmt in loop.body for made in results(stmt)}
        reads = [stmt.access.buffer for stmt in loop.body if stmt.access is not None]
        self._read = tuple(dict.fromkeys(reads))
        self._written = tuple(dict.fromkeys(store.access.buffer for store in loop.stores))
        if set(self._read) & set(self._written):
            raise UnwritableError("it updates what it reads")
        fed = {stmt.args[0] for stmt in loop.body if stmt.op == "reduce"}
        self._constants = {
            stmt.name: self._constant(stmt)
            for stmt in loop.body
            if stmt.op == "const" and stmt.name not in fed  # which is taken by its address
        }

    def _constant(self, stmt: Stmt) -> str:
        text = self._dialect.expression(stmt, self._behind)
        return self._sizes.constant(stmt.value or 0, text)

    def printed(self) -> PlainKernel:
        lines = _numbered([*self._body()])
        body = "\n".join(f"    {line}" if line else "" for line in lines)
        source = f"{self._signature()} {{\n{body}\n}}\n"
        arguments = (*self._read, *self._written)
        return PlainKernel(
            source=source,
            launch=Launched(kernel=self._name, arguments=arguments, geometry=self._geometry()),
        )

    def _geometry(self) -> tuple[tuple[str, str], ...]:
        way, rows = self._way, self._sizes.text(self._loop.rows).replace(" ", "")
        if self._dialect.language == "cpp":
            return ()
        per_block = {"thread": way.threads, "warp": way.threads // 32, "block": 1}[way.group]
        grid = rows if per_block == 1 else f"{rows}/{per_block}"
        return ("grid", grid), ("block", str(way.threads))

    def _signature(self) -> str:
        kinds = {a.buffer: self._dialect.stored(a.dtype) for a in _accesses(self._loop)}
        given = [f"const {kinds[name]}* {name}" for name in self._read]
        given += [f"{kinds[name]}* {name}" for name in self._written]
        word = "__global__ " if self._dialect.language == "cuda" else ""
        return f'extern "C" {word}void {self._name}({", ".join(given)})'

    def _body(self) -> Iterator[str]:
        yield from self._row()
        if self._dialect.language == "cpp":
            yield from (f"    {line}" for line in self._rest())
            yield "}"
        else:
            yield from self._rest()

    def _row(self) -> Iterator[str]:
        """The lines that say which row this is."""
        way, rows = self._way, self._sizes.text(self._loop.rows)
        if self._dialect.language == "cpp":
            if way.group == "threads":
                yield "#pragma omp parallel for"
            yield f"for (int row = 0; row < {rows}; ++row) {{"
            return
        if way.group == "block":
            yield "const int row = blockIdx.x, lane = threadIdx.x;"
            return
        per_row = "" if way.group == "thread" else " / 32"
        yield f"const int row = (blockIdx.x * {way.threads} + threadIdx.x){per_row};"
        if way.group == "warp":
            yield "const int lane = threadIdx.x % 32;"
        # Where blocks fit the rows it does nothing, but whether they do would have to be computed.
        yield f"if (row >= {rows}) return;"

    def _rest(self) -> Iterator[str]:
        yield from self._decoded("row", self._loop.outer)
        last = max(self._walks.values(), default=0)
        for walk in range(last + 1):
            for stmt in self._loop.body:
                if self._is_row(stmt) and self._walks[stmt.name] == walk:
                    yield from self._line(stmt)
            reduced = [stmt for stmt in self._loop.body if self._reduced_in(stmt, walk)]
            if reduced:
                yield from self._walk(reduced, walk)
        yield from self._stores()

    def _is_row(self, stmt: Stmt) -> bool:
        return stmt.op != "reduce" and self._levels[stmt.name] == "row"

    def _reduced_in(self, stmt: Stmt, walk: int) -> bool:
        return stmt.op == "reduce" and self._walks[stmt.name] == walk + 1

    def _walk(self, reduced: Sequence[Stmt], walk: int) -> Iterator[str]:
        """One walk over the row that takes reductions in."""
        for stmt in reduced:
            yield self._dialect.begin(stmt)
        feeds = [self._dialect.feed(stmt) for stmt in reduced]
        yield from self._over_the_row([stmt.args[0] for stmt in reduced], feeds)
        joins = {
            "warp": "kw::warp_reduce<32>",
            "block": f"kw::block_reduce<{self._way.threads}>",
        }
        shared_by = joins.get(self._way.group, "")
        for number, stmt in enumerate(reduced):
            if self._way.group == "block" and (walk or number) and self._way.threads > 32:
                yield "__syncthreads();"
            yield from self._dialect.finish(stmt, self._loop.columns, shared_by)

    def _stores(self) -> Iterator[str]:
        loop = self._loop
        along = [store for store in loop.stores if self._varies(store)]
        once = [self._store(store) for store in loop.stores if store not in along]
        if along:
            lines = [self._store(store) for store in along]
            yield from self._over_the_row([store.value for store in along], lines)
        guarded = bool(once) and self._way.group in ("warp", "block")
        if guarded:
            yield "if (lane == 0) {"
        yield from (f"    {line}" if guarded else line for line in once)
        if guarded:
            yield "}"

    def _varies(self, store: Store) -> bool:
        inner = {axis.name for axis in self._loop.inner}
        named = {stride.by for stride in store.access.strides if stride.step}
        return bool(named & inner) or any(
            self._levels.get(name) == "element" for name in (store.value, *named)
        )

    def _over_the_row(self, wanted: Sequence[str], ends: Sequence[str]) -> Iterator[str]:
        """A loop over the row's elements that computes values and then does something."""
        columns, inner = self._sizes.text(self._loop.columns), self._loop.inner
        place = inner[0].name if len(inner) == 1 else "column"
        step = {"warp": 32, "block": self._way.threads}.get(self._way.group, 1)
        first = "lane" if step > 1 else "0"
        forward = f"{place} += {step}" if step > 1 else f"++{place}"
        names = self._needed(wanted)
        scans = [stmt for stmt in self._loop.body if stmt.name in names and stmt.op == "scan"]
        for stmt in scans:
            yield f"{self._dialect.type_of(stmt)} {stmt.name}_run = {_start(stmt)};"
        yield f"for (int {place} = {first}; {place} < {columns}; {forward}) {{"
        if len(inner) > 1:
            yield from (f"    {line}" for line in self._decoded("column", inner))
        for stmt in self._loop.body:
            if stmt.name in names:
                yield from (f"    {line}" for line in self._line(stmt))
        yield from (f"    {line}" for line in ends)
        yield "}"

    def _needed(self, wanted: Sequence[str]) -> set[str]:
        """The element-level statements behind some values."""

        def is_element(stmt: Stmt) -> bool:
            return self._levels[stmt.name] == "element" and stmt.op != "reduce"

        def read(stmt: Stmt) -> Sequence[str]:
            return operands(stmt, self._axes)

        return statements_behind(wanted, self._behind, read, taken=is_element)

    def _line(self, stmt: Stmt) -> Iterator[str]:
        """The line that makes a value known; none for a constant, which stands where it is used."""
        kind = self._dialect.type_of(stmt)
        if stmt.op == "scan":
            yield f"const {kind} {stmt.name} = {stmt.name}_run = {_run(stmt)};"
        elif stmt.name not in self._constants:
            yield f"const {kind} {stmt.name} = {self._with_constants(self._value(stmt))};"

    def _with_constants(self, text: str) -> str:
        return re.sub(r"\bv\d+\b", lambda m: self._constants.get(m[0], m[0]), text)

    def _value(self, stmt: Stmt) -> str:
        if stmt.op == "index":
            return stmt.args[0]
        if stmt.op != "load":
            return self._dialect.expression(stmt, self._behind)
        assert stmt.access is not None
        read = self._dialect.load(self._place(stmt.access), stmt.access.dtype)
        return f"{stmt.args[0]} ? {read} : 0" if stmt.args else read

    def _store(self, store: Store) -> str:
        value = self._dialect.store(store.value, self._behind[store.value], store.access.dtype)
        return f"{self._place(store.access)} = {self._with_constants(value)};"

    def _place(self, access: Access) -> str:
        terms = [
            stride.by if stride.step == 1 else f"{self._sizes.text(stride.step)} * {stride.by}"
            for stride in access.strides
            if stride.step
        ]
        if access.offset or not terms:
            terms.append(str(access.offset))
        return f"{access.buffer}[{' + '.join(terms)}]".replace("+ -", "- ")

    def _decoded(self, place: str, axes: Sequence[Axis]) -> Iterator[str]:
        """The positions along axes of a linear place."""
        if not axes or [axis.name for axis in axes] == [place]:
            return
        parts = []
        for at, axis in enumerate(axes):
            below = prod(other.size for other in axes[at + 1 :])
            text = place if below == 1 else f"{place} / {self._sizes.factor(below)}"
            parts.append(f"{axis.name} = {text if at == 0 else f'{text} % {axis.size}'}")
        yield f"const int {', '.join(parts)};"


def _accesses(loop: Loop) -> Iterator[Access]:
    yield from (stmt.access for stmt in loop.body if stmt.access is not None)
    yield from (store.access for store in loop.stores)


def _numbered(lines: Sequence[str]) -> list[str]:
    """The lines with values called v0, v1, ... in the order in which they appear."""
    found: dict[str, str] = {}

    def called(match: re.Match[str]) -> str:
        return found.setdefault(match[0], f"v{len(found)}")

    return [re.sub(r"\bv\d+(?=\b|_)", called, line) for line in lines]


def _start(stmt: Stmt) -> str:
    starts = {"sum": "0", "prod": "1"}
    if stmt.scan not in starts:
        raise UnwritableError(f"a running {stmt.scan} has no plain kernel")
    return starts[stmt.scan]


def _run(stmt: Stmt) -> str:
    return f"{stmt.name}_run {'+' if stmt.scan == 'sum' else '*'} {stmt.args[0]}"


def _without_moments(loop: Loop) -> Loop:
    """The loop with mean and squared distances in two walks, by sums alone."""
    body: list[Stmt] = []
    numbers = count()
    for stmt in loop.body:
        if stmt.reduce is not ReduceKind.MOMENTS:
            body.append(stmt)
            continue

        def made(op: str, *args: str, stmt: Stmt = stmt, **more: object) -> Stmt:
            name = f"{stmt.name}_s{next(numbers)}"
            fields = {"name": name, "op": op, "dtype": stmt.dtype, "args": args, **more}
            return Stmt.model_validate(fields)

        total = made("reduce", stmt.args[0], reduce=ReduceKind.SUM)
        size = made("const", value=float(loop.columns))
        mean = made("div", total.name, size.name).model_copy(update={"name": stmt.name})
        gap = made("sub", stmt.args[0], stmt.name)
        square = made("square", gap.name)
        m2 = made("reduce", square.name, reduce=ReduceKind.SUM)
        m2 = m2.model_copy(update={"name": f"{stmt.name}_m2"})
        body += [total, size, mean, gap, square, m2]
    return loop.model_copy(update={"body": tuple(body)})
