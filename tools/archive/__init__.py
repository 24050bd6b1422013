"""The archive: one folder and one SQLite database a run, durable before anyone acts upon it.

`Archive.create` and `Archive.open` are the doors; `list_runs` shows what there is. Events are kept
as text, for what they mean is said in `graphs.run_view.events`.
"""

from kernelwright.tools.archive.behaviour import UNKNOWN, Behaviour, behaviour
from kernelwright.tools.archive.elites import Elite, elites, parents, warm_up
from kernelwright.tools.archive.errors import (
    CorruptRunError,
    NotRecordedError,
    RunBusyError,
    RunError,
    UnknownRunError,
)
from kernelwright.tools.archive.islands import island, population
from kernelwright.tools.archive.listing import list_runs
from kernelwright.tools.archive.places import run_folders
from kernelwright.tools.archive.ranking import apart, is_timed, ranked, ratio
from kernelwright.tools.archive.records import (
    Author,
    RunInfo,
    RunRecord,
    RunStatus,
    Standing,
    StoredEvent,
    Target,
    Written,
)
from kernelwright.tools.archive.store import Archive
from kernelwright.tools.archive.transitions import (
    Transition,
    gain,
    improvements,
    origin,
    transitions,
)
from kernelwright.tools.home import home as default_home

__all__ = [
    "UNKNOWN",
    "Archive",
    "Author",
    "Behaviour",
    "CorruptRunError",
    "Elite",
    "NotRecordedError",
    "RunBusyError",
    "RunError",
    "RunInfo",
    "RunRecord",
    "RunStatus",
    "Standing",
    "StoredEvent",
    "Target",
    "Transition",
    "UnknownRunError",
    "Written",
    "apart",
    "behaviour",
    "default_home",
    "elites",
    "gain",
    "improvements",
    "is_timed",
    "island",
    "list_runs",
    "origin",
    "parents",
    "population",
    "ranked",
    "ratio",
    "run_folders",
    "transitions",
    "warm_up",
]
