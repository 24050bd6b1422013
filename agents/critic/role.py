"""The critic as a role of the search."""

from kernelwright.agents.critic.critic import Critic, PlaybookCritic, silenced
from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Critic:
    return PlaybookCritic()


def _by_model(client: LLMClient, setting: RoleSetting) -> Critic:
    from kernelwright.agents.critic.model import ModelCritic

    return ModelCritic(client, PlaybookCritic())


CRITIC: Role[Critic] = Role(
    name="critic",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Critic", "red", "scale"),
    part="contrast",
    switch_off=silenced,
)
