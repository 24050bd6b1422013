"""Asks again where that may help: waits longer each time, or as long as the server says."""

import asyncio
import random
from time import monotonic

from kernelwright.agents.llm.budget import added, added_usd
from kernelwright.agents.llm.client import BudgetSpentError, LLMClient, LLMError, ServerFaultError
from kernelwright.tools.types import Prompt, Reply
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
