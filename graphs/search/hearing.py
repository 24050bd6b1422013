"""How the critic is asked in a run: kept with its terms, so that a replay asks as the run did.

Runs from before this was kept were asked after their last round too, and were shown exemplars by
speed alone.
"""

from kernelwright.agents.critic.critic import Manner
from kernelwright.tools.archive import Archive

_TERM = "critic"


def keep_manner(archive: Archive) -> None:
    """Let the critic of a new run be asked as is done now."""
    archive.record_term(_TERM, Manner(relatives=True, after_the_last=False).model_dump_json())


def manner_of(archive: Archive) -> Manner:
    """How the critic of this run is asked."""
    kept = archive.term(_TERM)
    return Manner.model_validate_json(kept) if kept else Manner()
