"""A voice that keeps a book: nothing is asked twice, and everything can be read later."""

from collections.abc import Callable
from typing import Protocol

from agents.model.voice import Voice, VoiceError
from tools.nouns import Call, Prompt, Reply


class Book(Protocol):
    """Where calls are kept; an archive is one."""

    def calls(self, key: str | None = None) -> tuple[Call, ...]:
        """Calls in the order they were made, of one key or of all."""
        ...

    def record_call(self, call: Call) -> None:
        """Keep a call."""
        ...


Tell = Callable[[Call], None]


class RecordedVoice:
    """Looks into the book first, and writes down what it had to ask.

    A question that failed is asked again: its server may be back. A question of the same key in
    other words is another question.
    """

    def __init__(self, inner: Voice, book: Book, tell: Tell | None = None) -> None:
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
        except VoiceError as error:
            words = str(error)
            self._keep(Call(prompt=prompt, failure=words, lost=error.lost, lost_usd=error.lost_usd))
            raise
        self._keep(Call(prompt=prompt, reply=reply))
        return reply

    def _keep(self, call: Call) -> None:
        self._book.record_call(call)
        if self._tell is not None:
            self._tell(call)
