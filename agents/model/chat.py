"""The one place where a chat model is made, and the reasoning text that the library drops.

Everything is given explicitly: what the library would otherwise read from the environment could
send a prompt, or a key, to somebody who was not asked for. Two private hooks keep the reasoning;
a test pins them.
"""

import os
from typing import cast

from langchain_core.messages import BaseMessage, BaseMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_openai import ChatOpenAI
from openai import BaseModel, DefaultAsyncHttpxClient
from pydantic import SecretStr

from agents.model.voice import VoiceError
from profiles.models import ModelProfile

# Servers without keys want none, but the client does not start without one.
NO_KEY = "unused"
# Names under which servers put what a model thought before it answered.
_REASONING = ("reasoning_content", "reasoning")


class ReasoningChat(ChatOpenAI):
    """Keeps the reasoning that servers like vLLM and llama.cpp put beside the answer."""

    def _create_chat_result(
        self,
        response: dict[str, object] | BaseModel,
        generation_info: dict[str, object] | None = None,
    ) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        raw = response if isinstance(response, dict) else response.model_dump()
        choices = cast(list[dict[str, dict[str, object]]], raw["choices"])
        for generation, choice in zip(result.generations, choices, strict=False):
            _keep(generation.message, choice["message"])
        return result

    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, object],
        default_chunk_class: type[BaseMessageChunk],
        base_generation_info: dict[str, object] | None,
    ) -> ChatGenerationChunk | None:
        made = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        choices = cast(list[dict[str, dict[str, object] | None]], chunk.get("choices") or [])
        if made is not None and choices:
            _keep(made.message, choices[0].get("delta") or {})
        return made


def chat_model(profile: ModelProfile) -> ReasoningChat:
    """A chat model that asks once; asking again is for `agents.model.patient`.

    Raises:
        VoiceError: The profile names no address or no model.
    """
    if not profile.base_url or not profile.model:
        lacking = "model" if profile.base_url else "base_url"
        raise VoiceError(f"model profile {profile.name!r} has no {lacking}")
    per_second = profile.requests_per_second
    chat = ReasoningChat(
        base_url=profile.base_url,
        api_key=SecretStr(key_of(profile)),
        model=profile.model,
        use_responses_api=False,
        # A silent model that thinks is cut off by our own clock, not by the library's.
        stream_chunk_timeout=None,
        timeout=profile.timeout_s,
        max_retries=0,
        rate_limiter=InMemoryRateLimiter(requests_per_second=per_second) if per_second else None,
        # The library's own client is shared by all event loops, which its connections are not.
        http_async_client=DefaultAsyncHttpxClient(),
    )
    # Taken from OPENAI_ORG_ID and OPENAI_PROJECT_ID, which are nobody else's business.
    chat.root_async_client.organization = chat.root_async_client.project = None
    return chat


def key_of(profile: ModelProfile) -> str:
    """The key that the profile's environment variable holds; no other is ever sent."""
    return (os.environ.get(profile.api_key_env) if profile.api_key_env else None) or NO_KEY


def _keep(message: BaseMessage, raw: dict[str, object]) -> None:
    for name in _REASONING:
        if isinstance(text := raw.get(name), str) and text:
            message.additional_kwargs["reasoning_content"] = text
            return
