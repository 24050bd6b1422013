"""The person's own kernel in a run: kept as one of its terms, so that a resume knows it too."""

from agents.coder import Coder
from agents.planner import Planner
from agents.starting import Start, StartingCoder, StartingPlanner
from tools.archive import Archive

_TERM = "start"


def keep_start(archive: Archive, start: Start) -> None:
    """Make a kernel the beginning of this run."""
    archive.record_term(_TERM, start.model_dump_json())


def start_of(archive: Archive) -> Start | None:
    """The kernel that this run begins with, if any."""
    kept = archive.term(_TERM)
    return Start.model_validate_json(kept) if kept else None


def starting_from(archive: Archive, planner: Planner, coder: Coder) -> tuple[Planner, Coder]:
    """Planner and coder that begin with the person's kernel, where the run has one."""
    start = start_of(archive)
    if start is None:
        return planner, coder
    return StartingPlanner(planner, start), StartingCoder(coder, start)
