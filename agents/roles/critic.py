"""The critic as a role of the search."""

from agents.ablated import silenced
from agents.critic import Critic, PlaybookCritic
from agents.model.voice import Voice
from agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Critic:
    return PlaybookCritic()


def _by_model(voice: Voice, setting: RoleSetting) -> Critic:
    from agents.minds.critic import ModelCritic

    return ModelCritic(voice, PlaybookCritic())


CRITIC: Role[Critic] = Role(
    name="critic",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Critic", "red", "scale"),
    part="contrast",
    switch_off=silenced,
)
