"""A language-model client answers a prompt; what there is when it does not.

Behind it: an endpoint, a person with files, or a recorded run.
"""

from typing import Protocol

from kernelwright.tools.types import Prompt, Reply
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
