"""Clients that wrap another one to ask again, end, record or replay; and one built for each role.

Asking again happens where it may help, and waits longer each time, or as long as the server says.
What was answered is kept before anyone acts upon it, so that nothing is asked twice: a resumed or
replayed run is given the recorded answers. A role's client is recorded, retried, and paid from the
budget that all roles share.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from kernelwright.agents.llm.client import (
    BudgetedClient,
    BudgetSpentError,
    LLMClient,
    LLMError,
    NoToolsError,
    ServerFaultError,
    TokenBudget,
    added,
    added_usd,
)
from kernelwright.agents.llm.endpoint import EndpointClient, OnPiece
from kernelwright.profiles.load import ModelProfile, Models
from kernelwright.tools.archive import NotRecordedError
from kernelwright.tools.types import Call, Prompt, Reply
from kernelwright.tools.types.run import TokenCounts

_LONGEST_S = 60.0
# After this many questions in a row without an answer the server is taken to be gone: each
# question is then asked once only, until one is answered.
_GONE = 2


class RetryingClient:
    """Asks another client until it answers or patience ends.

    Args:
        inner: Who is asked, raising `ServerFaultError` where asking again may help.
        retries: Attempts after the first.
        first_wait_s: The pause after the first fault; it doubles with every further one.
    """

    def __init__(self, inner: LLMClient, retries: int, first_wait_s: float = 1.0) -> None:
        self._inner = inner
        self._retries = retries
        self._first_wait_s = first_wait_s
        self._unanswered = 0

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt; the reply counts what all attempts took.

        Raises:
            LLMError: No attempt was answered; it holds what they cost.
        """
        began, tally = monotonic(), _Tally()
        most = 1 if self._unanswered >= _GONE else 1 + self._retries
        for attempt in range(1, most + 1):
            try:
                reply = await self._inner.say(prompt)
            except ServerFaultError as fault:
                tally.add(fault)
                if attempt >= min(most, fault.tries):
                    self._unanswered += 1
                    raise tally.error(_told(fault, attempt)) from fault
                await asyncio.sleep(self._wait_s(fault, attempt))
            except BudgetSpentError as spent:
                raise tally.spent(spent) from spent
            else:
                self._unanswered = 0
                return tally.onto(reply, attempt, monotonic() - began)
        raise AssertionError("the last attempt returns or raises")

    def _wait_s(self, fault: ServerFaultError, attempt: int) -> float:
        if fault.after_s is not None:
            return fault.after_s
        # Siblings that failed together should not come back together.
        spread = random.uniform(0.8, 1.2)
        wait_s = self._first_wait_s * 2.0 ** (attempt - 1)
        return spread * min(_LONGEST_S, wait_s)


class _Tally:
    """What failed attempts cost."""

    def __init__(self) -> None:
        self._lost = TokenCounts()
        self._usd: float | None = None

    def add(self, error: LLMError) -> None:
        self._lost = added(self._lost, error.lost)
        self._usd = added_usd(self._usd, error.lost_usd)

    def error(self, words: str) -> LLMError:
        return LLMError(words, self._lost, self._usd)

    def spent(self, error: BudgetSpentError) -> BudgetSpentError:
        return BudgetSpentError(str(error), self._lost, self._usd)

    def onto(self, reply: Reply, attempts: int, seconds: float) -> Reply:
        usd = reply.usd if self._usd is None else added_usd(reply.usd, self._usd)
        tokens = added(reply.tokens, self._lost)
        update = {"tokens": tokens, "usd": usd, "attempts": attempts, "seconds": seconds}
        return reply.model_copy(update=update)


def _told(fault: ServerFaultError, attempts: int) -> str:
    return f"{fault} (asked {attempts} times)" if attempts > 1 else str(fault)


class Book(Protocol):
    """Where calls are kept; an archive is one."""

    def calls(self, key: str | None = None) -> tuple[Call, ...]:
        """Calls in the order they were made, of one key or of all."""
        ...

    def record_call(self, call: Call) -> None:
        """Keep a call."""
        ...


Tell = Callable[[Call], None]


class LimitedClient:
    """Gives a question up when the search's seconds are over: a slow model would outlast them.

    Args:
        inner: Who is asked.
        left_s: Seconds that are left; None for as long as it takes.
    """

    WORDS = "the search's seconds were over before the model had answered"

    def __init__(self, inner: LLMClient, left_s: Callable[[], float | None]) -> None:
        self._inner = inner
        self._left_s = left_s

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            LLMError: There was no answer in time.
        """
        left_s = self._left_s()
        if left_s is None:
            return await self._inner.say(prompt)
        ending = asyncio.timeout(max(0.0, left_s))
        try:
            async with ending:
                return await self._inner.say(prompt)
        except TimeoutError:
            if not ending.expired():
                raise
            raise LLMError(self.WORDS) from None


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
            if call.failure == NoToolsError.WORDS:
                raise NoToolsError
            raise LLMError(call.failure, call.lost, call.lost_usd)
        return call.reply


# Makes the client of a person; only who knows the run's folder can.
MakeManual = Callable[[ModelProfile], LLMClient]


@dataclass(frozen=True)
class ClientContext:
    """What clients work with.

    Attributes:
        book: Where calls are kept, looked up before anything is asked.
        budget: What may be spent, by all of them together.
        manual: Makes the client of a person.
        tell: Called with every call after it was kept.
        on_piece: Called with the pieces of streamed answers.
        left_s: Seconds that a question may still take; None for as long as it takes.
    """

    book: Book
    budget: TokenBudget
    manual: MakeManual
    tell: Tell | None = None
    on_piece: OnPiece | None = None
    left_s: Callable[[], float | None] = lambda: None


def clients_for(
    models: Models, roles: Iterable[str], around: ClientContext
) -> dict[str, LLMClient]:
    """A client a role; roles with one profile share a client, and so its rate limit."""
    made: list[tuple[ModelProfile, LLMClient]] = []

    def client(profile: ModelProfile) -> LLMClient:
        for known, before in made:
            if known == profile:
                return before
        asked = _asked(profile, around)
        if profile.kind != "manual":  # what a person takes is not of the search's seconds
            asked = LimitedClient(asked, around.left_s)
        made.append((profile, RecordingClient(asked, around.book, around.tell)))
        return made[-1][1]

    return {role: client(models.of(role)) for role in roles}


def endpoint_client(
    profile: ModelProfile, budget: TokenBudget | None = None, on_piece: OnPiece | None = None
) -> LLMClient:
    """An endpoint that is asked again where that helps; every attempt is paid from the budget."""
    once = BudgetedClient(EndpointClient(profile, on_piece), budget or TokenBudget(), profile)
    return RetryingClient(once, profile.retries, profile.retry_wait_s)


def _asked(profile: ModelProfile, around: ClientContext) -> LLMClient:
    if profile.kind == "manual":
        return around.manual(profile)
    return endpoint_client(profile, around.budget, around.on_piece)
