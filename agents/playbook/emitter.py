"""The seam between the playbook and a language: one emitter a language."""

from typing import Protocol

from agents.playbook.ir import Emitted, Loop, Strategy
from profiles.load import Hardware
from tools.nouns import LanguageName


class Emitter(Protocol):
    """Knows which strategies fit a loop on a device, and prints the loop under one of them."""

    @property
    def language(self) -> LanguageName:
        """What it emits."""
        ...

    def header(self) -> str:
        """What stands once at the top of a file that holds emitted loops."""
        ...

    def strategies(self, loop: Loop, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first; never empty for a valid loop."""
        ...

    def emit(self, loop: Loop, strategy: Strategy, prefix: str, hardware: Hardware) -> Emitted:
        """Device code and plan lines for the loop; ValueError when the strategy does not fit.

        A strategy with a `rewrite` is given the loop already rewritten.
        """
        ...
