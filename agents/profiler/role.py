"""The profiler as a role of the search."""

from agents.llm.client import Voice
from agents.profiler.profiler import PlaybookProfiler, Profiler
from agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Profiler:
    return PlaybookProfiler()


def _by_model(voice: Voice, setting: RoleSetting) -> Profiler:
    from agents.profiler.model import ModelProfiler

    return ModelProfiler(voice, PlaybookProfiler())


PROFILER: Role[Profiler] = Role(
    name="profiler",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Profiler", "yellow", "gauge"),
)
