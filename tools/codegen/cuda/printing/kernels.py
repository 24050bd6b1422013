"""The code of each pass, in the pieces that skeletons put into their loops, and passes as kernels.

Strategies that run one kernel a pass have their passes cut here. A pass that reduces leaves
partials in memory, and a small kernel behind it joins those of each row: nothing has to be zero
before the first kernel, as a count of blocks would, and the host issues it while the pass runs.
What comes after reads one finished partial a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from kernelwright.tools.codegen.cuda.printing.expressions import Argument, c_type, value_type
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace
from kernelwright.tools.codegen.cuda.printing.printing import Printer, Stream
from kernelwright.tools.codegen.cuda.printing.schedule import (
    Kept,
    Member,
    Pass,
    Schedule,
    struct_bytes,
    uses,
)
from kernelwright.tools.codegen.ir import Stmt


@dataclass(frozen=True)
class Load:
    """A vector a thread reads: from `address`, or, when it was kept, from where it stays."""

    raw: str
    type: str
    address: str
    kept: bool
    keep: bool
    last: bool


@dataclass(frozen=True)
class PassArgument:
    """What a reduction takes at one element; whether a thread's positions rise within a batch."""

    member: str
    array: str
    type: str
    value: str
    position: str = ""
    position_type: str = ""
    rises: bool = False


@dataclass(frozen=True)
class VectorStore:
    """A vector a thread writes; `element` is the place of neighbour `k` in it."""

    name: str
    type: str
    address: str
    value: str
    element: str


@dataclass(frozen=True)
class PassCode:
    """One pass as text."""

    number: int
    decode: tuple[str, ...]
    loads: tuple[Load, ...]
    lines: tuple[str, ...]
    computed_keeps: tuple[tuple[str, str, str], ...]
    arguments: tuple[PassArgument, ...]
    stores: tuple[VectorStore, ...]
    streams: tuple[Stream, ...]
    members: tuple[Member, ...]
    carries: tuple[tuple[str, str, str], ...]
    part: str
    part_bytes: int
    after: tuple[str, ...]
    row_stores: tuple[str, ...]

    @property
    def partial(self) -> str:
        """The variable that holds the pass's partial."""
        return f"part{self.number}"


class Body:
    """Prints passes.

    Args:
        printer: Prints single statements.
        schedule: The passes.
        prefix: Of struct names.
        kept: What stays on chip after the first pass.
        preloaded: The kept values are on chip before the first pass.
    """

    def __init__(
        self,
        printer: Printer,
        schedule: Schedule,
        prefix: str,
        kept: Sequence[Kept] = (),
        *,
        preloaded: bool = False,
    ):
        self.printer = printer
        self.schedule = schedule
        self.kept = tuple(kept)
        self._prefix = prefix
        self._preloaded = preloaded
        self._names = {one.stmt.name for one in kept}

    @property
    def before(self) -> tuple[str, ...]:
        """Row-level lines that depend on no pass."""
        return tuple(self.row_lines(self.schedule.before))

    @property
    def before_stores(self) -> tuple[str, ...]:
        """Row-level stores that depend on no pass."""
        return tuple(self.printer.store_one(at) for at in self.schedule.before_stores)

    def passes(self) -> tuple[PassCode, ...]:
        """Every pass."""
        return tuple(self._pass(one) for one in self.schedule.passes)

    def row_lines(self, stmts: Sequence[Stmt]) -> list[str]:
        """Row-level statements; in column mode each is an array over the thread's rows."""
        lines = []
        for stmt in stmts:
            text, kind = self.printer.statement(stmt), value_type(stmt.dtype)
            lines += self.row_value(f"v_{stmt.name}", kind, text)
        return lines

    def row_value(self, name: str, kind: str, text: str) -> list[str]:
        """The definition of one row-level value."""
        if not self.printer.columns:
            return [f"const {kind} {name} = {text};"]
        loop = "for (int k = 0; k < VECTOR; ++k)"
        return [f"{kind} {name}[VECTOR];", "#pragma unroll", f"{loop} {name}[k] = {text};"]

    def results(self, one: Pass, partial: str) -> list[str]:
        """The values of a pass's reductions, from its complete partial."""
        where = f"{partial}[k]" if self.printer.columns else partial
        lines = []
        for member in self.printer.members(one):
            kind = value_type(member.stmt.dtype)
            for name, text in member.results():
                lines += self.row_value(name, kind, f"{text.format(where)}")
        return lines

    def _pass(self, one: Pass) -> PassCode:
        return self.pieces(one, self._statements(one))

    def pieces(self, one: Pass, element: Sequence[Stmt]) -> PassCode:
        """The code of a pass that evaluates these element-level statements."""
        printer = self.printer
        vector = [s for s in element if s.op == "load" and s.name in printer.vectors.loads]
        streamed = [s.name for s in element if s.op == "load" and not self._was_kept(s, one)]
        members = printer.members(one)
        wide = [at for at in one.stores if at in printer.vectors.stores]
        places = [printer.nest.places[s.name] for s in element if s.name in printer.nest.places]
        places += [printer.nest.places[m.stmt.name] for m in members if m.position_type]
        places += [printer.nest.targets[at] for at in one.stores]
        return PassCode(
            number=one.number,
            decode=tuple(printer.walk_decode(places)),
            loads=tuple(self._loads(one, vector)),
            lines=(
                *printer.lane_decode(places),
                *self.element_lines(one, element),
                *self.scattered_stores(one),
            ),
            computed_keeps=tuple(self._computed_keeps(one)),
            arguments=tuple(self._argument(m) for m in members),
            stores=tuple(self._store(at) for at in wide),
            streams=tuple(printer.streams(streamed, one.stores)),
            members=members,
            carries=tuple(
                (f"carry_{stmt.name}", printer.running(stmt).type, printer.running(stmt).op)
                for stmt in element
                if stmt.op == "scan"
            ),
            part=f"{self._prefix}_part{one.number}" if members else "",
            part_bytes=struct_bytes(members) if members else 0,
            after=(*self.results(one, f"part{one.number}"), *self.row_lines(one.after)),
            row_stores=tuple(printer.store_one(at) for at in one.row_stores),
        )

    def _was_kept(self, stmt: Stmt, one: Pass) -> bool:
        return (one.number > 1 or self._preloaded) and stmt.name in self._names

    def _statements(self, one: Pass) -> list[Stmt]:
        """What a pass evaluates: after the first one, nothing behind a kept value."""
        nest = self.printer.nest
        waiting = [stmt.args[0] for stmt in one.reductions]
        for at in one.stores:
            waiting += [nest.loop.stores[at].value, *(n for n, _ in nest.targets[at].gathers)]
        by_name = {stmt.name: stmt for stmt in one.element}
        found: set[str] = set()
        while waiting:
            stmt = by_name.get(waiting.pop())
            if stmt is None or stmt.name in found:
                continue
            found.add(stmt.name)
            if not self._was_kept(stmt, one):
                waiting += uses(stmt, nest)
        return [stmt for stmt in one.element if stmt.name in found]

    def _loads(self, one: Pass, vector: Sequence[Stmt]) -> list[Load]:
        loads = []
        for stmt in vector:
            place = self.printer.nest.places[stmt.name]
            kept = self._was_kept(stmt, one)
            loads.append(
                Load(
                    raw=f"raw_{stmt.name}",
                    type=c_type(place.dtype),
                    address=self._address(f"at_{stmt.name}", place),
                    kept=kept,
                    keep=not kept and stmt.name in self._names,
                    last=self._is_last_read(stmt, one),
                )
            )
        if one.number > 1:
            loads += [
                Load(f"raw_{k.stmt.name}", k.type, "", kept=True, keep=False, last=True)
                for k in self.kept
                if not k.raw and k.stmt.name in {s.name for s in self._statements(one)}
            ]
        return loads

    def _is_last_read(self, stmt: Stmt, one: Pass) -> bool:
        """Whether memory is not touched again: no reuse along an axis, in no later pass."""
        nest, place = self.printer.nest, self.printer.nest.places[stmt.name]
        reused = nest.span(place) < nest.rows * nest.columns
        later = self.schedule.passes[one.number :]
        again = any(stmt in self._statements(p) and not self._was_kept(stmt, p) for p in later)
        return not reused and not again

    def _address(self, pointer: str, place: AxisPlace) -> str:
        printer = self.printer
        falling = " - (VECTOR - 1)" if printer.neighbour(place) == -1 else ""
        offset = printer.walked_offset(place)
        return f"{pointer} + {offset}{falling}{printer.gathered(place)}"

    def _element(self, place: AxisPlace) -> str:
        return "VECTOR - 1 - k" if self.printer.neighbour(place) == -1 else "k"

    def scattered_stores(self, one: Pass) -> list[str]:
        """The stores of a pass that go element by element."""
        printer = self.printer
        return [printer.store_one(at) for at in one.stores if at not in printer.vectors.stores]

    def element_lines(self, one: Pass, element: Sequence[Stmt]) -> list[str]:
        """Definitions of element-level values, for neighbour `k` of vector `u`."""
        printer, lines = self.printer, []
        computed = {k.stmt.name for k in self.kept if not k.raw}
        for stmt in element:
            kind, name = value_type(stmt.dtype), f"v_{stmt.name}"
            if stmt.op == "scan":
                # Only where a thread walks its row in order.
                running = printer.running(stmt)
                carried = f"carry_{stmt.name} = {running.op}::combine"
                lines.append(f"{carried}(carry_{stmt.name}, {running.value});")
                lines.append(f"const {kind} {name} = {running.result(f'carry_{stmt.name}')};")
                continue
            if self._was_kept(stmt, one) and stmt.name in computed:
                text = f"raw_{stmt.name}[u][k]"
            elif stmt.name in printer.vectors.loads:
                at = self._element(printer.nest.places[stmt.name])
                text = printer.statement(stmt, raw=f"raw_{stmt.name}[u][{at}]")
            else:
                text = printer.statement(stmt)
            lines.append(f"const {kind} {name} = {text};")
        return lines

    def _computed_keeps(self, one: Pass) -> list[tuple[str, str, str]]:
        """(vector, value, element type) of the values made in the first pass that stay."""
        if one.number != 1:
            return []
        kept = [k for k in self.kept if not k.raw]
        return [(f"raw_{k.stmt.name}", f"v_{k.stmt.name}", k.type) for k in kept]

    def _argument(self, member: Member) -> PassArgument:
        return PassArgument(
            member=member.name,
            array=f"take_{member.stmt.name}",
            type=value_type(member.argument),
            value=self.printer.argument(member),
            position=self.printer.position(member.stmt.name) if member.position_type else "",
            position_type=member.position_type,
            rises=bool(member.position_type) and self.printer.rises(member.stmt.name),
        )

    def _store(self, at: int) -> VectorStore:
        place = self.printer.nest.targets[at]
        return VectorStore(
            name=f"out_{at}",
            type=c_type(place.dtype),
            address=self._address(f"to_{at}", place),
            value=self.printer.stored(at),
            element=self._element(place),
        )


@dataclass(frozen=True)
class Kernel:
    """A pass as a kernel, or what joins its partials and stores what it makes of each row.

    `earlier` are the passes before whose results it uses.
    """

    name: str
    code: PassCode
    earlier: tuple[PassCode, ...]
    joins: bool
    parameters: str = "@parameters@"


def kernels_of(body: Body, prefix: str) -> tuple[Kernel, ...]:
    """A kernel for each pass, and one behind each that leaves partials."""
    codes, kernels = body.passes(), []
    for one, code in zip(body.schedule.passes, codes, strict=True):
        before = codes[: one.number - 1]
        earlier = _earlier(body, before, _streamed(body, one))
        kernels.append(Kernel(f"{prefix}_pass{one.number}", code, earlier, joins=False))
        if one.reductions:
            needed = _stored(body, one.row_stores)
            earlier = _earlier(body, before, needed)
            joined = _only(body, one, code, _behind(body, needed))
            kernels.append(Kernel(f"{prefix}_join{one.number}", joined, earlier, joins=True))
    return tuple(kernels)


def partial_arguments(kernels: Sequence[Kernel], prefix: str) -> list[Argument]:
    """A parameter for the partials of each pass."""
    return [
        Argument(
            f"parts{kernel.code.number}",
            f"long long* parts{kernel.code.number}",
            f"{prefix}_parts{kernel.code.number}",
        )
        for kernel in kernels
        if kernel.joins
    ]


def allocations(kernels: Sequence[Kernel], prefix: str, rows: int, splits: str) -> list[str]:
    """Plan lines for the partials of each pass: `splits` a row, and the joined one."""
    count = f"{rows} * ({splits} + 1)"
    return [
        f"{prefix}_parts{kernel.code.number} = "
        f'empty((ceil_div({count} * {kernel.code.part_bytes}, 8),), dtype="int64")'
        for kernel in kernels
        if kernel.joins
    ]


def _streamed(body: Body, one: Pass) -> list[str]:
    """What a pass uses of rows: while it walks, and the first one to store what needs no pass."""
    nest = body.printer.nest
    walked = [name for stmt in one.element for name in uses(stmt, nest)]
    walked += [stmt.args[0] for stmt in one.reductions]
    first = body.schedule.before_stores if one.number == 1 else ()
    return [*walked, *_stored(body, [*one.stores, *first])]


def _stored(body: Body, stores: Iterable[int]) -> list[str]:
    nest = body.printer.nest
    return [
        name
        for at in stores
        for name in (nest.loop.stores[at].value, *(n for n, _ in nest.targets[at].gathers))
    ]


def _earlier(body: Body, before: Sequence[PassCode], names: Iterable[str]) -> tuple[PassCode, ...]:
    """Of the passes before, those that such values come from, with no other results."""
    needed = _behind(body, names)
    return tuple(
        _only(body, one, code, needed)
        for one, code in zip(body.schedule.passes, before, strict=False)
        if any(stmt.name in needed for stmt in (*one.reductions, *one.after))
    )


def _behind(body: Body, names: Iterable[str]) -> set[str]:
    """These values and what they are made of, as far as the next reduction."""
    nest, waiting, found = body.printer.nest, list(names), set[str]()
    while waiting:
        stmt = nest.loop.stmt(waiting.pop())
        if stmt.name in found:
            continue
        found.add(stmt.name)
        # What is behind a reduction belongs to the pass that made its partials.
        if stmt.op != "reduce":
            waiting += uses(stmt, nest)
    return found


def _only(body: Body, one: Pass, code: PassCode, needed: Collection[str]) -> PassCode:
    """The pass with only those row-level lines afterwards that are needed."""
    after = [stmt for stmt in one.after if stmt.name in needed]
    results = body.results(one, code.partial) if code.part else []
    return replace(code, after=(*results, *body.row_lines(after)))
