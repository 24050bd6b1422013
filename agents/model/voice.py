"""A voice answers a prompt. Behind it: an endpoint, a person with files, or a recorded run."""

from typing import Protocol

from tools.nouns import Prompt, Reply


class Voice(Protocol):
    """Somebody who can be asked."""

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            VoiceError: There is no answer, and asking again now would not help; whoever asked
                falls back to the playbook and says so.
            AwaitingError: The answer comes from outside and is not there yet; the run pauses.
        """
        ...


class VoiceError(Exception):
    """No answer; the message is one sentence for a person."""


class BudgetSpentError(VoiceError):
    """The question would go beyond what may be spent."""
