"""The planner as a role of the search."""

from agents.ablated import unplanned
from agents.model.voice import Voice
from agents.planner import Planner, PlaybookPlanner
from agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Planner:
    return PlaybookPlanner(setting.repertoire)


def _by_model(voice: Voice, setting: RoleSetting) -> Planner:
    from agents.minds.planner import ModelPlanner

    behind = _by_rules(setting)
    return ModelPlanner(voice, setting.task, setting.hardware, behind, setting.repertoire)


PLANNER: Role[Planner] = Role(
    name="planner",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Planner", "magenta", "lightbulb"),
    part="ideas",
    switch_off=unplanned,
)
