"""What follows a product becomes its epilogue, where nests were too unlike to be merged.

Fusion pairs axes of one size. A transposed convolution by steps makes whole blocks of outputs, and
whoever reads it reads fewer: the reader's positions are sums over the product's axes, and those
beyond its own are not stored. A reader that reduces over output channels, or over the windows that
blocks of outputs are, reduces where results are made: its reduction becomes a `fold`, which only
kernels whose tiles have all of it can print. Either way the tensor between the two is never stored.

A position along a reader's axis is known by the steps of its read: the product's axes whose steps
lie between those of this axis and of the next larger one make it up.

Not here: tensors with several readers, reads at an offset or at several places, and reductions
that keep more than one number (`moments`) or a position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from kernelwright.tools.codegen.ir import (
    Access,
    Axis,
    Loop,
    PlanLine,
    Program,
    ReduceKind,
    Stmt,
    Store,
    Stride,
)
from kernelwright.tools.codegen.ir.contraction import PRODUCT, contraction_of
from kernelwright.tools.codegen.ir.loops import without_unread
from kernelwright.tools.types import DType

# Statements of one loop: what follows is computed with few registers beside a tile's sums.
_MOST_STATEMENTS = 240
_FOLDED = frozenset({ReduceKind.SUM, ReduceKind.PROD, ReduceKind.MAX, ReduceKind.MIN})

Takes = Callable[[Loop], bool]


def with_epilogues(program: Program, takes: Takes, *, folds: bool = False) -> Program:
    """The program with readers of products taken into them.

    Args:
        program: What lowering made, its products as loops.
        takes: Whether there are kernels for a loop.
        folds: Whether readers that reduce are taken as well.

    Returns:
        The same program where there was nothing to take.
    """
    refused: set[str] = set()
    while (pair := _next(program, refused)) is not None:
        made, reader = pair
        found = joined(made, reader)
        if found is None or (_folds(found) and not folds) or not takes(found):
            refused.add(made.name)
            continue
        steps = (found if step is reader else step for step in program.steps if step is not made)
        program = program.model_copy(update={"steps": tuple(steps)})
        program = without_unused(program)
    return program


def _next(program: Program, refused: set[str]) -> tuple[Loop, Loop] | None:
    """A product, and the one loop that reads what it makes."""
    readers = _readers(program)
    for made in program.loops:
        if made.family != PRODUCT or made.name in refused or len(made.stores) != 1:
            continue
        buffer = made.stores[0].access.buffer
        read = [step for step in readers.get(buffer, ()) if step is not made]
        alone = len(read) == 1 and program.buffer(buffer).role == "temporary"
        if alone and isinstance(read[0], Loop) and buffer not in program.returns:
            return made, read[0]
    return None


def _readers(program: Program) -> dict[str, list[Loop | PlanLine]]:
    """The steps that read each buffer, each once and in order."""
    found: dict[str, list[Loop | PlanLine]] = {}
    for step in program.steps:
        for buffer in reads(step):
            found.setdefault(buffer, []).append(step)
    return found


def reads(step: Loop | PlanLine) -> frozenset[str]:
    """The buffers that a step reads."""
    if isinstance(step, PlanLine):
        return frozenset(step.uses)
    return frozenset(stmt.access.buffer for stmt in step.body if stmt.access is not None)


def without_unused(program: Program) -> Program:
    """The program without tensors that nothing makes any more."""
    known = {*program.returns, *program.parameters}
    for step in program.steps:
        if isinstance(step, PlanLine):
            known |= {*step.makes, *step.uses}
        else:
            known |= {store.access.buffer for store in step.stores}
            known |= {stmt.access.buffer for stmt in step.body if stmt.access is not None}
    kept = tuple(one for one in program.buffers if one.name in known or one.role != "temporary")
    return program.model_copy(update={"buffers": kept})


def _folds(loop: Loop) -> bool:
    return any(stmt.op == "fold" for stmt in loop.body)


def joined(made: Loop, reader: Loop) -> Loop | None:
    """One loop over the product's axes that does the work of both; None where none can."""
    (store,) = made.stores
    loads = [s for s in reader.body if s.access and s.access.buffer == store.access.buffer]
    first = loads[0].access
    if first is None or store.when or any(load.access != first or load.args for load in loads):
        return None
    if contraction_of(made) is None or len(made.body) + len(reader.body) > _MOST_STATEMENTS:
        return None
    if any(load.dtype is not made.stmt(store.value).dtype for load in loads):
        return None
    if any(s.op in ("scan", "fold") or (s.reduce and s.reduce not in _FOLDED) for s in reader.body):
        return None
    made = split_at(made, {one.step for one in first.strides})
    places = reader_places(made, reader, made.stores[0].access, first)
    return None if places is None else Joining(made, reader, places, store.value).loop()


def split_at(made: Loop, steps: set[int]) -> Loop:
    """The product with its axes split where a reader's axes begin: neighbours may be merged."""
    while True:
        found = (
            (axis, step // mine)
            for axis in made.outer
            for step in sorted(steps)
            if (mine := made.stores[0].access.step(axis.name)) > 0
            and mine < step < mine * axis.size
            and step % mine == 0
            and axis.size % (step // mine) == 0
        )
        pair = next(found, None)
        if pair is None:
            return made
        made = _split(made, *pair)


def _split(loop: Loop, axis: Axis, low: int) -> Loop:
    """The loop with an axis as two, `low` positions of the second for one of the first."""
    known = {one.name for one in (*loop.outer, *loop.inner)}
    high = next(name for at in range(len(known) + 1) if (name := f"{axis.name}_{at}") not in known)

    def moved(access: Access) -> Access:
        step = access.step(axis.name)
        more = (Stride(by=high, step=step * low),) if step else ()
        return access.model_copy(update={"strides": (*access.strides, *more)})

    body: list[Stmt] = []
    for stmt in loop.body:
        if stmt.op == "index" and stmt.args == (axis.name,):
            parts = {name: f"{stmt.name}_{name}" for name in ("high", "low", "count", "far")}
            body += [
                stmt.model_copy(update={"name": parts["high"], "args": (high,)}),
                stmt.model_copy(update={"name": parts["low"]}),
                Stmt(name=parts["count"], op="const", dtype=stmt.dtype, value=low),
                Stmt(name=parts["far"], op="mul", dtype=stmt.dtype,
                     args=(parts["high"], parts["count"])),
                stmt.model_copy(update={"op": "add", "args": (parts["far"], parts["low"])}),
            ]  # fmt: skip
        else:
            access = moved(stmt.access) if stmt.access is not None else None
            body.append(stmt.model_copy(update={"access": access}))
    both = (Axis(name=high, size=axis.size // low), Axis(name=axis.name, size=low))
    outer = tuple(n for one in loop.outer for n in (both if one is axis else (one,)))
    stores = tuple(s.model_copy(update={"access": moved(s.access)}) for s in loop.stores)
    return loop.model_copy(update={"outer": outer, "body": tuple(body), "stores": stores})


@dataclass(frozen=True)
class Place:
    """A position along a reader's axis: the sum of step x position of the product's axes.

    `size` are the reader's positions, `reach` those that the sum takes.
    """

    terms: tuple[Stride, ...]
    size: int
    reach: int

    @property
    def is_cut(self) -> bool:
        """Whether some of the product's positions are none of the reader's."""
        return self.reach > self.size


def reader_places(
    made: Loop, reader: Loop, written: Access, read: Access
) -> Mapping[str, Place] | None:
    """Each of the reader's axes in terms of the product's; None where that does not go."""
    sizes = {axis.name: axis.size for axis in (*reader.outer, *reader.inner)}
    steps = {name: read.step(name) for name in sizes}
    if read.offset or written.offset or any(one.by not in sizes for one in read.strides):
        return None
    axes = [axis for axis in made.outer if axis.size > 1]
    if any(written.step(axis.name) <= 0 for axis in axes) or len(written.strides) < len(axes):
        return None
    found = {name: Place((), 1, 1) for name, size in sizes.items() if size == 1}
    upper, left = 0, axes
    for name in sorted((n for n in sizes if n not in found), key=lambda n: -steps[n]):
        step = steps[name]
        mine = [axis for axis in left if step > 0 and written.step(axis.name) >= step]
        left = [axis for axis in left if axis not in mine]
        place = _place(mine, written, step, sizes[name])
        if place is None or (upper and place.reach * step > upper):
            return None
        found[name], upper = place, step
    return None if left else found


def _place(axes: Sequence[Axis], written: Access, step: int, size: int) -> Place | None:
    if not axes or any(written.step(axis.name) % step for axis in axes):
        return None
    terms = tuple(Stride(by=a.name, step=written.step(a.name) // step) for a in axes)
    sizes = {axis.name: axis.size for axis in axes}
    reach = 1 + sum(term.step * (sizes[term.by] - 1) for term in terms)
    whole = reach == prod(sizes.values())
    return Place(terms, size, reach) if whole and size <= reach else None


@dataclass
class Joining:
    """The reader's statements over the product's axes, behind the product's own."""

    made: Loop
    reader: Loop
    places: Mapping[str, Place]
    value: str
    prefix: str = "then"
    body: list[Stmt] = field(default_factory=list, init=False)
    names: dict[str, str] = field(default_factory=dict, init=False)

    def loop(self) -> Loop | None:
        """Both as one; None where a reduction is over nothing, or over what is cut off."""
        inner = [self.places[axis.name] for axis in self.reader.inner]
        if any(place.is_cut for place in inner):
            return None
        self.body = [*self.made.body]
        cut = [name for name, place in self.places.items() if place.is_cut]
        inside = self.within(cut)
        along = tuple(term.by for place in inner for term in place.terms)
        if inner and not along:
            return None
        for stmt in self.reader.body:
            self.take(stmt, inside, along)
        stores = tuple(self._stored(store, inside) for store in self.reader.stores)
        whole = self.made.model_copy(update={"body": tuple(self.body), "stores": stores})
        return without_unread(whole)

    def within(self, axes: Iterable[str], also: str = "") -> str:
        """Whether positions are the reader's along some of its axes; empty where all are."""
        below = [self._below(name, self.places[name].size) for name in axes]
        return self._joined([*[also] * bool(also), *below])

    def take(self, stmt: Stmt, inside: str, along: tuple[str, ...]) -> None:
        """One statement of the reader's, whose reductions are over `along`."""
        if stmt.access is not None and stmt.access.buffer == self.made.stores[0].access.buffer:
            self.names[stmt.name] = self.value
        elif stmt.op == "index":
            self.names[stmt.name] = self._position(stmt.args[0])
        elif stmt.op == "reduce":
            self.keep(stmt, {"op": "fold", "along": along})
        elif stmt.access is not None:
            self._load(stmt, stmt.access, inside)
        else:
            self.keep(stmt, {})

    def keep(self, stmt: Stmt, changes: Mapping[str, object]) -> None:
        """A statement on the product's values, with changes."""
        args = tuple(self.names[arg] for arg in stmt.args)
        self.names[stmt.name] = f"{self.prefix}_{stmt.name}"
        changed = {"name": self.names[stmt.name], "args": args, **changes}
        self.body.append(stmt.model_copy(update=changed))

    def _load(self, stmt: Stmt, access: Access, inside: str) -> None:
        """A read, made where positions are the reader's."""
        varies = any(self.places[one.by].is_cut for one in access.strides if one.by in self.places)
        conditions = [self.names[arg] for arg in stmt.args] + [inside] * (varies and bool(inside))
        name, holds = f"{self.prefix}_{stmt.name}", self._joined(conditions)
        self.names[stmt.name] = name
        changes = {"name": name, "access": self.moved(access), "args": (holds,) if holds else ()}
        self.body.append(stmt.model_copy(update=changes))

    def _stored(self, store: Store, inside: str) -> Store:
        value = self.names[store.value]
        return Store(access=self.moved(store.access), value=value, when=inside)

    def moved(self, access: Access) -> Access:
        """An access over the product's axes."""
        strides: dict[str, int] = {}
        for one in access.strides:
            terms = self.places[one.by].terms if one.by in self.places else ()
            if one.by not in self.places:
                terms = (Stride(by=self.names[one.by], step=1),)
            for term in terms:
                strides[term.by] = strides.get(term.by, 0) + term.step * one.step
        made = tuple(Stride(by=by, step=step) for by, step in strides.items())
        return access.model_copy(update={"strides": made})

    def _position(self, axis: str) -> str:
        """The position along a reader's axis, as a value."""
        parts = []
        for term in self.places[axis].terms:
            at = self._new("index", DType.INT64, (term.by,))
            step = self._new("const", DType.INT64, value=term.step)
            parts.append(at if term.step == 1 else self._new("mul", DType.INT64, (at, step)))
        return self._chain("add", DType.INT64, parts) or self._new("const", DType.INT64, value=0)

    def _below(self, axis: str, size: int) -> str:
        limit = self._new("const", DType.INT64, value=size)
        return self._new("lt", DType.BOOL, (self._position(axis), limit))

    def _joined(self, conditions: Sequence[str]) -> str:
        """All of them; empty where there is none."""
        return self._chain("logical_and", DType.BOOL, conditions)

    def _chain(self, op: str, dtype: DType, parts: Iterable[str]) -> str:
        whole = ""
        for part in parts:
            whole = self._new(op, dtype, (whole, part)) if whole else part
        return whole

    def _new(
        self, op: str, dtype: DType, args: tuple[str, ...] = (), value: int | None = None
    ) -> str:
        name = f"{self.prefix}_{len(self.body)}_{op}"
        self.body.append(Stmt(name=name, op=op, dtype=dtype, args=args, value=value))
        return name
