"""What the profiler read and said of a run's candidates, as the critic hears it.

Events are added and never changed, so each is read once in a session: a long run has hundreds, and
every critique asks for all of them.
"""

from pydantic import BaseModel

from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Evidence


class Told(BaseModel):
    """Of a `Profiled` event what the critic hears."""

    candidate: str
    evidence: tuple[Evidence, ...]
    explanation: str = ""


class ReadingsTold:
    """The events of one run.

    Args:
        archive: Whose.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._last = 0
        self._items: tuple[Told, ...] = ()

    def items(self) -> tuple[Told, ...]:
        """All of them, in order."""
        news = self._archive.events(after=self._last, kind="profiled")
        if news:
            self._last = news[-1].seq
            self._items += tuple(Told.model_validate_json(item.payload) for item in news)
        return self._items
