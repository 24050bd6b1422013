"""Strategy for pointwise loops that read along one axis and write along another.

A library that convolves with channels last leaves them so, and a module returns them first: of such
a loop either the reads or the writes are scattered, unless a block turns a tile in its shared
memory. Values are computed in the order in which they are read, and written in the order in which
they are stored.

Not here: loops with large reads along both axes.
"""

from __future__ import annotations

from math import prod

from kernelwright.tools.codegen.cuda.families.row_shapes import SECTOR_BYTES, element_family
from kernelwright.tools.codegen.cuda.families.tiles.turned_tiles import (
    TurnedCode,
    store_hints,
    tiles,
)
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case, first, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace, Nest
from kernelwright.tools.codegen.ir import Emitted, Strategy

NAMES = ("pointwise_transposed",)
TITLE = "Tiles turned in shared memory between reading and writing"
_ROOM = 48 * KIB
_FILLED = 36 * KIB  # of it, by a tile without the gaps between lines
_THREADS = 256
# Bytes that a thread has under way, at most where several operands stream by, and a tile's side
# that is long enough: 64 lines of 256 bytes on either side.
_UNDER_WAY, _MOST_UNDER_WAY, _SIDE, _SMALLEST = 64, 128, 64, 8
_SHORT = 32  # elements: of four bytes, a line
# Bytes that a tile reads at a place where lines are stored in windows. The longer the lines that it
# stores, the less it computes twice: planes of 513 x 513 took 1.11 ms in tiles of 32 x 256 and 1.32
# in tiles of 64 x 128 (an H200; 1.79 and 1.77 where little is computed).
_LINE_BYTES = 128


def strategies(case: Case) -> list[Strategy]:
    """The strategy, where reads and writes lie along different axes."""
    across = across_of(case)
    if across is None:
        return []
    itemsize = min(place.dtype.itemsize_bytes for place in case.nest.targets)
    read, _ = runs(case.nest, across)
    used = min(1.0, prod(case.nest.walked[at] for at in read) * itemsize / SECTOR_BYTES)
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
            # What a copy takes, where a tile's side fills a sector; not timed alone as it is now.
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
    for place in _read(nest):
        axis = _fastest(place)
        if axis is not None:
            moved[axis] = max(moved.get(axis, 0), nest.moved_bytes(place))
    last = len(nest.walked) - 1
    best = max(moved, key=lambda axis: moved[axis], default=last)
    blocks = prod(nest.walked)
    return (
        best
        if best != last and 4 * moved.get(last, 0) < moved[best] and blocks >> 31 == 0
        else None
    )


def _read(nest: Nest) -> list[AxisPlace]:
    return [nest.places[stmt.name] for stmt in nest.loop.body if stmt.op == "load"]


def _fastest(place: AxisPlace) -> int | None:
    """The axis along which a place's elements lie nearest to each other, be it at a pool's step."""
    steps = {at: abs(step) for at, step in enumerate(place.inner) if step}
    return min(steps, key=lambda at: (steps[at], -at), default=None)


def runs(nest: Nest, across: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes that a tile is read along, and those that it is stored along.

    Where an axis is short, those before it that continue it in memory belong to it (channels of a
    group, and groups), or a tile would read or write less than a line at a place.
    """
    last = len(nest.walked) - 1
    most = max((p for p in _read(nest) if _fastest(p) == across), key=nest.moved_bytes)
    first_run = _run(nest, across, [most], {last})
    return first_run, _run(nest, last, list(nest.targets), set(first_run))


def _run(nest: Nest, axis: int, guides: list[AxisPlace], taken: set[int]) -> tuple[int, ...]:
    run, size = [axis], nest.walked[axis]
    while size <= _SHORT:
        found = [
            at
            for at in range(len(nest.walked))
            if at not in {*run, *taken}
            and all(place.inner[at] == size * place.inner[axis] for place in guides)
        ]
        if not found:
            break
        run.insert(0, found[0])
        size *= nest.walked[found[0]]
    return tuple(run)


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop that turns its tiles.

    Raises:
        ValueError: When it reads and writes along one axis.
    """
    across = across_of(case)
    if across is None:
        raise ValueError(f"{case.loop.name}: {name} needs reads and writes along different axes")
    nest = case.nest
    code = TurnedCode(nest, *runs(nest, across), prefix.upper())
    tunables = Tunables(prefix)
    shape(code, tunables)
    tunables.add("STORES", store_hints(code.stores, windows=code.slides))
    source = render(
        "transposed",
        title=TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        sizes=nest.walked,
        others=[at for at in reversed(range(len(nest.walked))) if at not in code.tile_axes],
        code=code,
    )
    outer = prod(nest.walked) // (code.across_size * code.along_size)
    sides = [
        tiles(code.across_size, "ACROSS", 0),
        tiles(code.along_size, "ALONG", code.slide if code.slides else 0),
    ]
    parts = [tunables.named(side) for side in sides]
    grid = " * ".join([str(outer), *parts] if outer > 1 else parts)
    launch = Launch(f"{prefix}_transposed", grid, tunables.named("{THREADS}"))
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def shape(code: TurnedCode, tunables: Tunables) -> None:
    """Declares threads, the tile and what a thread reads at once.

    A tile has as many bytes as the threads have under way in one batch: then a block waits once,
    and others of its multiprocessor read while it writes.
    """
    nest, width = code.nest, code.width
    sizes = [place.dtype.itemsize_bytes for place in nest.targets]
    widest = max(*sizes, code.widest)
    # Of a larger tile the positions that it computes besides its own are a smaller part.
    threads = 2 * _THREADS if code.slides else _THREADS
    area = min(threads * _UNDER_WAY // widest, _FILLED // sum(sizes))
    wide, tall = code.along_size, code.across_size
    room = _ROOM - KIB * len(sizes)
    step = max(_SMALLEST, SECTOR_BYTES // min(*sizes, widest))
    high, along = part(tall, _SIDE, step), part(wide, _SIDE, step)
    if code.slides:
        high = part(tall, _LINE_BYTES // code.widest, step)
        along = window(wide, area // high, step, code.slide)
    elif wide > _SIDE:
        along = part(wide, area // high, step)
    elif tall > _SIDE:
        # Few elements fill a line, which takes 32 bytes all the same.
        line = 16 * sum((along * size + 15) // 16 + 1 for size in sizes)
        high = part(tall, min(area // along, (room - threads * sum(sizes)) // line), step)
    turns = -(-along * high // width)
    tunables.add("THREADS", first(min(threads, turns), [256, 128, 64, 512]))
    tunables.add("ACROSS", _sides(high, tall)).add("ALONG", _sides(along, wide))
    if code.slides:
        tunables.require(f"{{ALONG}} >= {2 * code.slide}")
    tunables.add("VECTOR", (width, max(1, width // 2)))
    read = max(1, code.read_bytes)
    best = min(_UNDER_WAY // (width * widest), _MOST_UNDER_WAY // (width * read))
    best = min(best, 1 << (-(-turns // _THREADS) - 1).bit_length())
    tunables.add("UNROLL", first(max(1, best), powers(max(1, best // 2), max(2, 2 * best))))
    # A chunk more a line is as much as the gaps between lines take; each thread has a spare slot.
    lines = " + ".join(f"({{ALONG}} * {size} + 15) // 16 + 1" for size in sizes)
    tunables.require(f"16 * {{ACROSS}} * ({lines}) + {{THREADS}} * {sum(sizes)} <= {room}")
    tunables.require(f"{{UNROLL}} * {{VECTOR}} * {read} <= {4 * _MOST_UNDER_WAY}")


def part(size: int, most: int, step: int) -> int:
    """A tile's side of at most about `most`: the whole axis, or a multiple of `step`.

    Axes are cut into parts as long as each other, so that the last tile is no rest. A little more
    than the whole axis costs less than counting by what is no power of two.
    """
    if size <= most:
        near = 1 << (size - 1).bit_length()
        return near if 4 * (near - size) <= near else size
    most = max(step, most // step * step)
    parts = -(-size // most)
    return min(most, -(-size // (parts * step)) * step)


def window(size: int, most: int, step: int, slide: int) -> int:
    """A tile's side with `slide` positions besides its own, cut like `part`."""
    reach = size + slide - 1
    most = max(2 * step, most // step * step)
    parts = -(-reach // (most - slide))
    return min(most, -(-(-(-reach // parts) + slide) // step) * step)


def _sides(best: int, size: int) -> list[int]:
    """A side, and its half and double where there is more of the axis."""
    return [best] if best >= size else [best, *(n for n in (best // 2, 2 * best) if n % 16 == 0)]


TRANSPOSED_FAMILY = element_family(NAMES, strategies, emit)
