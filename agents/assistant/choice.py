"""Which assistant talks with the person: rules, or a language model with rules behind it."""

from kernelwright.agents.assistant.rules import RulesAssistant
from kernelwright.agents.assistant.types.chat import Assistant
from kernelwright.agents.llm.endpoint import OnPiece
from kernelwright.profiles.models import ModelProfile

# Somebody sits there and waits; after this, rules answer.
PATIENCE_S = 45.0
RETRIES = 1


def assistant_for(profile: ModelProfile | None, on_piece: OnPiece | None = None) -> Assistant:
    """The assistant behind a model's profile.

    Args:
        profile: The model; None, or a person who answers by files, leaves it to the rules.
        on_piece: Called with the pieces of a streamed answer.
    """
    if profile is None or profile.kind == "manual":
        return RulesAssistant()
    from kernelwright.agents.assistant.model import ModelAssistant
    from kernelwright.agents.llm.clients import endpoint_client

    patient = {
        "timeout_s": min(profile.timeout_s, PATIENCE_S),
        "retries": min(profile.retries, RETRIES),
    }
    return ModelAssistant(endpoint_client(profile.model_copy(update=patient), on_piece=on_piece))
