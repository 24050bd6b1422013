"""The one test against a real server; KERNELWRIGHT_TEST_BASE_URL and _MODEL say where it is."""

import os

import pytest
from pydantic import BaseModel, Field

from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.json_text import blocks
from kernelwright.agents.llm.wrappers import endpoint_client
from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Message, Prompt

BASE_URL = os.environ.get("KERNELWRIGHT_TEST_BASE_URL", "")
PROFILE = ModelProfile(
    name="real",
    model=os.environ.get("KERNELWRIGHT_TEST_MODEL", "default"),
    base_url=BASE_URL,
    api_key_env="KERNELWRIGHT_TEST_API_KEY",
    timeout_s=300,
)

pytestmark = pytest.mark.skipif(not BASE_URL, reason="KERNELWRIGHT_TEST_BASE_URL is not set")


class Sum(BaseModel):
    total: int = Field(description="the sum of the numbers")
    words: str = Field(default="", description="the sum in words")


def question(words: str) -> Prompt:
    system = Message(author="system", text="You answer briefly and exactly.")
    person = Message(author="person", text=words)
    return Prompt(key="probe", role="planner", messages=(system, person), reply_tokens=2048)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", ["text", "json_object", "json_schema"])
async def test_a_real_model_answers_in_the_form_that_was_asked_for(stream: bool, mode: str) -> None:
    profile = PROFILE.model_copy(update={"stream": stream, "schema_mode": mode})
    found = await answer(endpoint_client(profile), question("What is 20 + 22?"), Sum)
    assert found.value.total == 42
    assert found.reply.tokens.input > 0
    assert found.reply.tokens.output > 0


async def test_a_real_model_writes_code_into_a_block() -> None:
    words = "Write a CUDA kernel that adds two float arrays, in one ```cuda block."
    reply = await endpoint_client(PROFILE).say(question(words))
    assert any("__global__" in block.text for block in blocks(reply.text))
