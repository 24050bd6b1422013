"""Vectors that begin in one line of a row and end in the next.

A plane of 513 x 513 fills no whole vectors, and beside a bias or a weight of each channel its axes
cannot be merged. But what walks a whole row (of a pointwise loop, the whole space) without a gap
moves in vectors of the linear position, wherever lines end. What does not, like the bias, goes
element by element, each at positions of its own.
Not covered: rows that begin at odd addresses (peeling.py), and positions that fall.
"""

from math import gcd

from kernelwright.tools.codegen.cuda.printing.nest import Nest, Place
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES, Vectors, ladder


def crossing_of(nest: Nest, plain: Vectors) -> Vectors | None:
    """Wider vectors than `plain` along the linear position; None where there are none."""
    heavy = nest.heavy()
    conditional = [nest.places[s.name] for s in nest.loop.body if s.op == "load" and s.args]
    if not heavy or any(place in conditional for place in heavy):
        return None
    sizes = [place.dtype.itemsize_bytes for place in heavy]
    width = min(_fitting(nest, place, MOVED_BYTES) for place in heavy)
    widths = ladder(width, min(sizes), max(sizes)) if width else (0,)
    if widths[0] <= plain.widths[0]:
        return None
    most = max(widths)
    loads = [stmt for stmt in nest.loop.body if stmt.op == "load" and not stmt.args]
    return Vectors(
        axis="walked",
        widths=widths,
        loads=frozenset(s.name for s in loads if _fitting(nest, nest.places[s.name], most) == most),
        stores=frozenset(
            at for at, place in enumerate(nest.targets) if _fitting(nest, place, most) == most
        ),
        crossing=True,
    )


def _fitting(nest: Nest, place: Place, width: int) -> int:
    """The widest vector, at most `width`, of neighbours in a row; 0 where they have gaps."""
    if nest.linear(place) != 1 or place.gathers:
        return 0
    return gcd(width, nest.columns, place.offset, *place.outer)
