"""The chat model of langchain-openai with the reasoning that it drops, and its errors in words.

Everything is given explicitly: what the library would otherwise read from the environment could
send a prompt, or a key, to somebody who was not asked for. Two private hooks keep the reasoning;
a test pins them. The library takes seconds to import, so this is imported where a server is asked.
"""

import asyncio
import os
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

import openai
from langchain_core.messages import BaseMessage, BaseMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_openai import ChatOpenAI
from openai import BaseModel, DefaultAsyncHttpxClient
from pydantic import SecretStr

from kernelwright.agents.llm.client import ALWAYS, NEVER, TWICE, LLMError, ServerFaultError
from kernelwright.profiles.load import ModelProfile

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
    """A chat model that asks once; asking again is for `agents.llm.wrappers`.

    Raises:
        LLMError: The profile names no address or no model.
    """
    if not profile.base_url or not profile.model:
        lacking = "model" if profile.base_url else "base_url"
        raise LLMError(f"model profile {profile.name!r} has no {lacking}")
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


# A server that wants us to wait longer is as good as gone for this question.
LONGEST_WAIT_S = 120.0
_PASSING = frozenset({408, 409, 425, 429})
_SHOWN = 240


def fault_of(error: Exception, profile: ModelProfile) -> ServerFaultError:
    """What an attempt raised, in words; the library raises anything on a malformed body."""
    who = f"the model {profile.model} at {profile.base_url}"
    if isinstance(error, ServerFaultError):
        return error
    if isinstance(error, LLMError):  # the profile itself is at fault
        return ServerFaultError(str(error), NEVER)
    if isinstance(error, TimeoutError | asyncio.TimeoutError | openai.APITimeoutError):
        return ServerFaultError(f"{who} did not answer within {profile.timeout_s:g} s", TWICE)
    if isinstance(error, openai.APIStatusError):
        return _status(error, profile, who)
    words = _words(error, profile)
    if isinstance(error, openai.APIConnectionError):
        cause = _words(error.__cause__, profile) if error.__cause__ else words
        return ServerFaultError(f"{who} cannot be reached: {cause}", ALWAYS)
    kind = type(error).__name__
    return ServerFaultError(f"{who} sent no proper answer ({kind}: {words})", ALWAYS)


def said_by(error: Exception) -> str:
    """What the server said of a request that it refused; "" if it did not refuse one.

    llama.cpp's Python server says 500 where a field of the request is not among those it knows.
    """
    refusals = (openai.BadRequestError, openai.UnprocessableEntityError)
    told = ("tools param requires", "validation error")
    refused = isinstance(error, refusals) or any(words in str(error) for words in told)
    return str(error) if refused else ""


def _status(error: openai.APIStatusError, profile: ModelProfile, who: str) -> ServerFaultError:
    code, words = error.status_code, _words(error, profile)
    if code in (401, 403):
        key = profile.api_key_env or "a key (its profile names no variable that holds one)"
        return ServerFaultError(f"{who} refuses the key (HTTP {code}); check {key}", NEVER)
    if code == 404:
        return ServerFaultError(f"{who} does not exist (HTTP 404): {words}", NEVER)
    after_s = retry_after_s(error.response.headers.get("retry-after"))
    passing = code in _PASSING or code >= 500
    if "insufficient_quota" in str(error) or (after_s or 0.0) > LONGEST_WAIT_S:
        passing = False
    sentence = f"{who} failed (HTTP {code}): {words}"
    if code == 429:
        sentence = f"{who} is asked too often (HTTP 429): {words}"
    return ServerFaultError(sentence, ALWAYS if passing else NEVER, after_s)


def retry_after_s(header: str | None) -> float | None:
    """The seconds that a Retry-After header asks for: a number, or a date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _words(error: BaseException, profile: ModelProfile) -> str:
    """One line of what was said, never with our key in it."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.replace(key_of(profile), "(key)")[:_SHOWN]
