"""A factor that windows read, as packed rows: what a convolution's input looks like to tiles.

Along each direction in which a window slides, an output at `o` and a position `k` of the window
read the element at stride x o + dilation x k. A pass writes the factor once more so that outputs
beside each other read rows beside each other: elements are sorted by their remainder modulo the
stride (their phase), and padding is written out as zeros. A position of the window then is a
distance between rows, the same for every output, and a box of rows shifted by it is a tile of the
factor. A row holds what all outputs' windows read at one place: the channels, and those positions
of the window that were folded into them.

Directions are read off the steps that the factor is read with, not off an operator: an axis of the
outputs and one of the depth belong together where their reads overlap. A window that moves by its
own size has no overlap, and is read as channels.

Where outputs are folded in windows of their own (pooling), a row's place is a window, and its
outputs are made one after the other from the same rows, sorted by their phase in a window. Those
along the last direction stay places beside each other, which lanes of a warp join.

Not here: factors that are computed on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, product
from math import gcd, prod

from kernelwright.tools.codegen.ir import Access, Axis
from kernelwright.tools.codegen.ir.bounds import Bound, bounds_of
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand

# Positions that 32 bits count, with room for a shift.
_MOST_ROWS = (1 << 31) - (1 << 20)


@dataclass(frozen=True)
class Direction:
    """An axis of the outputs, and the axis of the window that slides along it, if one does.

    Coordinates are stride x output + dilation x tap; `unit` elements lie between two of them. Where
    outputs are folded in windows, `output` are the windows, and `member` the outputs in one of
    them, `step` coordinates apart. These are places beside each other (`is_beside`), or a place's
    outputs: all see the same rows, each its own of them.
    """

    output: Axis
    tap: Axis | None
    unit: int
    stride: int = 1
    dilation: int = 0
    member: Axis | None = None
    step: int = 0
    is_beside: bool = False

    @property
    def members(self) -> int:
        """Outputs of a window."""
        return self.member.size if self.member is not None else 1

    @property
    def turns(self) -> int:
        """Outputs of a place that are made in turns."""
        return 1 if self.is_beside else self.members

    @property
    def size(self) -> int:
        """Places along it."""
        return self.output.size * (self.members if self.is_beside else 1)

    @property
    def pace(self) -> int:
        """Coordinates from one place to the next."""
        return self.step if self.is_beside else self.stride

    @property
    def least(self) -> int:
        """The first coordinate that is read."""
        return min(0, self.dilation * (self.taps - 1))

    @cached_property
    def taps(self) -> int:
        """Positions of the window."""
        return self.tap.size if self.tap is not None else 1

    def shift(self, tap: int, member: int = 0) -> tuple[int, int]:
        """The phase that a tap reads, and the distance in it from the output's own place."""
        at = self.dilation * tap + self.step * member - self.least
        return at % self.pace, at // self.pace

    @property
    def reach(self) -> int:
        """The largest such distance."""
        every = product(range(self.taps), range(self.turns))
        return max(self.shift(*one)[1] for one in every)

    @property
    def extent(self) -> int:
        """Places of one phase."""
        together = self.members if self.is_beside else 1
        return -(-(self.size + self.reach) // together) * together

    @property
    def span(self) -> int:
        """Coordinates from the first to the last that is read."""
        places = self.pace * (self.size - 1) + self.step * (self.turns - 1)
        return places + abs(self.dilation) * (self.taps - 1) + 1


@dataclass(frozen=True)
class Windows:
    """A factor that windows read, and which of its axes become what.

    `directions` are the axes of the outputs' side in its order, `channels` the axes of the depth
    that a row holds. `bounds` say which reads are inside of the tensor.
    """

    access: Access
    batch: tuple[Axis, ...]
    directions: tuple[Direction, ...]
    channels: tuple[Axis, ...]
    bounds: tuple[Bound, ...]

    @cached_property
    def width(self) -> int:
        """Elements of a row."""
        return prod(axis.size for axis in self.channels)

    @cached_property
    def slid(self) -> tuple[Direction, ...]:
        """The directions along which a window slides."""
        return tuple(one for one in self.directions if one.tap is not None)

    @property
    def taps(self) -> int:
        """Positions of the window that are told apart by rows."""
        return prod(one.taps for one in self.slid)

    @property
    def phases(self) -> int:
        """Phases of all directions."""
        return prod(one.pace for one in self.slid)

    @property
    def places(self) -> int:
        """Rows of one phase: a place for every output, and what lies beside them."""
        return prod(one.extent for one in self.directions)

    @property
    def rows(self) -> int:
        """Rows of one batch."""
        return self.phases * self.places

    @cached_property
    def pitches(self) -> tuple[int, ...]:
        """Rows from one place to the next along each direction."""
        sizes = [one.extent for one in self.directions]
        return tuple(prod(sizes[at + 1 :]) for at in range(len(sizes)))

    @property
    def reach(self) -> int:
        """Rows from an output's own to the last that its window reads in the same phase."""
        every = zip(self.pitches, self.directions, strict=True)
        return sum(pitch * one.reach for pitch, one in every)

    @property
    def members(self) -> tuple[Axis, ...]:
        """Outputs of a window, along each direction that has some."""
        return tuple(one.member for one in self.directions if one.member is not None)

    @property
    def in_turns(self) -> tuple[Axis, ...]:
        """Those that are a place's."""
        every = (one.member for one in self.directions if not one.is_beside)
        return tuple(member for member in every if member is not None)

    @property
    def turns(self) -> int:
        """How many outputs of a place are made in turns."""
        return prod(axis.size for axis in self.in_turns)

    @property
    def beside(self) -> int:
        """Places beside each other that one window has."""
        return self.directions[-1].members if self.directions[-1].is_beside else 1

    @cached_property
    def images(self) -> Axis | None:
        """The outermost axis that no window slides along: parts that are scaled apart."""
        still = [one for one in self.directions if one.tap is None and one.output.size > 1]
        ends = [self._ends(one.output.name) for one in still]
        apart = (
            one.output
            for one, (low, high) in zip(still, ends, strict=True)
            if abs(self.access.step(one.output.name)) >= high - low
        )
        return next(apart, None)

    @cached_property
    def image_span(self) -> tuple[int, int]:
        """The first element of an image from where it begins, and the number up to its last."""
        name = self.images.name if self.images is not None else ""
        low, high = self._ends(name)
        return self.access.offset + low, high - low

    def _ends(self, without: str) -> tuple[int, int]:
        """The least and one more than the largest distance from the offset that is read."""
        low, high = 0, 1
        for one in self.directions:
            if one.output.name != without:
                first, last = self._inside(one)
                ends = sorted((one.unit * first, one.unit * last))
                low, high = low + ends[0], high + ends[1]
        for axis in (*self.batch, *self.channels):
            moved = self.access.step(axis.name) * (axis.size - 1)
            low, high = low + min(0, moved), high + max(0, moved)
        return low, high

    def _inside(self, one: Direction) -> tuple[int, int]:
        """The first and the last coordinate of a direction that lie inside of the tensor."""
        first, last = one.least, one.least + one.span - 1
        for bound in self.bounds:
            times = coordinate_step(bound, one)
            if times > 0:
                first = max(first, -(bound.offset // times))
            elif times < 0:
                last = min(last, bound.offset // -times)
        return first, last


def coordinate_step(bound: Bound, one: Direction) -> int:
    """How a bound moves with a direction's coordinate; 0 where it is about anything else."""
    steps = {stride.by: stride.step for stride in bound.steps}
    wanted = {one.output.name: one.stride}
    if one.tap is not None:
        wanted[one.tap.name] = one.dilation
    if one.member is not None:
        wanted[one.member.name] = one.step
    if set(steps) != {name for name, step in wanted.items() if step}:
        return 0
    times, rest = divmod(steps[one.output.name], one.stride)
    alike = all(steps[name] == times * step for name, step in wanted.items() if step)
    return times if alike and rest == 0 else 0


@lru_cache(maxsize=64)
def windows_of(contraction: Contraction) -> tuple[str, tuple[Windows, ...]] | None:
    """The side whose factor windows read ("left" or "right"), in all ways to fold it.

    The first way folds nothing; the others take positions of the window along some directions for
    channels. None where both factors are computed on the way.
    """
    sides = (
        ("right", contraction.right, contraction.columns),
        ("left", contraction.left, contraction.rows),
    )
    found = [(side, _whole(contraction, operand, outputs)) for side, operand, outputs in sides]
    known = [(side, one) for side, one in found if one is not None]
    if not known:
        return None
    # A window's own factor may slide as well, along positions of blocks; it is the smaller one.
    side, whole = max(known, key=lambda one: (bool(one[1].slid), one[1].rows * one[1].width))
    return side, tuple(_folded(whole, contraction.depth))


def _whole(contraction: Contraction, operand: Operand, outputs: tuple[Axis, ...]) -> Windows | None:
    """The factor with every direction along which reads overlap; None where it is computed."""
    load = next((stmt for stmt in operand.body if stmt.name == operand.value), None)
    if load is None or load.access is None or len(operand.loads) != 1:
        return None
    bounds = bounds_of(load.args[0], operand.body) if load.args else ()
    axes = (*contraction.batch, *outputs, *contraction.depth)
    known = {axis.name for axis in axes}
    if bounds is None or any(one.by not in known for one in load.access.strides):
        return None
    if any(one.by not in known for bound in bounds for one in bound.steps):
        return None
    folded = {name for stmt in contraction.folds for name in stmt.along}
    places = tuple(axis for axis in outputs if axis.name not in folded)
    members = [axis for axis in outputs if axis.name in folded]
    directions = _directions(load.access, places, contraction.depth, members)
    if [one.member for one in directions if one.member is not None] != members:
        return None
    if members and _may_lie_beside(directions[-1]):
        directions = (*directions[:-1], replace(directions[-1], is_beside=True))
    taken = {one.tap.name for one in directions if one.tap is not None}
    channels = tuple(axis for axis in contraction.depth if axis.name not in taken)
    found = Windows(load.access, contraction.batch, directions, channels, bounds)
    if any(not _is_told(bound, directions, taken) for bound in bounds):
        return None
    return found if found.rows * (prod(a.size for a in found.batch)) < _MOST_ROWS else None


def _is_told(bound: Bound, directions: Sequence[Direction], taps: set[str]) -> bool:
    """Whether rows decide a bound, or rows and channels; no tap that tells rows apart may."""
    if any(coordinate_step(bound, one) for one in directions):
        return True
    return not any(one.by in taps for one in bound.steps)


def _may_lie_beside(one: Direction) -> bool:
    """Whether lanes beside each other can have all of a window along the last direction."""
    even = one.members in (2, 4, 8, 16)
    return even and one.step * one.members == one.stride


def _directions(
    access: Access, outputs: Sequence[Axis], depth: Sequence[Axis], members: Sequence[Axis]
) -> tuple[Direction, ...]:
    """Each axis of the outputs with the axis of the depth that overlaps it most, if one does."""
    pairs: list[tuple[float, Direction]] = []
    for output in outputs:
        for tap in depth:
            one = _together(access, output, tap, members)
            reads = output.size * tap.size * (one.members if one is not None else 1)
            if one is not None and one.span < reads:
                pairs.append((one.span / reads, one))
    chosen: dict[str, Direction] = {}
    taken: set[str] = set()
    for _, one in sorted(pairs, key=lambda pair: pair[0]):
        assert one.tap is not None
        if one.output.name not in chosen and one.tap.name not in taken:
            chosen[one.output.name] = one
            taken.add(one.tap.name)
    return tuple(chosen.get(axis.name) or alone(access, axis) for axis in outputs)


def _together(access: Access, output: Axis, tap: Axis, members: Sequence[Axis]) -> Direction | None:
    step, gap = access.step(output.name), access.step(tap.name)
    if not step or not gap:
        return None
    unit = gcd(step, gap) if step > 0 else -gcd(step, gap)
    stride, dilation = step // unit, gap // unit
    for axis in members:
        # A window's outputs lie between one place and the next.
        apart, rest = divmod(access.step(axis.name), unit)
        if not rest and 0 < apart * (axis.size - 1) < stride:
            return Direction(output, tap, unit, stride, dilation, axis, apart)
    return Direction(output, tap, unit, stride, dilation)


def alone(access: Access, axis: Axis) -> Direction:
    """An axis of the outputs along which no window slides."""
    return Direction(axis, None, access.step(axis.name))


def _folded(whole: Windows, depth: tuple[Axis, ...]) -> list[Windows]:
    """Every choice of directions whose window is taken for channels, nothing folded first."""
    found = []
    alone_in_place = [one for one in whole.slid if one.member is None]
    for count in range(len(alone_in_place) + 1):
        for folded in combinations(alone_in_place, count):
            names = {one.tap.name for one in folded if one.tap is not None}
            directions = tuple(
                alone(whole.access, one.output) if one in folded else one
                for one in whole.directions
            )
            kept = {axis.name for axis in whole.channels} | names
            channels = tuple(axis for axis in depth if axis.name in kept)
            found.append(Windows(whole.access, whole.batch, directions, channels, whole.bounds))
    return found
