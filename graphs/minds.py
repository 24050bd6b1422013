"""Who thinks in a search. The playbook needs no key; other minds join here."""

from agents.coder import PlaybookCoder
from agents.critic import PlaybookCritic
from agents.planner import PlaybookPlanner
from agents.profiler import PlaybookProfiler
from graphs.context import Circumstances, Minds


def playbook_minds(around: Circumstances) -> Minds:
    """All four roles by built-in expertise."""
    from agents.playbook.repertoire import repertoire_for

    repertoire = repertoire_for(around.task, around.hardware)
    return Minds(
        planner=PlaybookPlanner(repertoire),
        coder=PlaybookCoder(repertoire),
        profiler=PlaybookProfiler(),
        critic=PlaybookCritic(),
    )
