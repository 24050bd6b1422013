"""The profiler as a role of the search."""

from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.profiler.profiler import PlaybookProfiler, Profiler
from kernelwright.agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Profiler:
    return PlaybookProfiler()


def _by_model(client: LLMClient, setting: RoleSetting) -> Profiler:
    from kernelwright.agents.profiler.profiler import ModelProfiler

    return ModelProfiler(client, PlaybookProfiler())


PROFILER: Role[Profiler] = Role(
    name="profiler",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Profiler", "yellow", "gauge"),
)
