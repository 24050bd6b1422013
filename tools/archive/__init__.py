"""The archive: one folder and one SQLite database a run, durable before anyone acts upon it.

`Archive.create` and `Archive.open` are the doors; `list_runs` shows what there is. Events are kept
as text, for what they mean is said in `graphs.run_view.events`.
"""

from kernelwright.tools.archive.archive import Archive, list_runs
from kernelwright.tools.archive.behaviour import (
    UNKNOWN,
    Behaviour,
    Transition,
    apart,
    behaviour,
    gain,
    improvements,
    is_timed,
    origin,
    ranked,
    ratio,
    transitions,
)
from kernelwright.tools.archive.elites import Elite, elites, island, parents, population, warm_up
from kernelwright.tools.archive.records import (
    Author,
    CorruptRunError,
    NotRecordedError,
    RunBusyError,
    RunError,
    RunInfo,
    RunRecord,
    RunStatus,
    Standing,
    StoredEvent,
    Target,
    UnknownRunError,
    Written,
    run_folders,
)
from kernelwright.tools.runtime import home as default_home

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
