"""Fusion: inline what reduces nothing, drop what nobody needs, merge what shares a space.

`keep` names buffers that are stored and read back even where they could be computed again; `lower`
tries which of them pay. `stores_sums` stores what is read by several and sums up many tensors, as
the residual of a stack of layers does: computed again, each layer would read all layers before it.

A reduction over everything whose elements need a row's own statistics (a divergence between
softmaxes) is split in two: rows first, then over the rows. It can then happen where those
statistics are made; only one number a row is stored. It holds because sums, products, extrema, any
and all may be grouped as one likes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import prod

from kernelwright.tools.codegen.lower.fusion.absorb import absorbed
from kernelwright.tools.codegen.lower.fusion.inline import digits, inlined, replaced
from kernelwright.tools.codegen.lower.fusion.merge import (
    Merging,
    keeps_levels,
    number_stages,
    ordered,
    still_needed,
)
from kernelwright.tools.codegen.lower.fusion.regions import in_regions
from kernelwright.tools.codegen.lower.nests.context import Context, Step
from kernelwright.tools.codegen.lower.nests.expressions import Address, Expr, reachable
from kernelwright.tools.codegen.lower.nests.layout import fastest, footprint, nest_read_bytes
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write, where_of
from kernelwright.tools.codegen.lower.nests.views import at_axes
from kernelwright.tools.types import TensorSpec

GROUPABLE = frozenset({"sum", "prod", "max", "min", "any", "all"})


def row_axes(nest: Nest, statistics: frozenset[str]) -> tuple[str, ...]:
    """Inner axes along which row statistics are read; () where a split makes no sense.

    `statistics` names the buffers that other reductions make.
    """
    reductions = [expr for expr in nest.exprs if expr.op in ("reduce", "scan", "second")]
    if not all(expr.op == "reduce" and expr.word in GROUPABLE for expr in reductions):
        return ()
    if any(_nested(expr, reductions) for expr in reductions):
        return ()
    read = [where_of(load) for load in nest.loads if where_of(load).buffer in statistics]
    found = tuple(axis for axis in nest.inner if any(where.step(axis) for where in read))
    return found if 0 < len(found) < len(nest.inner) else ()


def _nested(expr: Expr, reductions: list[Expr]) -> bool:
    return any(other is not expr and other in reductions for other in reachable([expr]))


def split(context: Context, nest: Nest, rows: tuple[str, ...]) -> tuple[Nest, Nest]:
    """The two nests; the first keeps `rows` as outer axes."""
    outer, inner = nest.outer + rows, tuple(axis for axis in nest.inner if axis not in rows)
    writes: list[Write] = []
    loads: dict[Expr, Expr] = {}
    for expr in [expr for expr in nest.exprs if expr.op == "reduce"]:
        made = _rows_buffer(context, outer, expr)
        writes.append(Write(made, expr))
        loads[expr] = context.pool.make(
            "reduce", expr.dtype, (context.pool.load(made),), word=expr.word
        )
    second = replaced(context.ops, nest, loads)
    return Nest(outer, inner, tuple(writes)), Nest(nest.outer, rows, second.writes)


def _rows_buffer(context: Context, axes: tuple[str, ...], expr: Expr) -> Address:
    sizes = tuple(context.pool.sizes[axis] for axis in axes)
    made = context.buffer("rows", TensorSpec(shape=sizes, dtype=expr.dtype))
    return at_axes(made, [[(axis, size)] for axis, size in zip(axes, sizes, strict=True)])


# Expressions of one nest: beyond that registers spill and compilers slow down.
INLINE_LIMIT, ABSORB_LIMIT = 240, 640
# Reductions over rows that one nest makes at once: each is a register a thread, or several.
REDUCTIONS_LIMIT = 32
# What one more launch costs, in bytes of traffic; between a CPU's and a large GPU's figure, and
# the latter alone.
LAUNCH_BYTES, DEAREST_LAUNCH_BYTES = 1 << 18, 1 << 23

# Bytes that may be read for each byte of an operand: a product reads it once for every tile.
MOST_READ = 2

# A value that so many steps read and that is made of more than so many of its own size is stored
# where `stores_sums` says so; one that is made of such a value, and of more.
_FEWEST_READERS, _MANY_TENSORS, _MORE_THAN_IT = 2, 2.5, 1.5

# Uses of every factor's element from which a product of half types should find both as it
# multiplies them: at 2048 cubed passes that convert them take longer than is gained on an H200, at
# 4096 they take half of that (by the families' own predictions, not measured).
COPIED_USES = 3000

_HEAVY_WORDS = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh sigmoid erf erfc lgamma pow atan2 fmod remainder sqrt rsqrt div
"""
_HEAVY = frozenset(_HEAVY_WORDS.split())


@dataclass
class Fusion:
    """One attempt at a schedule.

    `known` is what loads were replaced by before; attempts at one task share it, as most of what
    they do is the same.
    """

    context: Context
    needed: frozenset[str]
    keep: frozenset[str] = frozenset()
    split: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()
    absorb: bool = False
    stores_sums: bool = False
    known: dict[tuple[Nest, Expr, Nest], Nest | None] = field(default_factory=dict)
    cuttable: list[str] = field(default_factory=list, init=False)
    splittable: list[str] = field(default_factory=list, init=False)
    steps: list[Step] = field(default_factory=list, init=False)
    inlined: dict[str, int] = field(default_factory=dict, init=False)
    sums: list[str] = field(default_factory=list, init=False)
    readers: Counter[str] = field(default_factory=Counter, init=False)

    def run(self) -> Fusion:
        """Inlines, drops and merges; `steps` are the result in a valid order."""
        self.steps = [Step(s.number, s.nest, s.line) for s in self.context.steps]
        number_stages(self.steps)
        self.readers = Counter(buffer for step in self.steps for buffer in step.reads)
        self._inline()
        self.steps = still_needed(self.steps, self.needed)
        self._cut()
        self._split()
        if self.absorb:
            self._absorb()
        self.steps = Merging(self.context, self.steps, self.needed).run()
        self.steps = still_needed(self.steps, self.needed)
        self.steps = ordered(self.steps)
        return self

    # Inlining

    def _inline(self) -> None:
        producers: dict[str, Step] = {}
        for step in self.steps:
            if step.nest is not None:
                step.nest = self._absorbed(step, producers)
            if self._sums_up(step):
                self.sums += step.targets
            for buffer in step.targets:
                # A tensor written in parts has no one producer.
                parts = buffer in producers
                producers[buffer] = Step(-1) if parts else step

    def _absorbed(self, step: Step, producers: dict[str, Step]) -> Nest:
        nest = step.nest
        if nest is None:
            raise ValueError("a plan line computes nothing")
        refused: set[Address] = set()
        limit = ABSORB_LIMIT if self.absorb else INLINE_LIMIT
        # A nest beyond the limit only grows: a long window reads too often to try every read.
        while len(nest.exprs) <= limit and (load := self._candidate(nest, producers, refused)):
            where = where_of(load)
            source = producers[where.buffer]
            new = None
            if (
                source.nest is not None
                and self._worth(source, step, nest, where, producers)
                and not self._stays_before(source.nest, nest, where, producers)
            ):
                new = self._inlined(nest, load, source.nest)
            if new is None or len(new.exprs) > limit:
                refused.add(where)
                continue
            self.inlined[where.buffer] = self.inlined.get(where.buffer, 0) + 1
            nest = new
        return nest

    def _inlined(self, nest: Nest, load: Expr, source: Nest) -> Nest | None:
        """The nest with a load replaced; again what it was before, unless axes were split."""
        key = nest, load, source
        if key in self.known:
            return self.known[key]
        sizes = self.context.pool.sizes
        axes = len(sizes)
        new = inlined(self.context.ops, nest, load, source)
        if len(sizes) == axes:
            self.known[key] = new
        return new

    def _candidate(
        self, nest: Nest, producers: dict[str, Step], refused: set[Address]
    ) -> Expr | None:
        for load in nest.loads:
            where = where_of(load)
            source = producers.get(where.buffer)
            if where in refused or source is None or source.nest is None or source.nest.inner:
                continue
            if where.buffer in self.keep or where.buffer in self.context.stored:
                continue
            if digits(source.nest.writes[0].address) is not None:
                return load
        return None

    def _worth(
        self, source: Step, step: Step, nest: Nest, where: Address, producers: dict[str, Step]
    ) -> bool:
        """Whether computing again is no dearer than storing and reading back."""
        made = source.nest
        if made is None:
            return False
        pool = self.context.pool
        heavy = any(expr.op in _HEAVY for expr in made.exprs)
        repeats = nest.numel(pool) // max(1, made.numel(pool))
        by_channel = self._is_by_channel(made, producers)
        if heavy and repeats >= 8 and (by_channel or _along_fastest(nest, where)):
            return False
        if self.stores_sums and where.buffer in self.sums:
            return False
        if step.stage == source.stage:
            return True
        # A library call lies between: the two can never be one nest.
        again = nest_read_bytes(self.context, made)
        stored = made.numel(pool) * where.dtype.itemsize_bytes
        return again <= stored * (1 if where.buffer in self.needed else 2)

    def _is_by_channel(self, made: Nest, producers: dict[str, Step]) -> bool:
        """Whether products would end with what is computed of weights: again for every result.

        Of weights or inputs, and nothing that a step makes: no statistics of rows. Were a root of
        those stored apart, what it scales would no longer be dear, and a product that reads it
        would scale its factors itself.
        """
        by_channel = self.context.lowering.channels_last and self.context.lowering.products
        return by_channel and not any(name in producers for name in made.reads)

    def _sums_up(self, step: Step) -> bool:
        """Whether what a step makes is read by several, and reads far more than it stores itself.

        With two readers and three tensors read, one store and two reads take the place of six. What
        adds to such a sum is stored too, so that every layer of a stack is like the one before.
        """
        if step.nest is None or step.nest.inner or len(step.nest.writes) != 1:
            return False
        (write,) = step.nest.writes
        if self.readers[write.address.buffer] < _FEWEST_READERS:
            return False
        many = _MORE_THAN_IT if step.nest.reads & set(self.sums) else _MANY_TENSORS
        return nest_read_bytes(self.context, step.nest) > many * footprint(write.address)

    def _is_own_product(self, nest: Nest) -> bool:
        """Whether a nest becomes a loop of a product, with kernels made for those."""
        return self.context.lowering.products and nest.is_product

    def _stays_before(
        self, made: Nest, reader: Nest, where: Address, producers: dict[str, Step]
    ) -> bool:
        """Whether a product should read what it would have to compute again for every tile.

        That is what reads more than two elements for each of its own, what can follow another
        product, where it is computed once, a factor of half types that is used so often that
        copying it into tiles as it lies gains more than a pass that converts it takes, and what
        the window of a convolution reads many times.
        """
        if not self._is_own_product(reader):
            return False
        is_factor = any(where.step(axis) for axis in reader.inner)
        if is_factor and any(expr.op == "tf32" for expr in reader.exprs):
            return True
        buffer = self.context.buffers[where.buffer]
        if is_factor and footprint(where) > prod(buffer.shape) * buffer.dtype.itemsize_bytes:
            return True
        if is_factor and reader.half_uses(self.context.pool) >= COPIED_USES:
            return True
        (write,) = made.writes
        if nest_read_bytes(self.context, made) > MOST_READ * footprint(write.address):
            return True
        sources = (producers[name].nest for name in made.reads if name in producers)
        return any(source is not None and source.is_product for source in sources)

    # Cutting

    def _cut(self) -> None:
        """Cuts nests where the regions meet that they read."""
        self.steps, self.cuttable = in_regions(self.context, self.steps, self.cut)
        self.steps = still_needed(self.steps, self.needed)

    # Splitting

    def _split(self) -> None:
        made = (step.nest for step in self.steps if step.nest is not None and step.nest.inner)
        # What a product makes is a matrix, and no statistic of one.
        statistics = frozenset[str]().union(
            *(nest.targets for nest in made if not self._is_own_product(nest))
        )
        result: list[Step] = []
        for step in self.steps:
            rows = row_axes(step.nest, statistics) if step.nest is not None else ()
            if step.nest is None or not rows:
                result.append(step)
                continue
            name = min(step.targets)
            self.splittable.append(name)
            parts = split(self.context, step.nest, rows) if name in self.split else (step.nest,)
            result += [Step(step.number, nest, stage=step.stage) for nest in parts]
        self.steps = result

    # Absorbing

    def _absorb(self) -> None:
        """Lets windows over rows compute what they need of them; see `absorb`."""
        makers = {b: s.nest for s in self.steps if s.nest and s.nest.inner for b in s.targets}
        for step in self.steps:
            if step.nest is not None and not step.nest.inner:
                step.nest = self._with_rows(step.nest, makers)
        self.steps = still_needed(self.steps, self.needed)

    def _with_rows(self, nest: Nest, makers: dict[str, Nest]) -> Nest:
        """The nest after it took the reductions that it cannot be merged with.

        Those are read at several places, or lie along an axis that windows move along. The last
        made come first, as they read the others.
        """
        sizes = self.context.pool.sizes
        for buffer in reversed(makers):
            count = sum(where_of(load).buffer == buffer for load in nest.loads)
            new = absorbed(self.context.ops, nest, makers[buffer]) if count else None
            if new is None or not self._bearable(new) or not keeps_levels(new):
                continue
            rows = (prod(sizes[axis] for axis in n.inner) for n in (new, makers[buffer]))
            if count > 1 or len(set(rows)) > 1:
                nest = new
        return nest

    def _bearable(self, nest: Nest) -> bool:
        reductions = sum(expr.op == "reduce" for expr in nest.exprs)
        return len(nest.exprs) <= ABSORB_LIMIT and reductions <= REDUCTIONS_LIMIT

    # Cost

    def cost(self, launch_bytes: int = LAUNCH_BYTES) -> int:
        """Bytes moved, launches included, by everything that is not a library call."""
        total = 0
        for step in self.steps:
            if step.nest is not None:
                total += launch_bytes + nest_read_bytes(self.context, step.nest)
                total += sum(footprint(write.address) for write in step.nest.writes)
        return total


def _along_fastest(nest: Nest, where: Address) -> bool:
    """Whether a read varies along the row, or along the axis that the nest's write moves least.

    Such a read is made again for every row; one that does not can be made once a row.
    """
    if nest.inner:
        return any(where.step(axis) for axis in nest.inner)
    axis = fastest(nest.writes[0].address)
    return axis is not None and where.step(axis) != 0
