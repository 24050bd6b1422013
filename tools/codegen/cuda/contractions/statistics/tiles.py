"""Statistics of a product's results: what tiles leave of theirs, and the kernel that joins it.

Results are counted where they are stored, CHUNK neighbours along one side of the product at a time
for each position of the other side, whatever of the other side is counted together: the mean of a
chunk and the squared distances from it (sums about one of its values), or its sum, in float32. A
kernel joins what belongs to one row of the norm, always in the same order, by the formula that
merges means (Chan's), so that neither a large mean nor the order of blocks is seen in the result;
then it computes what the loop makes of a row.

A chunk may reach over the end of one of the norm's rows into the next (an image that ends amid a
tile). What belongs to the second lies apart, so a row must not be shorter than a chunk. Places that
hold no result (padding that a tile goes through) are left out: each chunk has its own count.

Not here: rows that take turns within a chunk (a statistic a pixel, beside channels that lie last),
which is to say kept axes that are not the outermost of their side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.printing.expressions import Argument, Launch
from kernelwright.tools.codegen.ir import Axis, Loop, ReduceKind
from kernelwright.tools.codegen.ir.contraction import Contraction, Statistics

# The largest chunk of any tile.
LONGEST_CHUNK = 32
_PARTS = {
    ReduceKind.MOMENTS: "kw::Moments<float>", ReduceKind.SUM: "kw::Sum<float>",
    ReduceKind.MAX: "kw::Maximum<float>", ReduceKind.MIN: "kw::Minimum<float>",
}  # fmt: skip
# Positions of the other side that one block of the joining kernel reads side by side, a sector of
# what lies there; its threads, few parts a row and many; from how many on these are many.
_ACROSS, _THREADS, _MANY = 4, (256, 1024), 64
# Cycles in which a thread joins one part (an estimate: a division, and a read from the cache that
# it shares with three others).
_JOINED = 60.0
_MOST_PARTS = 1 << 30


@dataclass(frozen=True)
class Side:
    """The side of a product along which results are counted.

    `name` is "row" or "column"; `places` are the positions that tiles have along it for each batch,
    those without a result included, and `prefix` how many of its axes, the outermost, are kept.
    """

    name: str
    places: int
    prefix: int


@dataclass(frozen=True)
class CountedTiles:
    """A product's statistics, as its tiles and the kernel that joins them see them."""

    contraction: Contraction
    of: Statistics
    side: Side

    @property
    def part(self) -> str:
        """The type that values are joined in."""
        return _PARTS[self.of.kind]

    @property
    def floats(self) -> int:
        """What is kept of a chunk, besides its count."""
        return 2 if self.of.kind is ReduceKind.MOMENTS else 1

    @property
    def _axes(self) -> tuple[Axis, ...]:
        found = self.contraction
        return found.rows if self.side.name == "row" else found.columns

    @property
    def _others(self) -> tuple[Axis, ...]:
        found = self.contraction
        return found.columns if self.side.name == "row" else found.rows

    @property
    def other(self) -> str:
        """The name of the other side."""
        return "column" if self.side.name == "row" else "row"

    @property
    def n(self) -> int:
        """Positions of the other side."""
        return prod(axis.size for axis in self._others)

    @cached_property
    def segments(self) -> int:
        """Rows of the norm along the side."""
        return prod(axis.size for axis in self._axes[: self.side.prefix])

    @property
    def of_segment(self) -> int:
        """Places of one of them."""
        return self.side.places // self.segments

    @property
    def within_segment(self) -> int:
        """Positions of the side that one of them has."""
        return prod(axis.size for axis in self._axes[self.side.prefix :])

    def _kept(self, axes: Sequence[Axis]) -> list[Axis]:
        return [axis for axis in axes if axis.name not in self.of.along]

    def _joined(self, axes: Sequence[Axis]) -> list[Axis]:
        return [axis for axis in axes if axis.name in self.of.along]

    @property
    def results(self) -> int:
        """Rows of the norm in all."""
        kept = [*self._kept(self.contraction.batch), *self._kept(self._others)]
        return self.segments * prod(axis.size for axis in kept)

    @property
    def together(self) -> int:
        """Batches times positions of the other side that are counted together."""
        axes = [*self._joined(self.contraction.batch), *self._joined(self._others)]
        return prod(axis.size for axis in axes)

    def parts(self, chunk: int) -> int:
        """Parts of one row of the norm, about."""
        return (self.of_segment // chunk + 2) * self.together

    @property
    def across(self) -> int:
        """Rows of the norm that one block joins: neighbours in memory."""
        last = self._others[-1] if self._others else None
        beside = last is not None and last.name not in self.of.along and last.size % _ACROSS == 0
        return _ACROSS if beside else 1

    @property
    def threads(self) -> int:
        """Of a block of the joining kernel."""
        few, many = _THREADS
        return many if self.parts(LONGEST_CHUNK) * self.across > _MANY * few else few

    def moved_bytes(self, chunk: int) -> int:
        """What tiles leave, which is written and read once."""
        return self.contraction.batches * self.side.places // chunk * self.n * self.floats * 4

    def joining_seconds(self, chunk: int, bandwidth: float, hertz: float) -> float:
        """The joining kernel's time, without its launch."""
        each = self.parts(chunk) * self.across / self.threads
        return max(self.moved_bytes(chunk) / bandwidth, each * _JOINED / hertz)

    # -- code

    def values(self, loop: Loop, chunk: str) -> dict[str, object]:
        """What skeletons ask for; `chunk` is the C++ of a chunk's places."""
        found = self.contraction.model_copy(
            update={"epilogue": self.of.body, "stores": self.of.stores}
        )
        printed = ElementPrinter(loop, found).part("", (), self.of.stores, {})
        batch, others = self.contraction.batch, self._others
        kept_batch, kept_others = self._kept(batch), self._kept(others)
        along_batch, along_others = self._joined(batch), self._joined(others)
        sizes = [prod(axis.size for axis in axes) for axes in (kept_others, along_others)]
        return {
            "part": self.part, "is_moments": self.of.kind is ReduceKind.MOMENTS,
            "floats": self.floats, "value": self.of.value, "when": self.of.when,
            "name": self.of.name, "segments": self.segments, "of_segment": self.of_segment,
            "within_segment": self.within_segment, "places": self.side.places, "n": self.n,
            "batches": self.contraction.batches, "side": self.side.name, "other": self.other,
            "chunk": chunk, "across": self.across, "threads": self.threads,
            "kept_others": sizes[0], "along_others": sizes[1],
            "along_batches": prod(axis.size for axis in along_batch),
            "batch_of_result": _linear("of_batch", kept_batch, batch),
            "other_of_result": _linear("of_other", kept_others, others),
            "batch_of_part": _linear("of_batch", along_batch, batch),
            "other_of_part": _linear("of_other", along_others, others),
            "lines": printed.lines(),
        }  # fmt: skip

    def arguments(self, prefix: str) -> list[Argument]:
        """What tiles leave, and the counts."""
        return [
            Argument("parts_left", "float* parts_left", f"{prefix}_parts_left"),
            Argument("parts_counted", "int* parts_counted", f"{prefix}_parts_counted"),
        ]

    def allocations(self, prefix: str, chunk: str) -> list[str]:
        """The plan's lines that make room; `chunk` is a plan's expression."""
        rows = f"(ceil_div({self.side.places}, {chunk}) + {self.segments})"
        each = self.contraction.batches * self.n
        counted = each if self.of.when else 1
        parts, counts = (f"{rows} * {n}" for n in (each * self.floats, counted))
        return [
            f'{prefix}_parts_left = empty(({parts},), dtype="float32")',
            f'{prefix}_parts_counted = empty(({counts},), dtype="int32")',
        ]

    def launch(self, prefix: str) -> Launch:
        """Of the joining kernel."""
        return Launch(f"{prefix}_statistics", str(self.results // self.across), str(self.threads))


def _linear(source: str, axes: Sequence[Axis], every: Sequence[Axis]) -> str:
    """The linear position along all axes, at 0 of those that are not some of them.

    Args:
        source: A linear position along some of them, as C++.
        axes: These.
        every: All.
    """
    terms = []
    for at, axis in enumerate(axes):
        inner = prod(one.size for one in axes[at + 1 :])
        pitch = prod(one.size for one in every[every.index(axis) + 1 :])
        digit = f"({source} / {inner})" if inner > 1 else source
        digit = f"{digit} % {axis.size}" if at else digit
        terms.append(f"({digit}) * {pitch}" if pitch > 1 else f"({digit})")
    return " + ".join(terms) or "0"


def counted_side(
    contraction: Contraction, name: str, extents: Sequence[int], beside: Collection[str] = ()
) -> Side | None:
    """A side of a product as one along which statistics are taken; None where it is none.

    Args:
        contraction: The product, with statistics.
        name: "row" or "column".
        extents: Places along each of its axes, in order.
        beside: Axes of which no row of the norm may be told apart.
    """
    found = contraction.statistics
    axes = contraction.rows if name == "row" else contraction.columns
    if found is None or len(extents) != len(axes) or found.kind not in _PARTS:
        return None
    kept = [axis.name not in found.along for axis in axes]
    prefix = next((at for at, stays in enumerate(kept) if not stays), len(axes))
    even = all(axis.size == extents[at] for at, axis in enumerate(axes[:prefix]))
    if any(kept[prefix:]) or not even or {*beside} & {axis.name for axis in axes[:prefix]}:
        return None
    side = Side(name, prod(extents), prefix)
    tiles = CountedTiles(contraction, found, side)
    if tiles.of_segment < LONGEST_CHUNK or tiles.parts(1) > _MOST_PARTS:
        return None
    return side
