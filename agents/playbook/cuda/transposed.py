"""Strategy for pointwise loops that read along one axis and write along another.

A library that convolves with channels last leaves them so, and a module returns them first: of such
a loop either the reads or the writes are scattered, unless a block turns a tile in its shared
memory. Values are computed in the order in which they are read, and written in the order in which
they are stored.

Not here: loops with large reads along both axes.
"""

from __future__ import annotations

from math import prod

from agents.playbook.cuda.access import SECTOR_BYTES
from agents.playbook.cuda.case import KIB, Case, first, powers
from agents.playbook.cuda.edges import Edges
from agents.playbook.cuda.nest import Nest, Place
from agents.playbook.cuda.rendering import Launch, Tunables, buffer_arguments, complete, render
from agents.playbook.cuda.stencil import Stencil, Window
from agents.playbook.cuda.strip_code import StripCode
from agents.playbook.ir import Emitted, Strategy

NAMES = ("pointwise_transposed",)
TITLE = "Tiles turned in shared memory between reading and writing"
_ROOM = 48 * KIB


class TurnedCode(StripCode):
    """Prints the statements of one output, at positions `p0`, `p1`, ..."""

    stored = "p"

    def __init__(self, nest: Nest, across: int, prefix: str) -> None:
        super().__init__(Stencil(nest, Edges(nest), ()), prefix)
        self._across = across

    def holds(self, window: Window) -> bool:
        """Nothing: there are no windows."""
        return False

    @property
    def tile_axes(self) -> set[int]:
        """What is read along, and what is stored along."""
        return {self._across, len(self.nest.walked) - 1}


def strategies(case: Case) -> list[Strategy]:
    """The strategy, where reads and writes lie along different axes."""
    across = across_of(case)
    if across is None:
        return []
    itemsize = min(place.dtype.itemsize_bytes for place in case.nest.targets)
    used = min(1.0, case.nest.walked[across] * itemsize / SECTOR_BYTES)
    return [
        Strategy(
            name=NAMES[0],
            title=TITLE,
            mechanism="A block computes a tile along the axis in which its operands lie, passes it "
            "through shared memory and writes it along the axis in which its results lie.",
            reason="Otherwise either reads or writes move a whole sector for each element.",
            category="memory",
            metric="l1 throughput",
            memory="tiles turned in shared memory",
            compute="fused chain",
            parallel="tile per block",
            # As fast as a copy on an H200 (docs/benchmarks.md), where a tile's side fills a sector.
            efficiency=round(0.97 * used, 3),
        )
    ]


def across_of(case: Case) -> int | None:
    """The axis along which most is read, where it is not the one along which all is written."""
    nest = case.nest
    if not nest.pointwise or len(nest.walked) < 2:
        return None
    if not all(place.inner[-1] == 1 and not place.gathers for place in nest.targets):
        return None
    moved: dict[int, int] = {}
    for place in (nest.places[stmt.name] for stmt in case.loop.body if stmt.op == "load"):
        axis = _fastest(place)
        if axis is not None:
            size = nest.span(place) * place.dtype.itemsize_bytes
            moved[axis] = max(moved.get(axis, 0), size)
    last = len(nest.walked) - 1
    best = max(moved, key=lambda axis: moved[axis], default=last)
    blocks = prod(nest.walked)
    return (
        best
        if best != last and 4 * moved.get(last, 0) < moved[best] and blocks >> 31 == 0
        else None
    )


def _fastest(place: Place) -> int | None:
    """The axis along which a place's elements lie nearest to each other, be it at a pool's step."""
    steps = {at: abs(step) for at, step in enumerate(place.inner) if step}
    return min(steps, key=lambda at: (steps[at], -at), default=None)


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop that turns its tiles.

    Raises:
        ValueError: When it reads and writes along one axis.
    """
    across = across_of(case)
    if across is None:
        raise ValueError(f"{case.loop.name}: {name} needs reads and writes along different axes")
    nest = case.nest
    last = len(nest.walked) - 1
    code = TurnedCode(nest, across, prefix.upper())
    tunables = Tunables(prefix)
    tunables.add("THREADS", (256, 128, 64, 512))
    tunables.add("ACROSS", _sides(nest.walked[across])).add("ALONG", _sides(nest.walked[last]))
    tunables.add("UNROLL", (4, 8, 2))
    stored = sum(place.dtype.itemsize_bytes for place in nest.targets)
    tunables.require(f"{{ALONG}} * ({{ACROSS}} + 1) * {stored} <= {_ROOM - 64}")
    tunables.require("{ALONG} * {ACROSS} >= {THREADS}")
    source = render(
        "transposed",
        title=TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        sizes=nest.walked,
        last=last,
        across=across,
        others=[at for at in range(last - 1, -1, -1) if at != across],
        code=code,
    )
    outer = prod(size for at, size in enumerate(nest.walked) if at not in (across, last))
    sides = ((across, "{ACROSS}"), (last, "{ALONG}"))
    parts = [f"ceil_div({nest.walked[at]}, {tunables.named(by)})" for at, by in sides]
    grid = " * ".join([str(outer), *parts] if outer > 1 else parts)
    launch = Launch(f"{prefix}_transposed", grid, tunables.named("{THREADS}"))
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def _sides(size: int) -> list[int]:
    """Sides of a tile: 32 or 64 where the axis is that long."""
    return first(64 if size > 32 else 32, [n for n in powers(8, 128) if n < 2 * max(8, size)])
