"""The planner as a role of the search."""

from agents.llm.client import LLMClient
from agents.planner.planner import Planner
from agents.planner.playbook import PlaybookPlanner
from agents.planner.unplanned import unplanned
from agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Planner:
    return PlaybookPlanner(setting.repertoire)


def _by_model(client: LLMClient, setting: RoleSetting) -> Planner:
    from agents.planner.model import ModelPlanner

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
