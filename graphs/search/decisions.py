"""What a search decides by the clock or by a person's wishes: once, and kept for a replay.

Everything else follows from what the archive holds. A step that is taken again after a crash finds
what it had decided, so a resumed run asks the same questions in the same words.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from kernelwright.tools.archive import Archive, NotRecordedError


class Decisions(Protocol):
    """Decides things once."""

    def once(self, key: str, now: Callable[[], str]) -> str:
        """What was decided under that key; `now` decides it if nothing was."""
        ...


class KeptDecisions:
    """The decisions of a run, kept in its archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._known: dict[str, str] | None = None

    def once(self, key: str, now: Callable[[], str]) -> str:
        """See the protocol; what is decided is durable before anyone acts upon it."""
        if self._known is None:
            self._known = dict(self._archive.decisions())
        if key not in self._known:
            self._known[key] = now()
            self._archive.record_decision(key, self._known[key])
        return self._known[key]


class PastDecisions:
    """The decisions of a recorded run, for a replay of it."""

    def __init__(self, past: Mapping[str, str]) -> None:
        self._past = past

    def once(self, key: str, now: Callable[[], str]) -> str:
        """See the protocol; never decides anything anew.

        Raises:
            NotRecordedError: When the run did not come to that decision.
        """
        if key not in self._past:
            raise NotRecordedError(f"the decision {key!r}")
        return self._past[key]
