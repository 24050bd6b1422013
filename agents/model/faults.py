"""A failed attempt at a server: one sentence, and whether asking again may help."""

from agents.model.voice import VoiceError
from tools.nouns.run import TokenCounts

# As often as the profile allows; twice where every attempt takes long or costs tokens.
ALWAYS, TWICE, NEVER = 1_000, 2, 1


class ServerFaultError(VoiceError):
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
