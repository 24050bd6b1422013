"""What the library raises, as one sentence and whether to ask again."""

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import openai

from agents.model.chat import key_of
from agents.model.faults import ALWAYS, NEVER, TWICE, ServerFaultError
from agents.model.voice import VoiceError
from profiles.models import ModelProfile

# A server that wants us to wait longer is as good as gone for this question.
LONGEST_WAIT_S = 120.0
_PASSING = frozenset({408, 409, 425, 429})
_SHOWN = 240


def fault_of(error: Exception, profile: ModelProfile) -> ServerFaultError:
    """What an attempt raised, in words; the library raises anything on a malformed body."""
    who = f"the model {profile.model} at {profile.base_url}"
    if isinstance(error, ServerFaultError):
        return error
    if isinstance(error, VoiceError):  # the profile itself is at fault
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
