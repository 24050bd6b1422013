from kernelwright.agents.assistant.model import ModelAssistant, assistant_for
from kernelwright.agents.assistant.rules import RulesAssistant
from kernelwright.profiles.load import ModelProfile


def test_rules_talk_where_there_is_no_model_that_could() -> None:
    manual = ModelProfile(name="manual", kind="manual", model="manual")
    assert isinstance(assistant_for(None), RulesAssistant)
    assert isinstance(assistant_for(manual), RulesAssistant)


def test_a_model_talks_where_there_is_one() -> None:
    profile = ModelProfile(name="m", model="m", base_url="http://127.0.0.1:9/v1")
    assert isinstance(assistant_for(profile), ModelAssistant)
