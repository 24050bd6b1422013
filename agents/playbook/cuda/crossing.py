"""Vectors of a pointwise loop that begin anywhere in a row and may end in the next.

A plane of 513 x 513 fills no whole vectors, and beside a bias its axes cannot be merged. But what
walks the whole space without a gap moves in vectors of the linear position, wherever rows end.
What does not, like the bias, goes element by element, each at positions of its own.
Not covered: spaces whose number of elements is odd, and positions that fall.
"""

from math import gcd

from agents.playbook.cuda.nest import Nest, Place
from agents.playbook.cuda.vectors import MOVED_BYTES, Vectors, ladder


def crossing_of(nest: Nest, plain: Vectors) -> Vectors | None:
    """Wider vectors than `plain` along the linear position; None where there are none."""
    streams = list(nest.streams())
    heaviest = max((_bytes(nest, place) for place in streams), default=0)
    heavy = [place for place in streams if 4 * _bytes(nest, place) >= heaviest]
    conditional = [nest.places[s.name] for s in nest.loop.body if s.op == "load" and s.args]
    if not nest.pointwise or not heavy or any(place in conditional for place in heavy):
        return None
    if any(nest.linear(place) != 1 or place.gathers for place in heavy):
        return None
    sizes = [place.dtype.itemsize_bytes for place in heavy]
    width = gcd(MOVED_BYTES, nest.columns, *(place.offset for place in heavy))
    widths = ladder(width, min(sizes), max(sizes))
    if widths[0] <= plain.widths[0]:
        return None
    loads = [stmt for stmt in nest.loop.body if stmt.op == "load" and not stmt.args]
    return Vectors(
        axis="walked",
        widths=widths,
        loads=frozenset(s.name for s in loads if _fits(nest, nest.places[s.name], max(widths))),
        stores=frozenset(
            at for at, place in enumerate(nest.targets) if _fits(nest, place, max(widths))
        ),
        crossing=True,
    )


def _bytes(nest: Nest, place: Place) -> int:
    return nest.span(place) * place.dtype.itemsize_bytes


def _fits(nest: Nest, place: Place, width: int) -> bool:
    return nest.linear(place) == 1 and not place.gathers and place.offset % width == 0
