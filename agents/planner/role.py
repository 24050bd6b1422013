"""The planner as a role of the search."""

from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.planner.planner import Planner
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.planner.unplanned import unplanned
from kernelwright.agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Planner:
    return PlaybookPlanner(setting.repertoire)


def _by_model(client: LLMClient, setting: RoleSetting) -> Planner:
    from kernelwright.agents.planner.model import ModelPlanner

    behind = _by_rules(setting)
    return ModelPlanner(client, setting.task, setting.hardware, behind, setting.repertoire)


PLANNER: Role[Planner] = Role(
    name="planner",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Planner", "magenta", "lightbulb"),
    part="ideas",
    switch_off=unplanned,
)
