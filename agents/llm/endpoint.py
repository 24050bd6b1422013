"""A client behind an OpenAI-compatible endpoint: one prompt, one request, one reply.

Whatever the server does ends as a reply or as a `ServerFaultError`. Parameters that a server does
not know are left out from then on. Not here: asking again (`agents.llm.wrappers`) and what may be
spent (`agents.llm.client`).
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from kernelwright.agents.llm.client import (
    TWICE,
    LLMError,
    NoToolsError,
    ServerFaultError,
    price,
    tokens_in,
    tokens_of,
)
from kernelwright.agents.llm.json_text import without_thinking
from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Message, Prompt, Reply, ToolCall, Value
from kernelwright.tools.types.run import TokenCounts

if TYPE_CHECKING:  # takes seconds to import, and a search by the playbook never needs it
    from langchain_core.messages import BaseMessage

    from kernelwright.agents.llm.chat_model import ReasoningChat


class StreamedAnswer:
    """What a server has said so far.

    `tokens` is None until the server counts; `finish` is "" until it says why it stopped.
    """

    def __init__(self) -> None:
        self.thinking = ""
        self.model = ""
        self.finish = ""
        self.tokens: TokenCounts | None = None
        self._text: list[str] = []
        self._arguments: list[str] = []
        self._calls: dict[int, tuple[str, str]] = {}

    def take(self, message: "BaseMessage") -> str:
        """Take in a message or a piece of one; what it adds, thinking included."""
        text = _proper(str(message.text))
        thought = _proper(str(message.additional_kwargs.get("reasoning_content", "")))
        self._text.append(text)
        self.thinking += thought
        self._take_call(message)
        about = message.response_metadata
        self.model = str(about.get("model_name") or self.model)
        self.finish = str(about.get("finish_reason") or self.finish)
        used = getattr(message, "usage_metadata", None)
        if used:
            self.tokens = TokenCounts(input=used["input_tokens"], output=used["output_tokens"])
        return thought + text

    @property
    def said(self) -> str:
        """The text alone."""
        return "".join(self._text)

    @property
    def answer(self) -> str:
        """The text; where a server took the answer for a call of a tool, what the call holds."""
        return self.said or "".join(self._arguments)

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """The tools that were called, each with its arguments as they were written."""
        return tuple(call for _, call in sorted(self._calls.items()) if call[0])

    @property
    def anything(self) -> bool:
        """Whether the server began to work on an answer."""
        return bool(self.answer or self.thinking or self.tokens)

    def _take_call(self, message: "BaseMessage") -> None:
        pieces = getattr(message, "tool_call_chunks", None)
        if pieces is not None:
            for piece in pieces:
                args = _proper(str(piece.get("args") or ""))
                self._arguments.append(args)
                self._call(piece.get("index"), _proper(str(piece.get("name") or "")), args)
            return
        calls = getattr(message, "tool_calls", None) or []
        wrong = getattr(message, "invalid_tool_calls", None) or []
        self._arguments += [json.dumps(call["args"]) for call in calls[:1]]
        self._arguments += [str(call.get("args") or "") for call in wrong[:1] if not calls]
        for call in calls:
            self._call(None, _proper(call["name"]), _proper(json.dumps(call["args"])))
        for call in wrong:
            self._call(None, _proper(str(call.get("name") or "")), str(call.get("args") or ""))

    def _call(self, place: object, name: str, args: str) -> None:
        """A call, or the next piece of one that stands at that place."""
        at = place if isinstance(place, int) else len(self._calls)
        before = self._calls.get(at, ("", ""))
        self._calls[at] = (before[0] + name, before[1] + args)


def _proper(text: str) -> str:
    """Text that can be kept: half a character, which JSON can carry, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


OnPiece = Callable[[Prompt, str], None]

# What a server may refuse, the likelier reason first where a message names several.
_OPTIONAL = (
    "max_tokens",
    "max_completion_tokens",
    "stream_options",
    "response_format",
    "tools",
    "tool choice",
    "reasoning_effort",
    "temperature",
    "stream",
)


class EndpointClient:
    """Asks a server once.

    Args:
        profile: Where, which model, and how.
        on_piece: Called with every piece of a streamed answer, thinking included; an empty one
            says that the answer begins, or begins anew.
    """

    def __init__(self, profile: ModelProfile, on_piece: OnPiece | None = None) -> None:
        self.profile = profile
        self._on_piece = on_piece
        self._refused: set[str] = set()
        most = profile.requests_at_once
        self._turn = nullcontext() if most is None else asyncio.Semaphore(most)
        self._chat: ReasoningChat | None = None

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            ServerFaultError: There is no answer; it says whether to ask again.
            NoToolsError: The server takes no tools, and the prompt needs them.
        """
        from kernelwright.agents.llm.chat_model import fault_of, said_by

        began = asyncio.get_running_loop().time()
        while True:
            heard = StreamedAnswer()
            if prompt.needs_tools and prompt.tools and self._takes_no_tools:
                raise NoToolsError
            try:
                self._model()  # its library takes seconds to import, which are not the server's
                async with self._turn, asyncio.timeout(self.profile.timeout_s):
                    await self._listen(prompt, heard)
                seconds = asyncio.get_running_loop().time() - began
                return self._reply(prompt, heard, seconds)
            except Exception as error:  # the library raises anything on a malformed body
                if self._refuses(said_by(error)):
                    continue
                lost = self._spent(prompt, heard) if heard.anything else TokenCounts()
                usd = price(self.profile, lost)
                raise fault_of(error, self.profile).costing(lost, usd) from error

    async def served(self) -> tuple[str, ...]:
        """The models that the server lists; none where it does not say."""
        try:
            async with asyncio.timeout(self.profile.timeout_s):
                return tuple(
                    [item.id async for item in self._model().root_async_client.models.list()]
                )
        except Exception:  # many servers have no such list, and each fails in its own way
            return ()

    async def _listen(self, prompt: Prompt, heard: StreamedAnswer) -> None:
        """Ask, and take in what comes; nothing of it goes to a tracing service."""
        from langsmith import tracing_context

        chat, messages = self._model(), _messages(prompt)
        with tracing_context(enabled=False):
            if not self.profile.stream or "stream" in self._refused:
                heard.take(await chat.bind(**self._options(prompt)).ainvoke(messages))
                return
            usage = self.profile.stream_usage and "stream_options" not in self._refused
            options = self._options(prompt) | {"stream_usage": usage}
            self._pass_on(prompt, "")
            async for chunk in chat.bind(**options).astream(messages):
                if piece := heard.take(chunk):
                    self._pass_on(prompt, piece)

    def _pass_on(self, prompt: Prompt, piece: str) -> None:
        if self._on_piece is not None:
            self._on_piece(prompt, piece)

    def _model(self) -> "ReasoningChat":
        from kernelwright.agents.llm.chat_model import chat_model

        self._chat = self._chat or chat_model(self.profile)
        return self._chat

    def _options(self, prompt: Prompt) -> dict[str, object]:
        """The parameters of the request, without those that the server refused."""
        profile = self.profile
        most = self._longest(prompt)
        options: dict[str, object] = {
            "max_completion_tokens": most,
            "temperature": profile.temperature,
            "reasoning_effort": profile.reasoning_effort,
            "response_format": _response_format(profile, prompt),
            "tools": json.loads(prompt.tools) if prompt.tools else None,
        }
        # Some servers know only the older name of the limit.
        extra: dict[str, object] = {"max_tokens": most, **profile.extra_body}
        kept = {k: v for k, v in options.items() if v is not None and k not in self._refused}
        if self._takes_no_tools:
            kept.pop("tools", None)
        elif "tools" in kept and prompt.no_calls:
            kept["tool_choice"] = "none"
        body = {k: v for k, v in extra.items() if k not in self._refused}
        return {**kept, "extra_body": body} if body else kept

    @property
    def _takes_no_tools(self) -> bool:
        """A server that was started without tools speaks of the choice between them."""
        return bool({"tools", "tool choice"} & self._refused)

    def _longest(self, prompt: Prompt) -> int:
        """How long the answer may be; half of what is wanted where the context gets tight.

        Not less, since the prompt's length is an estimate and many a context only a guess.
        """
        wanted = prompt.reply_tokens or self.profile.reply_tokens
        room = self.profile.context_tokens - tokens_in(prompt)
        return wanted if room >= wanted else max(room, wanted // 2, 1)

    def _refuses(self, words: str) -> bool:
        """Whether the server refused a parameter that it can be asked without."""
        for name in _OPTIONAL:
            if name in words and name not in self._refused:
                self._refused.add(name)
                return True
        return False

    def _reply(self, prompt: Prompt, heard: StreamedAnswer, seconds: float) -> Reply:
        calls = heard.calls if prompt.tools else ()
        text, thoughts = without_thinking(heard.said if calls else heard.answer)
        if not text and not calls:
            why = f" before its {heard.finish} ended it" if heard.finish == "length" else ""
            words = f"the model {self.profile.model} answered nothing{why}"
            raise ServerFaultError(words, TWICE)
        tokens = self._spent(prompt, heard)
        return Reply(
            text=text,
            reasoning="\n\n".join(part for part in (heard.thinking, thoughts) if part),
            model=heard.model or self.profile.model,
            tokens=tokens,
            usd=price(self.profile, tokens),
            seconds=seconds,
            finish=heard.finish or "cut off",
            calls=tuple(ToolCall(name=name, arguments=args) for name, args in calls),
        )

    def _spent(self, prompt: Prompt, heard: StreamedAnswer) -> TokenCounts:
        """What the server counted; where it did not, an estimate on the safe side."""
        if heard.tokens is not None:
            return heard.tokens
        said = tokens_of(heard.answer) + tokens_of(heard.thinking)
        return TokenCounts(input=tokens_in(prompt), output=said)


def _messages(prompt: Prompt) -> "list[BaseMessage]":
    """Turns of one author after another are one: some templates demand that they alternate."""
    turns: list[Message] = []
    for item in prompt.messages:
        last = turns[-1] if turns else None
        if last is None or last.author != item.author or _is_of_a_tool(last, item):
            turns.append(item)
        else:
            turns[-1] = last.model_copy(update={"text": f"{last.text}\n\n{item.text}"})
    return [_message(item) for item in turns]


def _is_of_a_tool(*items: Message) -> bool:
    return any(item.calls or item.call for item in items)


def _message(item: Message) -> "BaseMessage":
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    if item.author == "tool":
        return ToolMessage(content=item.text, tool_call_id=item.call)
    if item.author == "model":
        calls = [
            {"name": call.name, "args": json.loads(call.arguments), "id": call.id}
            for call in item.calls
        ]
        return AIMessage(content=item.text, tool_calls=calls)
    kind = SystemMessage if item.author == "system" else HumanMessage
    return kind(content=item.text)


def _response_format(profile: ModelProfile, prompt: Prompt) -> dict[str, object] | None:
    if not prompt.answer_schema or profile.schema_mode == "text":
        return None
    if profile.schema_mode == "json_object":
        return {"type": "json_object"}
    schema = {"name": "answer", "schema": json.loads(prompt.answer_schema)}
    return {"type": "json_schema", "json_schema": schema}


# Enough for a word even from a model that thinks first, if only a little.
_REPLY_TOKENS = 512
_PATIENCE_S = 60.0


class Probed(Value):
    """What an endpoint did; `failure` is one sentence, "" when it answered.

    `served` are the models that it lists, empty where it lists none.
    """

    served: tuple[str, ...] = ()
    said: str = ""
    seconds: float = 0.0
    failure: str = ""


async def probe(profile: ModelProfile) -> Probed:
    """Ask once; nothing but the word "ready" is sent."""
    quick = profile.model_copy(update={"timeout_s": min(profile.timeout_s, _PATIENCE_S)})
    client = EndpointClient(quick)
    served = await client.served()
    words = Message(author="person", text="Answer with the single word: ready")
    prompt = Prompt(key="probe", role="critic", messages=(words,), reply_tokens=_REPLY_TOKENS)
    try:
        reply = await client.say(prompt)
    except LLMError as error:
        return Probed(served=served, failure=str(error))
    return Probed(served=served, said=" ".join(reply.text.split())[:60], seconds=reply.seconds)
