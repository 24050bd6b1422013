"""One view of a run: folded from its events one by one, and read by everything that shows a run.

`fold` is the only place where events become state, and `figures` the only one where evaluations
become figures with a label. Terminal, chat, trace and report read a `RunView`; a run that is read
from its archive is its stored events, folded, and `completed` by what events do not tell.
"""

from kernelwright.graphs.run_view.folding import completed, fold, folded
from kernelwright.graphs.run_view.view import (
    LEADER_COLUMNS,
    CandidateView,
    RunView,
    counts_of,
    leader_rows,
)

__all__ = [
    "LEADER_COLUMNS",
    "CandidateView",
    "RunView",
    "completed",
    "counts_of",
    "fold",
    "folded",
    "leader_rows",
]
