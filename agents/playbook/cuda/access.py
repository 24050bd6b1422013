"""What narrow accesses leave of a strategy's bandwidth.

A row whose elements do not lie at multiples of 16 bytes is moved in narrower pieces: as many
instructions bring fewer bytes, so that fewer are under way at a time.
"""

from math import log2

from agents.playbook.cuda.case import Case
from agents.playbook.cuda.vectors import MOVED_BYTES

_MEASURED_BYTES = 4


def access_bytes(case: Case) -> int:
    """Bytes of the widest access along a row."""
    streams = [place for place in case.nest.streams() if place.inner[-1:] in ((1,), (-1,))]
    widest = max((place.dtype.itemsize_bytes for place in streams), default=1)
    return min(MOVED_BYTES, case.along_rows.widths[0] * widest)


def narrowed(case: Case, kept: float) -> float:
    """The share of a strategy's bandwidth that is left in this case.

    Args:
        case: Whose rows are read or written along their last axis.
        kept: The share that was measured with accesses of 4 bytes; other widths are taken to
            lie on the same curve, 1 at 16 bytes, with the same factor for each halving.
    """
    halvings = log2(MOVED_BYTES / access_bytes(case)) / log2(MOVED_BYTES / _MEASURED_BYTES)
    return float(kept**halvings)
