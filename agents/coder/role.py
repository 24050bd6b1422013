"""The coder as a role of the search."""

from kernelwright.agents.coder.coder import Coder, PlaybookCoder
from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.role import Appearance, Role, RoleSetting


def _by_rules(setting: RoleSetting) -> Coder:
    return PlaybookCoder(setting.repertoire)


def _by_model(client: LLMClient, setting: RoleSetting) -> Coder:
    from kernelwright.agents.coder.model import ModelCoder

    behind, repertoire = _by_rules(setting), setting.repertoire
    return ModelCoder(client, setting.task, setting.hardware, behind, repertoire, setting.start)


CODER: Role[Coder] = Role(
    name="coder",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Coder", "blue", "code"),
)
