"""The strategist as a role of the search; by rules there is none, for rules have no prompts."""

from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.role import Appearance, Role, RoleSetting
from kernelwright.agents.strategist.strategist import Strategist


def _by_rules(setting: RoleSetting) -> None:
    return None


def _by_model(client: LLMClient, setting: RoleSetting) -> Strategist:
    from kernelwright.agents.strategist.strategist import ModelStrategist

    return ModelStrategist(client, setting.task, setting.hardware)


STRATEGIST: Role[Strategist | None] = Role(
    name="strategist",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Strategist", "green", "git-branch"),
)
