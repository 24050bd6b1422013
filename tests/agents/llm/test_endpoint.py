import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from pydantic import BaseModel

from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.chat_model import ReasoningChat, retry_after_s
from kernelwright.agents.llm.client import LLMError, ServerFaultError
from kernelwright.agents.llm.endpoint import EndpointClient
from kernelwright.agents.llm.wrappers import endpoint_client
from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Message, Prompt

PROMPT = Prompt(
    key="critic:1",
    role="critic",
    messages=(
        Message(author="system", text="You are a critic."),
        Message(author="person", text="What explains the gap?"),
        Message(author="person", text="Be brief."),
    ),
)
TEXT = json.dumps({"claims": ["a reads {twice}", "b does not"], "implies": "read once"})

Serve = Callable[..., object]
ProfileFor = Callable[..., ModelProfile]


class View(BaseModel):
    claims: tuple[str, ...]
    implies: str = ""


@pytest.mark.parametrize("stream", [True, False])
async def test_a_good_server_answers_and_is_counted(
    serve: Serve, profile_for: ProfileFor, stream: bool
) -> None:
    server = serve("The second read.")
    profile = profile_for(server, stream=stream, usd_per_million_input=2, usd_per_million_output=8)
    reply = await endpoint_client(profile).say(PROMPT)
    assert reply.text == "The second read."
    assert reply.model == "tiny-model"
    assert (reply.tokens.input, reply.tokens.output) == (100, 4)
    assert reply.usd == pytest.approx((100 * 2 + 4 * 8) / 1e6)
    assert reply.finish == "stop"
    assert reply.attempts == 1
    assert reply.seconds > 0
    (request,) = server.requests
    assert [item["role"] for item in request["messages"]] == ["system", "user"]
    assert request["messages"][1]["content"] == "What explains the gap?\n\nBe brief."
    assert request["max_completion_tokens"] == request["max_tokens"] == profile.reply_tokens
    assert "temperature" not in request


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
async def test_every_kind_of_fault_is_survived(
    misbehaving: object, serve: Serve, profile_for: ProfileFor, stream: bool
) -> None:
    for fault in misbehaving.Fault:
        server = serve(TEXT, fault, stall_s=60.0)
        patience_s = 2.0 if fault is misbehaving.Fault.STALLED else 60.0
        profile = profile_for(server, stream=stream, timeout_s=patience_s)
        found = await answer(endpoint_client(profile), PROMPT, View)
        assert found.value.claims[0] == "a reads {twice}", fault
        assert found.reply.text, fault
        asked_again = fault in misbehaving.UNANSWERED
        assert len(server.requests) == (2 if asked_again else 1), fault


async def test_half_a_character_does_not_spoil_the_rest(
    serve: Serve, profile_for: ProfileFor
) -> None:
    for stream in (True, False):
        reply = await endpoint_client(profile_for(serve("fast \ud83d"), stream=stream)).say(PROMPT)
        assert reply.text == "fast ?"


async def test_a_fault_that_stays_is_one_sentence_and_a_bounded_number_of_requests(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    faults = misbehaving.Fault
    for fault in (*misbehaving.UNANSWERED - {faults.NONSENSE},):
        server = serve(TEXT, *[fault] * 50, stall_s=60.0)
        patience_s = 0.5 if fault is faults.STALLED else 60.0
        profile = profile_for(server, timeout_s=patience_s, retries=3)
        with pytest.raises(LLMError) as raised:
            await endpoint_client(profile).say(PROMPT)
        words = str(raised.value)
        assert "tiny-model" in words, fault
        assert "\n" not in words, fault
        assert 2 <= len(server.requests) <= 4, fault
        assert f"asked {len(server.requests)} times" in words


async def test_a_server_that_is_gone_is_asked_once_only_until_it_is_back(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    server = serve(TEXT, *[misbehaving.Fault.SERVER_ERROR] * 7)
    client = endpoint_client(profile_for(server, retries=2))
    asked = []
    for _ in range(4):
        before = len(server.requests)
        with suppress(LLMError):
            await client.say(PROMPT)
        asked.append(len(server.requests) - before)
    assert asked == [3, 3, 1, 1]


async def test_nobody_listening_is_a_llm_error(profile_for: ProfileFor, serve: Serve) -> None:
    server = serve(TEXT)
    profile = profile_for(server, retries=1)
    server.close()
    with pytest.raises(LLMError, match="cannot be reached"):
        await endpoint_client(profile).say(PROMPT)


async def test_a_server_is_waited_for_as_long_as_it_says(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    server = serve(TEXT, misbehaving.Fault.RATE_LIMITED_WITH_TIME, wait_s=0.4)
    began = time.monotonic()
    reply = await endpoint_client(profile_for(server)).say(PROMPT)
    assert time.monotonic() - began >= 0.4
    assert reply.attempts == 2
    assert reply.seconds >= 0.4


async def test_a_server_that_wants_an_hour_is_not_waited_for(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    server = serve(TEXT, *[misbehaving.Fault.RATE_LIMITED_WITH_TIME] * 3, wait_s=3600)
    with pytest.raises(LLMError, match="asked too often"):
        await endpoint_client(profile_for(server)).say(PROMPT)
    assert len(server.requests) == 1


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after_s("1.5") == 1.5
    assert retry_after_s("-3") == 0.0
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after_s("soon") is None
    assert retry_after_s(None) is None


async def test_pieces_are_shown_as_they_come_and_add_up(
    serve: Serve, profile_for: ProfileFor
) -> None:
    text = "word " * 50
    pieces: list[str] = []
    client = endpoint_client(
        profile_for(serve(text)), on_piece=lambda prompt, piece: pieces.append(piece)
    )
    await client.say(PROMPT)
    assert len(pieces) > 3
    assert "".join(pieces) == text


async def test_an_answer_that_begins_anew_says_so(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    pieces: list[str] = []
    server = serve(TEXT, misbehaving.Fault.RESET)
    client = endpoint_client(
        profile_for(server), on_piece=lambda prompt, piece: pieces.append(piece)
    )
    await client.say(PROMPT)
    begun = [place for place, piece in enumerate(pieces) if not piece]
    assert len(begun) == 2
    assert begun[0] == 0
    assert "".join(pieces[begun[1] :]) == TEXT


async def test_thinking_in_tags_is_kept_beside_the_answer(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    server = serve(TEXT, misbehaving.Fault.THINKING)
    reply = await endpoint_client(profile_for(server)).say(PROMPT)
    assert reply.text == TEXT
    assert reply.reasoning.startswith("Let me see")


async def test_what_a_broken_stream_cost_is_not_forgotten(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    server = serve("x" * 3000, misbehaving.Fault.RESET, misbehaving.Fault.RESET)
    profile = profile_for(server, retries=1, usd_per_million_input=1, usd_per_million_output=1)
    with pytest.raises(LLMError) as raised:
        await endpoint_client(profile).say(PROMPT)
    assert raised.value.lost.output > 100
    assert raised.value.lost_usd == pytest.approx(
        (raised.value.lost.input + raised.value.lost.output) / 1e6
    )


class Picky:
    """A server that refuses parameters, as `benchmarks/models/misbehaving_server.py` does not."""

    def __init__(self, *refused: str, status: str = "400 Bad Request") -> None:
        self.refused = refused
        self.status = status
        self.requests: list[dict[str, object]] = []
        self.headers: dict[str, str] = {}
        self.base_url = ""

    async def __aenter__(self) -> "Picky":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = [line.split(": ", 1) for line in head.split("\r\n")[1:] if line]
        self.headers = {name.lower(): value for name, value in lines}
        request = json.loads(await reader.readexactly(int(self.headers["content-length"])))
        self.requests.append(request)
        wrong = next((name for name in self.refused if name in request), None)
        message = {"role": "assistant", "content": "fine", "reasoning_content": "a thought"}
        body: dict[str, object] = {
            "id": "x", "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }  # fmt: skip
        if wrong:
            body = {"error": {"message": f"1 validation error: Unsupported parameter: '{wrong}'"}}
        text = json.dumps(body).encode()
        status = self.status if wrong else "200 OK"
        answer = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        writer.write(answer.encode() + text)
        await writer.drain()
        writer.close()


async def test_parameters_that_a_server_refuses_are_left_out_from_then_on(
    profile_for: ProfileFor,
) -> None:
    async with Picky("temperature", "reasoning_effort", "max_tokens", "response_format") as server:
        profile = profile_for(
            server, stream=False, temperature=0.3, reasoning_effort="low",
            schema_mode="json_object", retries=0,
        )  # fmt: skip
        client = endpoint_client(profile)
        prompt = PROMPT.model_copy(update={"answer_schema": "{}"})
        assert (await client.say(prompt)).text == "fine"
        assert len(server.requests) == 5
        await client.say(prompt)
        assert len(server.requests) == 6
        assert "max_completion_tokens" in server.requests[-1]


async def test_a_refusal_may_come_as_a_fault_of_the_server(profile_for: ProfileFor) -> None:
    """So does llama.cpp's Python server with a `response_format` that it does not know."""
    async with Picky("response_format", status="500 Internal Server Error") as server:
        client = endpoint_client(profile_for(server, stream=False, schema_mode="json_schema"))
        prompt = PROMPT.model_copy(update={"answer_schema": "{}"})
        assert (await client.say(prompt)).text == "fine"
        assert len(server.requests) == 2


async def test_an_answer_gets_shorter_where_the_context_is_tight(
    serve: Serve, profile_for: ProfileFor
) -> None:
    server = serve(TEXT)
    client = endpoint_client(profile_for(server, context_tokens=4000, reply_tokens=2000))
    for characters in (100, 8000, 30_000):
        words = Message(author="person", text="x" * characters)
        await client.say(PROMPT.model_copy(update={"messages": (words,)}))
    allowed = [request["max_completion_tokens"] for request in server.requests]
    assert allowed[0] == 2000
    assert 1000 < allowed[1] < 2000
    assert allowed[2] == 1000


async def test_a_request_that_is_refused_for_good_is_not_repeated(profile_for: ProfileFor) -> None:
    async with Picky("messages") as server:
        with pytest.raises(LLMError, match=r"HTTP 400.*messages"):
            await endpoint_client(profile_for(server, stream=False)).say(PROMPT)
        assert len(server.requests) == 1


async def test_the_library_still_hands_over_the_reasoning(profile_for: ProfileFor) -> None:
    async with Picky() as server:
        reply = await EndpointClient(profile_for(server, stream=False)).say(PROMPT)
    assert reply.reasoning == "a thought"
    assert reply.tokens.input > 0  # the server counts nothing: an estimate stands in
    for hook in ("_create_chat_result", "_convert_chunk_to_generation_chunk"):
        assert hasattr(ReasoningChat.__mro__[1], hook)


async def test_only_the_profile_says_where_and_with_which_key(
    profile_for: ProfileFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/elsewhere")
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:1/elsewhere")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-not-for-you")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-not-for-you")
    monkeypatch.setenv("MY_KEY", "for-you")
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    async with Picky() as server:
        await EndpointClient(profile_for(server, stream=False)).say(PROMPT)
        assert server.headers["authorization"] == "Bearer unused"
        with_key = profile_for(server, stream=False, api_key_env="MY_KEY")
        await EndpointClient(with_key).say(PROMPT)
        assert server.headers["authorization"] == "Bearer for-you"
        assert not [value for value in server.headers.values() if "not-for-you" in value]


async def test_a_key_is_never_in_the_words_of_a_fault(
    profile_for: ProfileFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "messages")
    async with Picky("messages") as server:
        profile = profile_for(server, stream=False, api_key_env="MY_KEY")
        with pytest.raises(ServerFaultError) as raised:
            await EndpointClient(profile).say(PROMPT)
    assert "messages" not in str(raised.value)


@pytest.mark.parametrize("lacking", ["base_url", "model"])
async def test_a_profile_without_an_address_reaches_nobody(lacking: str) -> None:
    fields = {"base_url": "http://127.0.0.1:1/v1", "model": "m"} | {lacking: ""}
    with pytest.raises(LLMError, match=f"has no {lacking}"):
        await endpoint_client(ModelProfile(name="p", retry_wait_s=0, **fields)).say(PROMPT)


async def test_a_rate_limit_spreads_requests(serve: Serve, profile_for: ProfileFor) -> None:
    client = endpoint_client(profile_for(serve(TEXT), requests_per_second=10))
    began = time.monotonic()
    await asyncio.gather(*(client.say(PROMPT) for _ in range(4)))
    assert time.monotonic() - began >= 0.25


@pytest.mark.parametrize("most", [1, 3, None])
async def test_no_more_requests_than_a_profile_says_are_under_way(
    most: int | None, serve: Serve, profile_for: ProfileFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, under_way, seen = EndpointClient._listen, [], []

    async def counted(self: EndpointClient, *given: object) -> None:
        under_way.append(1)
        seen.append(len(under_way))
        await asyncio.sleep(0.02)
        await usual(self, *given)
        under_way.pop()

    monkeypatch.setattr(EndpointClient, "_listen", counted)
    client = EndpointClient(profile_for(serve(TEXT), requests_at_once=most))
    replies = await asyncio.gather(*(client.say(PROMPT) for _ in range(6)))
    assert len(replies) == 6
    assert max(seen) == (most or 6)


async def test_a_question_that_is_cancelled_ends_at_once(
    misbehaving: object, serve: Serve, profile_for: ProfileFor
) -> None:
    """Not when the server goes on or its time is over, which would both be minutes."""
    server = serve(TEXT, misbehaving.Fault.STALLED, stall_s=600.0)
    client = endpoint_client(profile_for(server, timeout_s=600.0))
    task = asyncio.create_task(client.say(PROMPT))
    while not server.requests:  # noqa: ASYNC110 - the server's threads announce nothing
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
