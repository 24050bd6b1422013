"""Vectors along rows that start at different distances from a multiple of 16 bytes.

Rows of an odd length do. As long as every stream of a row starts at the same distance, a thread
takes aligned vectors from the first whole one on, and what lies before it or after the last whole
one goes element by element. Nothing outside the row is touched.
Not covered: rows of several walked axes, and positions of extrema, whose order would change.
"""

from kernelwright.tools.codegen.cuda.printing.nest import Nest, Place
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES, Vectors
from kernelwright.tools.codegen.ir import ReduceKind, Stmt

# What is left of a strategy's bandwidth where rows are peeled (4.64 ms over rows of 65535 floats
# where 4.6 were expected; one H200).
PEELED = 0.95
_POSITIONS = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
# Shorter rows would spend as much on their ends as on what lies between.
_FEWEST_VECTORS = 64


def peeled_of(nest: Nest, plain: Vectors) -> Vectors | None:
    """Wider vectors than `plain` for rows that are peeled; None where there are none.

    At width 1, the last of `widths`, nothing is peeled.
    """
    if len(nest.walked) != 1 or any(_in_order(stmt) for stmt in nest.loop.body):
        return None
    heavy = nest.heavy()
    if not heavy or any(place.gathers or place.inner != (1,) for place in heavy):
        return None
    width = MOVED_BYTES // max(place.dtype.itemsize_bytes for place in heavy)
    apart = {phase(place, width) for place in heavy}
    if len(apart) > 1 or width <= plain.widths[0] or nest.columns < _FEWEST_VECTORS * width:
        return None
    (common,) = apart
    if any(stmt.args and nest.places[stmt.name] in heavy for stmt in _loads(nest)):
        return None
    fits = [stmt for stmt in _loads(nest) if _follows(nest.places[stmt.name], common, width)]
    return Vectors(
        axis="walked",
        widths=tuple(2**power for power in range(width.bit_length() - 1, -1, -1)),
        loads=frozenset(stmt.name for stmt in fits if not stmt.args),
        stores=frozenset(
            at
            for at, place in enumerate(nest.targets)
            if nest.is_element_store(at) and _follows(place, common, width)
        ),
    )


def phase(place: Place, width: int) -> tuple[int, ...]:
    """What decides how far a row's start lies from a whole vector of `width` elements."""
    return tuple(step % width for step in (place.offset, *place.outer))


def row_start(nest: Nest, vectors: Vectors) -> Place:
    """One of the streams that are peeled; all of a row start at its distance."""
    stored = (nest.targets[at] for at in sorted(vectors.stores))
    return next(stored, None) or nest.places[min(vectors.loads)]


def _follows(place: Place, common: tuple[int, ...], width: int) -> bool:
    return place.inner == (1,) and not place.gathers and phase(place, width) == common


def _loads(nest: Nest) -> list[Stmt]:
    """The loads along rows."""
    body = nest.loop.body
    return [stmt for stmt in body if stmt.op == "load" and nest.levels[stmt.name] == "element"]


def _in_order(stmt: Stmt) -> bool:
    return stmt.op == "scan" or stmt.reduce in _POSITIONS
