"""Prints where packed rows come from and where a product of them finds its outputs and taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.windows import (
    Windows,
    coordinate_step,
)
from kernelwright.tools.codegen.cuda.printing.expressions import c_type
from kernelwright.tools.codegen.ir import Axis
from kernelwright.tools.codegen.ir.bounds import Bound
from kernelwright.tools.codegen.ir.contraction import Contraction

Lines = list[str]
# Halves of a row that a warp packs at once, at most: 128 bytes, or 64 of each of two parts.
_CHUNK = 64
# Rows of which numbers with too few bits are counted together: those that a warp packs.
BUNDLE = 32
_LOADED_BYTES = 16


@dataclass(frozen=True)
class WindowCode:
    """The lines of one convolution.

    Args:
        contraction: The product.
        windows: The factor that windows read, as it is packed.
        whole: The same with nothing folded into channels, which says what is read of memory.
        pitch: Elements of a packed row.
        parts: Halves of each.
    """

    contraction: Contraction
    windows: Windows
    whole: Windows
    pitch: int
    parts: int = 1

    def values(self) -> dict[str, object]:
        """What the skeleton asks for."""
        first, span = self.whole.image_span
        return {
            "images": self.images,
            "image_step": self._image_step,
            "span": span,
            "span_first": first,
            "span_width": self._span_width(first, span),
            "buffer": self.windows.access.buffer,
            "zero": f"{c_type(self.windows.access.dtype)}(0.0f)",
            "along_row": self.along_row,
            "vector": self.vector,
            "chunk": self.chunk,
            "pack_blocks": self.pack_blocks,
            "bundle": BUNDLE,
            "bundles": -(-self.contraction.batches * self.windows.rows // BUNDLE),
            "row_lines": self._row_lines(),
            "row_offset": self._row_offset(),
            "row_inside": self._row_inside(),
            "channel_lines": _digits("channel", self.windows.channels, "channel"),
            "channel_offset": self._channel_offset(),
            "channel_inside": self._channel_inside(),
            "image_of_row": self._image_of_row(),
            "image_of_place": self._image_of_position(),
            "depth_lines": self._depth_lines(),
            "shift_lines": self._shift_lines(),
            "place_lines": self._place_lines(),
            "place_inside": self._place_inside(),
            "place_linear": self._place_linear(),
            "rank_lines": self._rank_lines(),
        }

    # -- parts that are scaled apart

    @property
    def images(self) -> int:
        """How many there are."""
        return self.whole.images.size if self.whole.images is not None else 1

    @property
    def _image_step(self) -> int:
        axis = self.whole.images
        return self.whole.access.step(axis.name) if axis is not None else 0

    def _span_width(self, first: int, span: int) -> int:
        most = _LOADED_BYTES // self.windows.access.dtype.itemsize_bytes
        return gcd(most, first, span, self._image_step)

    def _image_of_row(self) -> str:
        axis = self.whole.images
        if axis is None:
            return "0"
        at = [one.output for one in self.windows.directions].index(axis)
        return f"place_{at}"

    def _image_of_position(self) -> str:
        """The same of an output's linear position."""
        axis = self.whole.images
        if axis is None:
            return "0"
        axes = [one.output for one in self.windows.directions]
        at = axes.index(axis)
        inner = prod(one.size for one in self.windows.directions[at + 1 :])
        return f"of_lane / {inner} % {axis.size}"

    # -- packing

    @cached_property
    def along_row(self) -> bool:
        """Whether the elements of a row lie next to each other in memory, as channels do last."""
        access = self.windows.access
        return any(access.step(axis.name) == 1 and axis.size > 1 for axis in self.windows.channels)

    @cached_property
    def vector(self) -> int:
        """Channels that one load brings."""
        access, channels = self.windows.access, self.windows.channels
        if len(channels) != 1 or access.step(channels[0].name) != 1 or self._bounds_on_channels():
            return 1
        most = _LOADED_BYTES // access.dtype.itemsize_bytes
        others = [one.step for one in access.strides if one.by != channels[0].name]
        return gcd(most, access.offset, channels[0].size, *others)

    @property
    def chunk(self) -> int:
        """Channels of a row that a warp packs at once."""
        return gcd(_CHUNK // self.parts, self.pitch)

    @property
    def pack_blocks(self) -> int:
        """Blocks of 256 threads."""
        rows = self.contraction.batches * self.windows.rows
        if self.along_row:
            return -(-rows * self.pitch // (8 * 256))
        return -(-(-(-rows // 32) * self.pitch) // (8 * self.chunk))

    def _row_lines(self) -> Lines:
        """A row's batch, its phase and place along each direction, and the coordinates there."""
        windows = self.windows
        lines = [
            f"const int batch = (int)(row / {windows.rows});",
            f"const int of_batch = (int)(row % {windows.rows});",
        ]
        lines += _digits("batch", self.contraction.batch, "batch")
        rest, phases = f"of_batch / {windows.places}", windows.phases
        for at, one in enumerate(windows.directions):
            inner = windows.pitches[at]
            text = (
                f"of_batch % {windows.places} / {inner}"
                if inner > 1
                else f"of_batch % {windows.places}"
            )
            lines.append(f"const int place_{at} = ({text}) % {one.extent};")
            if one.tap is None:
                lines.append(f"const int at_{at} = place_{at};")
                continue
            phases //= one.pace
            phase = f"({rest} / {phases}) % {one.pace}" if one.pace > 1 else "0"
            lines.append(f"const int at_{at} = place_{at} * {one.pace} + {phase} + ({one.least});")
        return lines

    def _row_offset(self) -> str:
        access = self.windows.access
        terms = [f"{access.offset}ll"]
        terms += [f"at_{at} * {one.unit}ll" for at, one in enumerate(self.windows.directions)]
        for at, axis in enumerate(self.contraction.batch):
            terms.append(f"batch_{at} * {access.step(axis.name)}ll")
        return " + ".join(terms)

    def _row_inside(self) -> str:
        """Where a row's reads are inside of the tensor."""
        texts = []
        for bound in self.windows.bounds:
            for at, one in enumerate(self.windows.directions):
                times = coordinate_step(bound, one)
                if times:
                    texts.append(f"at_{at} * {times} + {bound.offset} >= 0")
        # Places of a phase are as many for every phase; the last may be one that nothing reads.
        texts += [
            f"at_{at} < {one.least + one.span}"
            for at, one in enumerate(self.windows.directions)
            if one.tap is not None
        ]
        return " && ".join(texts) or "true"

    def _bounds_on_channels(self) -> list[Bound]:
        """Bounds that no row decides alone."""
        return [
            bound
            for bound in self.windows.bounds
            if not any(coordinate_step(bound, one) for one in self.windows.directions)
        ]

    def _channel_inside(self) -> str:
        names = {axis.name: f"channel_{at}" for at, axis in enumerate(self.windows.channels)}
        names |= {one.output.name: f"at_{at}" for at, one in enumerate(self.windows.directions)}
        names |= {axis.name: f"batch_{at}" for at, axis in enumerate(self.contraction.batch)}
        texts = []
        for bound in self._bounds_on_channels():
            terms = [f"{names[one.by]} * {one.step}" for one in bound.steps]
            texts.append(f"{' + '.join([*terms, str(bound.offset)])} >= 0")
        return " && ".join(texts) or "true"

    def _channel_offset(self) -> str:
        access = self.windows.access
        terms = [
            f"channel_{at} * {access.step(axis.name)}ll"
            for at, axis in enumerate(self.windows.channels)
        ]
        return " + ".join(terms) or "0"

    # -- the product

    def _depth_lines(self) -> Lines:
        """The linear depth of an element that is known by its outer taps, its run and channel."""
        channels = _digits("channel", self.windows.channels, "channel")
        names = {axis.name: f"channel_{at}" for at, axis in enumerate(self.windows.channels)}
        outer = [one.tap for one in self.windows.slid[:-1] if one.tap is not None]
        digits = _digits("outer", outer, "outer")
        names |= {axis.name: f"outer_{at}" for at, axis in enumerate(outer)}
        if self.windows.slid and self.windows.slid[-1].tap is not None:
            names[self.windows.slid[-1].tap.name] = "run"
        depth, axes = [], self.contraction.depth
        for at, axis in enumerate(axes):
            inner = prod(one.size for one in axes[at + 1 :])
            depth.append(f"{names[axis.name]} * {inner}")
        return [*channels, *digits, f"[[maybe_unused]] const int depth = {' + '.join(depth)};"]

    def _shift_lines(self) -> Lines:
        """Adds to `row` what a step's first tap is away."""
        windows = self.windows
        outer = [one.tap for one in windows.slid[:-1] if one.tap is not None]
        lines = [*_digits("outer", outer, "outer"), *_digits("member", windows.in_turns, "member")]
        taps = [*(f"outer_{at}" for at in range(len(outer))), "run"]
        phases = windows.phases
        for tap, one in zip(taps, windows.slid, strict=False):
            phases //= one.pace
            pitch = windows.pitches[windows.directions.index(one)]
            moved = f"{tap} * {one.dilation}"
            if one.member in windows.in_turns:
                moved += f" + member_{windows.in_turns.index(one.member)} * {one.step}"
            at = f"({moved} + {-one.least})"
            if one.pace > 1:
                rows = windows.places * phases
                lines.append(f"row += {at} % {one.pace} * {rows} + {at} / {one.pace} * {pitch};")
            else:
                lines.append(f"row += {at} * {pitch};")
        return lines

    def _place_lines(self) -> Lines:
        lines = []
        for at, one in enumerate(self.windows.directions):
            inner = self.windows.pitches[at]
            text = f"(unsigned int)place / {inner}u" if inner > 1 else "(unsigned int)place"
            rest = f" % {one.extent}u" if at else ""
            lines.append(f"const int place_{at} = (int)({text}{rest});")
        return lines

    def _place_inside(self) -> str:
        found = ["place < PLACES"]
        for at, one in enumerate(self.windows.directions):
            if one.extent > one.size:
                found.append(f"place_{at} < {one.size}")
        return " && ".join(found)

    def _rank_lines(self) -> Lines:
        """The number of outputs before `place`, also where that lies beside the outputs."""
        lines = ["int rank = 0;", "bool is_beyond = false;"]
        for at, one in enumerate(self.windows.directions):
            inner, size = self.windows.pitches[at], one.size
            text = f"(unsigned int)place / {inner}u" if inner > 1 else "(unsigned int)place"
            rest = f" % {one.extent}u" if at else ""
            lines += [
                "{",
                f"    const int along = (int)({text}{rest});",
                f"    rank = rank * {size} + (is_beyond ? 0 : along < {size} ? along : {size});",
                f"    is_beyond |= along >= {size};",
                "}",
            ]
        return lines

    def _place_linear(self) -> str:
        sizes = [one.size for one in self.windows.directions]
        terms = []
        for at in range(len(sizes)):
            inner = prod(sizes[at + 1 :])
            terms.append(f"place_{at} * {inner}" if inner > 1 else f"place_{at}")
        return " + ".join(terms) or "0"


def _digits(letter: str, axes: Sequence[Axis], source: str) -> Lines:
    """Positions along axes from a linear one."""
    lines = []
    for at, axis in enumerate(axes):
        inner = prod(one.size for one in axes[at + 1 :])
        text = f"{source} / {inner}" if inner > 1 else source
        text = f"({text}) % {axis.size}" if at else text
        lines.append(f"[[maybe_unused]] const int {letter}_{at} = {text};")
    return lines


def columns_beside(contraction: Contraction, windows: Windows) -> int:
    """Columns that are neighbours in memory, where places lie as far apart as these are many."""
    if not contraction.columns or not contraction.stores:
        return 1
    access, axis = contraction.stores[0].access, contraction.columns[-1]
    places = windows.directions[-1].output
    together = access.step(axis.name) == 1 and access.step(places.name) == axis.size
    return axis.size if together and axis is not places else 1


def stored_at(printer: ElementPrinter, contraction: Contraction) -> tuple[list[str], str]:
    """Where a result is stored, in elements, and the lines that this needs; 0 where it depends."""
    axes = (*contraction.batch, *contraction.rows, *contraction.columns)
    if not contraction.stores:
        return [], "0"
    access = contraction.stores[0].access
    moved = {one.by for one in access.strides}
    if moved - contraction.names_of(axes):
        return [], "0"
    used = {*moved, *(axis.name for axis in axes)}
    lines = printer.positions.decoded(("batch", "row", "column"), used)
    return [f"[[maybe_unused]] {line}" for line in lines], printer.offset(access)
