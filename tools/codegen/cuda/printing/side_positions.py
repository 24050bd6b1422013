"""Where elements of a product lie: its linear positions, decoded into axes and into their parts.

A kernel for products moves along four linear positions: `batch`, `row`, `column` and `depth`, each
over merged axes. An access moves along the axes, or along the parts of one that not all accesses
walk as one (a gate for each image, where rows are images and their tokens). Both are decoded by
divisions by constants, of which multiplications are left. Neighbours along a side share what is
decoded where they always lie in one part; else each of them decodes its own.

Not here: values, and whether a position is inside of the product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from math import gcd

from kernelwright.tools.codegen.cuda.printing.printing import INT_LIMIT, SLACK, decoded
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES
from kernelwright.tools.codegen.ir import Access, Axis
from kernelwright.tools.codegen.ir.contraction import Contraction

SIDES = ("batch", "row", "column", "depth")


class SidePositions:
    """Positions along a product's sides, and the accesses that move by them.

    Args:
        contraction: The product.
        values: The names of its statements, by which indirect accesses move.
    """

    def __init__(self, contraction: Contraction, values: Collection[str]) -> None:
        self.axes: Mapping[str, tuple[Axis, ...]] = {
            "batch": contraction.batch,
            "row": contraction.rows,
            "column": contraction.columns,
            "depth": contraction.depth,
        }
        self._contraction, self._values = contraction, frozenset(values)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The variable of each axis's position, parts of merged ones among them."""
        found = {
            axis.name: f"{side}_{at}" for side in SIDES for at, axis in enumerate(self.axes[side])
        }
        for one in self._contraction.merged:
            whole = found[one.axis.name]
            found |= {part.name: f"{whole}_{at}" for at, part in enumerate(one.parts)}
        return found

    # -- neighbours along a side

    def fitting(self, access: Access, along: str, *, conditional: bool = False) -> int:
        """Neighbours that an access moves at once; any number where it stays.

        Buffers begin at multiples of 16 bytes; all but the step along the neighbours must keep it,
        and neighbours along a part of a merged axis end with it.
        """
        axis = self._followed(access, along)
        ends = [axis.size] * (axis != self.axes[along][-1])
        if not access.step(axis.name):
            return gcd(MOVED_BYTES, *ends)
        if conditional or self._is_indirect(access) or access.step(axis.name) != 1:
            return 1
        most = MOVED_BYTES // access.dtype.itemsize_bytes
        others = [stride.step for stride in access.strides if stride.by != axis.name]
        return gcd(most, access.offset, *others, *ends)

    def is_vector(self, access: Access, along: str, width: int, *, conditional: bool) -> bool:
        """Whether neighbours of an access are moved at once."""
        if width == 1 or not access.step(self._followed(access, along).name):
            return False
        return self.fitting(access, along, conditional=conditional) % width == 0

    def neighbour(self, access: Access, along: str, width: int) -> str:
        """What neighbour `k` adds to the first one's offset."""
        if width == 1 or not self.axes[along]:
            return ""
        axis = self._followed(access, along)
        # Where parts are crossed, a neighbour's positions along them are its own.
        is_its_own = axis != self.axes[along][-1] and self.crosses(along, width)
        step = 0 if is_its_own else access.step(axis.name)
        return f" + k * {step}" if step else ""

    def counts(self, axis: str, along: str, width: int) -> str:
        """The position along an axis, at neighbour `k`."""
        last = self.axes[along][-1].name if width > 1 and self.axes[along] else ""
        return self.names[axis] + (" + k" if axis == last else "")

    def crosses(self, along: str, width: int) -> bool:
        """Whether neighbours along a side may lie in different parts of a merged axis."""
        if width == 1 or not self.axes[along]:
            return False
        parts = self._contraction.parts_of(self.axes[along][-1])
        return bool(parts) and parts[-1].size % width != 0

    def _followed(self, access: Access, along: str) -> Axis:
        """The axis by which neighbours along a side move: the last one, or its last part."""
        axis = self.axes[along][-1]
        parts = self._contraction.parts_of(axis)
        return parts[-1] if any(access.step(part.name) for part in parts) else axis

    def _is_indirect(self, access: Access) -> bool:
        return any(stride.by in self._values for stride in access.strides)

    # -- as C++

    def decoded(
        self, sides: Sequence[str], used: Collection[str], along: str = "", width: int = 1
    ) -> list[str]:
        """Lines with the positions along the axes, and parts, that are used, from linear ones.

        Args:
            sides: Whose linear positions are known.
            used: The names of axes and parts.
            along: The side of neighbours, whose parts are left out where they cross them.
            width: How many there are.
        """
        lines = []
        for side in sides:
            axes = self.axes[side]
            if not self._contraction.names_of(axes) & {*used}:
                continue
            lines += decoded(f"{side}_", side, tuple(axis.size for axis in axes), "int")
            is_crossed = side == along and self.crosses(along, width)
            for axis in axes[:-1] if is_crossed else axes:
                lines += self._parts(axis, used)
        return lines

    def decoded_of_neighbour(self, used: Collection[str], along: str, width: int) -> list[str]:
        """The same of the parts that neighbours cross, at neighbour `k`."""
        crosses = width > 1 and self.crosses(along, width)
        return self._parts(self.axes[along][-1], used, " + k") if crosses else []

    def _parts(self, axis: Axis, used: Collection[str], beside: str = "") -> list[str]:
        parts, at = self._contraction.parts_of(axis), self.names[axis.name]
        if not {part.name for part in parts} & {*used}:
            return []
        source = f"({at}{beside})" if beside else at
        return decoded(f"{at}_", source, tuple(part.size for part in parts), "int")

    def offset(self, access: Access) -> str:
        """Where the first neighbour lies in the access's buffer, in elements."""
        reach = sum(abs(s.step) * (self._sizes.get(s.by, 1) - 1) for s in access.strides)
        wide = self._is_indirect(access) or reach + abs(access.offset) >= INT_LIMIT - SLACK
        cast = "(long long)" if wide else ""
        terms = [str(access.offset)] if access.offset else []
        for stride in access.strides:
            name = self.names.get(stride.by, f"v_{stride.by}")
            if stride.step:
                terms.append(f"{cast}{name}" + (f" * {stride.step}" if stride.step != 1 else ""))
        return " + ".join(terms) or "0"

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        every = [axis for side in SIDES for axis in self.axes[side]]
        every += [part for one in self._contraction.merged for part in one.parts]
        return {axis.name: axis.size for axis in every}
