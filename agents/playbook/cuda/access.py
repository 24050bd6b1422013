"""What narrow accesses leave of a strategy's bandwidth.

A row whose elements do not lie at multiples of 16 bytes is moved in narrower pieces: as many
instructions bring fewer bytes, so that fewer are under way at a time.
"""

from math import log

from agents.playbook.cuda.case import Case
from agents.playbook.cuda.vectors import MOVED_BYTES, Vectors

_MEASURED_BYTES = 4


def access_bytes(case: Case, vectors: Vectors) -> int:
    """Bytes of the widest access along a row that is moved in these vectors."""
    streams = [place for place in case.nest.streams() if place.inner[-1:] in ((1,), (-1,))]
    widest = max((place.dtype.itemsize_bytes for place in streams), default=1)
    return min(MOVED_BYTES, vectors.widths[0] * widest)


def narrowed(case: Case, kept: float, vectors: Vectors | None = None) -> float:
    """The share of a strategy's bandwidth that is left in this case.

    Args:
        case: Whose rows are read or written along their last axis.
        kept: The share that was measured with accesses of 4 bytes; other widths are taken to
            lie on the same curve, 1 at 16 bytes, with the same factor for each halving.
        vectors: What moves the rows; None for the case's own.
    """
    width = access_bytes(case, vectors or case.along_rows)
    return float(kept ** log(MOVED_BYTES / width, MOVED_BYTES / _MEASURED_BYTES))
