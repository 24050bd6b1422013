"""Who thinks in a search. The playbook needs no key; other minds join here."""

from agents.coder import PlaybookCoder
from agents.critic import PlaybookCritic
from agents.planner import PlaybookPlanner
from agents.profiler import PlaybookProfiler
from graphs.context import Minds
from profiles.load import Hardware
from tools.nouns import Task


def playbook_minds(task: Task, hardware: Hardware) -> Minds:
    """All four roles by built-in expertise."""
    from agents.playbook.repertoire import repertoire_for

    repertoire = repertoire_for(task, hardware)
    return Minds(
        planner=PlaybookPlanner(repertoire),
        coder=PlaybookCoder(repertoire),
        profiler=PlaybookProfiler(),
        critic=PlaybookCritic(),
    )
