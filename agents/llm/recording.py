"""Clients that keep what was said, and that say it again: nothing is asked twice."""

from collections.abc import Callable, Iterable
from typing import Protocol

from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.tools.archive import NotRecordedError
from kernelwright.tools.types import Call, Prompt, Reply


class Book(Protocol):
    """Where calls are kept; an archive is one."""

    def calls(self, key: str | None = None) -> tuple[Call, ...]:
        """Calls in the order they were made, of one key or of all."""
        ...

    def record_call(self, call: Call) -> None:
        """Keep a call."""
        ...


Tell = Callable[[Call], None]


class RecordingClient:
    """Looks into the book first, and writes down what it had to ask.

    A question that failed is asked again: its server may be back. A question of the same key in
    other words is another question.
    """

    def __init__(self, inner: LLMClient, book: Book, tell: Tell | None = None) -> None:
        self._inner = inner
        self._book = book
        self._tell = tell

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt, from the book if it is there."""
        for call in self._book.calls(prompt.key):
            if call.reply is not None and call.prompt.sha256 == prompt.sha256:
                return call.reply
        try:
            reply = await self._inner.say(prompt)
        except LLMError as error:
            words = str(error)
            self._keep(Call(prompt=prompt, failure=words, lost=error.lost, lost_usd=error.lost_usd))
            raise
        self._keep(Call(prompt=prompt, reply=reply))
        return reply

    def _keep(self, call: Call) -> None:
        self._book.record_call(call)
        if self._tell is not None:
            self._tell(call)


class ReplayingClient:
    """Answers from the calls of a run.

    A question that failed and was asked again has several calls; the last one is what the run went
    on with. A question whose words have changed since is answered by its key, and remembered in
    `reworded`: prompts may be rewritten, and a run still be replayed. Before the round in which
    models joined the run nobody answers, so that the playbook thinks, as it did.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self.reworded: list[str] = []
        self._by_words: dict[tuple[str, str], Call] = {}
        self._by_key: dict[str, Call] = {}
        self._joined = 0
        for number, call in enumerate(calls):
            self._joined = min(self._joined, call.prompt.round) if number else call.prompt.round
            self._by_words[call.prompt.key, call.prompt.sha256] = call
            self._by_key[call.prompt.key] = call

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt as it was answered then.

        Raises:
            LLMError: There was no answer then either.
            NotRecordedError: The run never asked that.
        """
        call = self._by_words.get((prompt.key, prompt.sha256))
        if call is None:
            call = self._by_key.get(prompt.key)
            if call is None and prompt.round < self._joined:
                raise LLMError("no model was asked then")
            if call is None:
                raise NotRecordedError(f"the answer to {prompt.key}")
            self.reworded.append(prompt.key)
        if call.reply is None:
            raise LLMError(call.failure, call.lost, call.lost_usd)
        return call.reply
