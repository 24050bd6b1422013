"""What a language-model client is, how it fails, and the budget of tokens and money that pays it.

Behind a client stands an endpoint, a person with files, or a recorded run. The budget caps what
models may cost in a run; nothing exceeds it, what is in flight included. Before a question is
asked, the most that it can cost is set aside; what it did cost takes that place afterwards. A
question that has no room waits for those in flight, and where none is in flight the budget is
spent.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Call, Prompt, Reply
from kernelwright.tools.types.run import TokenCounts


class LLMClient(Protocol):
    """Somebody who can be asked."""

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            LLMError: There is no answer, and asking again now would not help; whoever asked
                falls back to the playbook and says so.
            AwaitingError: The answer comes from outside and is not there yet; the run pauses.
        """
        ...


class LLMError(Exception):
    """No answer; the message is one sentence for a person.

    Args:
        words: The sentence.
        lost: Tokens that were spent all the same, as far as is known.
        lost_usd: What they cost; None where no price is known.
    """

    def __init__(
        self, words: str, lost: TokenCounts | None = None, lost_usd: float | None = None
    ) -> None:
        super().__init__(words)
        self.lost = lost or TokenCounts()
        self.lost_usd = lost_usd


class BudgetSpentError(LLMError):
    """The question would go beyond what may be spent."""


class NoToolsError(LLMError):
    """The server takes no tools, and whoever asks would rather put their facts in words."""

    WORDS = "the server takes no tools"

    def __init__(self) -> None:
        super().__init__(self.WORDS)


# As often as the profile allows; twice where every attempt takes long or costs tokens.
ALWAYS, TWICE, NEVER = 1_000, 2, 1


class ServerFaultError(LLMError):
    """One attempt failed.

    Args:
        words: One sentence.
        tries: How many attempts such a fault is worth in all.
        after_s: When the server asks to be tried again; None when it does not say.
    """

    def __init__(self, words: str, tries: int, after_s: float | None = None) -> None:
        super().__init__(words)
        self.tries = tries
        self.after_s = after_s

    def costing(self, lost: TokenCounts, lost_usd: float | None) -> "ServerFaultError":
        """The same fault, which had been spent on."""
        self.lost, self.lost_usd = lost, lost_usd
        return self


# An answer that may have less than this share of its usual length is not worth its question.
_WORTHWHILE = 4


class Cost:
    """Tokens and US dollars; mutable, since a question's cost is learnt as it is answered."""

    def __init__(self, tokens: int = 0, usd: float = 0.0) -> None:
        self.tokens = tokens
        self.usd = usd


class TokenBudget:
    """Caps on tokens, in and out together, and on US dollars; None is no cap.

    Args:
        tokens: The cap on tokens of the whole run.
        usd: The cap on money; models without a price count as free.
        calls: What earlier sessions of the run asked, which counts.
    """

    def __init__(
        self, tokens: int | None = None, usd: float | None = None, calls: Iterable[Call] = ()
    ) -> None:
        self.tokens = tokens
        self.usd = usd
        counts, known_usd = spent_by(calls)
        self._spent = Cost(counts.input + counts.output, known_usd or 0.0)
        self._held: list[Cost] = []
        self._settled = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, prompt: Prompt, profile: ModelProfile) -> AsyncIterator["Hold"]:
        """Set aside what the prompt can cost.

        Raises:
            BudgetSpentError: There is no room for it, and nothing in flight that could give some.
        """
        async with self._settled:
            await self._settled.wait_for(lambda: self._room(prompt, profile) or not self._held)
            hold = self._room(prompt, profile)
            if hold is None:
                raise BudgetSpentError(self.words)
            self._held.append(hold.most)
        try:
            yield hold
        finally:
            self._held.remove(hold.most)
            self._spent.tokens += hold.cost.tokens
            self._spent.usd += hold.cost.usd
            async with self._settled:
                self._settled.notify_all()

    @property
    def words(self) -> str:
        """What there is to say when nothing is left."""
        return spent_words(self.tokens, self.usd)

    def _room(self, prompt: Prompt, profile: ModelProfile) -> "Hold | None":
        """The longest answer that the budget allows; None when it is not worth asking."""
        wanted, asked = prompt.reply_tokens or profile.reply_tokens, tokens_in(prompt)
        allowed = wanted
        if self.tokens is not None:
            left = self.tokens - self._spent.tokens - sum(item.tokens for item in self._held)
            allowed = min(allowed, left - asked)
        each_usd = profile.usd_per_million_output
        if self.usd is not None and each_usd is not None:
            left_usd = self.usd - self._spent.usd - sum(item.usd for item in self._held)
            left_usd -= price(profile, TokenCounts(input=asked)) or 0.0
            allowed = min(allowed, int(left_usd / each_usd * 1e6) if each_usd else allowed)
            allowed = -1 if left_usd < 0 else allowed
        if allowed * _WORTHWHILE < wanted or allowed < 1:
            return None
        most_usd = price(profile, TokenCounts(input=asked, output=allowed)) or 0.0
        return Hold(allowed, Cost(asked + allowed, most_usd))


class Hold:
    """What is set aside for one question; unless told otherwise, all of it was spent."""

    def __init__(self, reply_tokens: int, most: Cost) -> None:
        self.reply_tokens = reply_tokens
        self.most = most
        self.cost = Cost(most.tokens, most.usd)

    def spend(self, tokens: TokenCounts, usd: float | None) -> None:
        """Say what the question did cost."""
        self.cost = Cost(tokens.input + tokens.output, usd or 0.0)


class BudgetedClient:
    """Asks another client only what the budget can pay."""

    def __init__(self, inner: LLMClient, budget: TokenBudget, profile: ModelProfile) -> None:
        self._inner = inner
        self._budget = budget
        self._profile = profile

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt, perhaps with a shorter answer than usual.

        Raises:
            BudgetSpentError: It cannot be paid.
        """
        async with self._budget.hold(prompt, self._profile) as hold:
            short = prompt.model_copy(update={"reply_tokens": hold.reply_tokens})
            try:
                reply = await self._inner.say(short)
            except LLMError as error:
                hold.spend(error.lost, error.lost_usd)
                raise
            hold.spend(reply.tokens, reply.usd)
            return reply


def spent_words(tokens: int | None, usd: float | None) -> str:
    """Why no more questions are asked; the same words for the same caps."""
    caps = [f"{tokens} tokens"] if tokens is not None else []
    caps += [f"{usd:g} US dollars"] if usd is not None else []
    return f"the budget of {' and '.join(caps)} for models is used up"


def spent_by(calls: Iterable[Call]) -> tuple[TokenCounts, float | None]:
    """What calls cost, lost answers included; no money where no price is known."""
    tokens, usd = TokenCounts(), None
    for call in calls:
        tokens, usd = added(tokens, call.lost), added_usd(usd, call.lost_usd)
        if call.reply is not None:
            tokens, usd = added(tokens, call.reply.tokens), added_usd(usd, call.reply.usd)
    return tokens, usd


_CHARACTERS = 3
# Roles and separators around a message.
_AROUND = 8


def tokens_of(text: str) -> int:
    """At most about this many tokens."""
    return -(-len(text) // _CHARACTERS)


def tokens_in(prompt: Prompt) -> int:
    """What a prompt amounts to, about, tools included."""
    said = sum(tokens_of(item.text) + _AROUND for item in prompt.messages)
    called = (call.name + call.arguments for item in prompt.messages for call in item.calls)
    return said + sum(map(tokens_of, called)) + tokens_of(prompt.tools)


def price(profile: ModelProfile, tokens: TokenCounts) -> float | None:
    """US dollars; None where the profile knows no price."""
    per_input, per_output = profile.usd_per_million_input, profile.usd_per_million_output
    if per_input is None or per_output is None:
        return None
    return (tokens.input * per_input + tokens.output * per_output) / 1e6


def added(left: TokenCounts, right: TokenCounts) -> TokenCounts:
    """Both together."""
    return TokenCounts(input=left.input + right.input, output=left.output + right.output)


def added_usd(left: float | None, right: float | None) -> float | None:
    """Both together; None only when neither is known."""
    return None if left is None and right is None else (left or 0.0) + (right or 0.0)
