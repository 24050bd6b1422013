"""The person's own kernel in a run: kept as one of its terms, so that a resume knows it too."""

from kernelwright.agents.coder.role import CODER
from kernelwright.agents.planner.role import PLANNER
from kernelwright.agents.roles.agent_set import AgentSet
from kernelwright.agents.roles.starting import StartingCoder, StartingPlanner
from kernelwright.agents.shared.start import Start
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Archive
from kernelwright.tools.languages import default_language, language_named
from kernelwright.tools.types import Refusal

_TERM = "start"


def refusal(start: Start | None, hardware: Hardware, *, has_model: bool) -> Refusal | None:
    """Why a search here cannot begin with that kernel; None when it can."""
    if start is None:
        return None
    if language_named(start.language).spec.device != hardware.kind:
        return Refusal(
            sentence=f"{start.name} is {start.language}, but a search on {hardware.name} "
            f"takes {default_language(hardware.kind).spec.name}"
        )
    if not start.plan and not has_model:
        return Refusal(
            sentence=f"{start.name} has no plan, and without a model nobody can write one: put a "
            "plan.py beside it, or name a model"
        )
    return None


def keep_start(archive: Archive, start: Start | None) -> None:
    """Make a kernel, if there is one, the beginning of this run."""
    if start is not None:
        archive.record_term(_TERM, start.model_dump_json())


def start_of(archive: Archive) -> Start | None:
    """The kernel that this run begins with, if any."""
    kept = archive.term(_TERM)
    return Start.model_validate_json(kept) if kept else None


def starting_from(archive: Archive, minds: AgentSet) -> AgentSet:
    """Minds that begin with the person's kernel, where the run has one."""
    start = start_of(archive)
    if start is None:
        return minds
    begun = minds.replaced(PLANNER, StartingPlanner(minds.planner, start))
    return begun.replaced(CODER, StartingCoder(minds.coder, start))
