"""Lets a model call tools before it answers: ask, run what it calls, ask again, within bounds.

The loop itself is a small graph (`agents.llm.tool_graph`). A client with tools is a
client like any other, so a role need not know how often its model was asked. Every question is
recorded, retried and paid as one without tools is; every call is kept with its result and is not
run again by a resume or a replay. Nothing that a model calls, however badly, ends a run.

The bounds are calls, tokens and seconds, of the questions and calls as they were recorded, so that
a replay comes to the same end. Then the model is asked once more and may call nothing. A model that
calls no tools is told beforehand what the tools would tell it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

from kernelwright.agents.llm.client import LLMClient, NoToolsError, tokens_in, tokens_of
from kernelwright.agents.llm.tools import Tool, ToolError, as_functions
from kernelwright.agents.prompting.fitting import MOST_TOKENS
from kernelwright.agents.prompting.templates import section
from kernelwright.profiles.load import ToolMode
from kernelwright.tools.archive import NotRecordedError
from kernelwright.tools.types import (
    EnvironmentLacksError,
    Message,
    Prompt,
    Reply,
    ToolCall,
    ToolRun,
    Value,
)
from kernelwright.tools.types.value import AwaitingError

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
# The heading of a prompt's last section, where it has one.
_ANSWER = "\n# Your answer\n"


class ToolLimits(Value):
    """What one question may cost in tools before it has to be answered.

    Attributes:
        calls: Calls that are run.
        tokens: Of all questions of the loop together, in and out.
        seconds: Of questions and calls together; a call that is running then is ended.
        prompt_tokens: How long the conversation may become.
        result_characters: Of one result; its middle is left out.
    """

    calls: int = 8
    tokens: int = 100_000
    seconds: float = 300.0
    prompt_tokens: int = 40_000
    result_characters: int = 5_000


class ToolBook(Protocol):
    """Where calls of tools are kept."""

    def tool_run(self, key: str) -> ToolRun | None:
        """The call with that key; None where it was never made.

        Raises:
            NotRecordedError: In a replay, where nothing is run.
        """
        ...

    def record_tool_run(self, run: ToolRun) -> None:
        """Keep a call with its result; one that is known stays as it is."""
        ...


class LooseBook:
    """Keeps calls for as long as it lives: where no run would keep them."""

    def __init__(self) -> None:
        self.runs: dict[str, ToolRun] = {}

    def tool_run(self, key: str) -> ToolRun | None:
        """See the protocol."""
        return self.runs.get(key)

    def record_tool_run(self, run: ToolRun) -> None:
        """See the protocol."""
        self.runs.setdefault(run.key, run)


class ToolClient:
    """A client whose model may call tools before it answers.

    Args:
        client: Who is asked.
        tools: What may be called; without any, the client alone answers.
        book: Where calls are kept.
        mode: How the model calls tools.
        limits: What one question may cost in tools.
    """

    def __init__(
        self,
        client: LLMClient,
        tools: Sequence[Tool],
        book: ToolBook,
        mode: ToolMode = "native",
        limits: ToolLimits | None = None,
    ) -> None:
        self._client = client
        self._mode = mode
        self._bench = Bench(tuple(tools), book, limits or ToolLimits())

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt, after as many calls as the model makes within the limits.

        Raises:
            LLMError: A question of the loop has no answer.
            AwaitingError: It comes from outside and is not there yet.
        """
        if not self._bench.tools:
            return await self._client.say(prompt)
        if self._mode == "none":
            return await self._told(prompt)
        # langgraph takes seconds to import, and a search by rules alone never needs it.
        from kernelwright.agents.llm.tool_graph import Loop, run_loop

        begun = self._begun(prompt)
        try:
            return await run_loop(Loop(self._client, self._bench), begun)
        except NoToolsError:
            return await self._told(prompt)

    def _begun(self, prompt: Prompt) -> Prompt:
        """The question with the tools beside it."""
        native = self._mode == "native"
        tools, limits = self._bench.tools, self._bench.limits
        words = section(HERE / "tools.md", tools=tools, native=native, calls=limits.calls)
        begun = with_words(prompt, words)
        if not native:
            return begun
        return begun.model_copy(update={"tools": as_functions(tools), "needs_tools": True})

    async def _told(self, prompt: Prompt) -> Reply:
        """Ask once, with what the tools would tell."""
        facts = await self._bench.facts(prompt)
        told = with_words(prompt, section(HERE / "facts.md", facts=facts)) if facts else prompt
        return await self._client.say(told)


@dataclass(frozen=True)
class Bench:
    """Runs calls, each once."""

    tools: tuple[Tool, ...]
    book: ToolBook
    limits: ToolLimits

    async def run(self, prompt: Prompt, number: int, call: ToolCall, seconds: float) -> ToolRun:
        """The call with its result, from the book where it is there."""
        key = f"{prompt.key}#{number}"
        found = next((item for item in self.tools if item.name == call.name), None)
        if found is not None:
            found.heed(call.arguments)
        known = self.book.tool_run(key)
        if known is not None and (known.tool, known.arguments) == (call.name, call.arguments):
            return known
        began = monotonic()
        text, failed = await self._result(found, call, seconds)
        run = ToolRun(
            key=key,
            role=prompt.role,
            round=prompt.round,
            tool=call.name,
            arguments=call.arguments,
            result=shortened(text, self.limits.result_characters),
            failed=failed,
            seconds=monotonic() - began,
        )
        self.book.record_tool_run(run)
        return run

    async def facts(self, prompt: Prompt) -> tuple[ToolRun, ...]:
        """What the tools say without being called, as far as they can."""
        about = prompt.model_copy(update={"key": f"{prompt.key}:facts"})
        calls = [
            ToolCall(name=item.name, arguments=given)
            for item in self.tools
            for given in item.beforehand
        ]
        found: list[ToolRun] = []
        left_s = self.limits.seconds
        room = min(self.limits.prompt_tokens, MOST_TOKENS) - tokens_in(prompt)
        for number, call in enumerate(calls[: self.limits.calls], start=1):
            run = await self.run(about, number, call, left_s)
            left_s, room = left_s - run.seconds, room - tokens_of(run.result)
            if room < 0 or left_s <= 0:
                break
            found += [] if run.failed else [run]
        return tuple(found)

    async def _result(self, found: Tool | None, call: ToolCall, seconds: float) -> tuple[str, bool]:
        """What a call brings, and whether it failed; never an exception of the tool's."""
        if found is None:
            names = ", ".join(item.name for item in self.tools)
            return f"there is no tool {call.name[:60]!r}; there are {names}", True
        try:
            async with asyncio.timeout(seconds):
                return await found.run(call.arguments), False
        except ToolError as error:
            return str(error), True
        except TimeoutError:
            return f"{found.name} took longer than {seconds:.0f} s and was ended", True
        except (AwaitingError, NotRecordedError):
            raise
        except EnvironmentLacksError as error:
            return f"{found.name} cannot be used here: {error}", True
        except Exception as error:
            log.exception("the tool %s failed", found.name)
            return f"{found.name} failed and says no more than {type(error).__name__}", True


def with_words(prompt: Prompt, words: str) -> Prompt:
    """The prompt with a section more at its end, before what says how to answer.

    A small model goes on from a prompt's last lines: whatever they are, it repeats them or does
    what they say.
    """
    *before, last = prompt.messages
    if last.author != "person":
        messages = (*prompt.messages, Message(author="person", text=words))
    else:
        asked, heading, answer = last.text.rpartition(_ANSWER)
        ended = f"{asked}\n{words}\n{heading}{answer}" if heading else f"{answer}\n\n{words}"
        messages = (*before, last.model_copy(update={"text": ended}))
    return prompt.model_copy(update={"messages": messages})


def shortened(text: str, most: int) -> str:
    """A text's beginning and its end, where it is too long."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n[... cut ...]\n{text[-half:]}"
