"""How somebody outside reaches into a running search: stop, pause, steering, what it may spend.

All of it may be called from any code on the search's event loop. A stop ends the step that is
running and loses nothing, as every step can be repeated from the archive; a pause waits for the end
of the step.
"""

import asyncio
from typing import Protocol

from langgraph.runtime import RunControl

from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.search.pace import Spent
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive


class ControlledSearch(Protocol):
    """What a control asks of the search that it is the handle of."""

    archive: Archive

    @property
    def searched_s(self) -> float:
        """Seconds of the budget that are spent."""
        ...

    @property
    def searching_ends_s(self) -> float:
        """When the searching is to stop, in those seconds."""
        ...

    def allow(self, profile: SearchProfile) -> None:
        """Go on with more, or less, to spend."""
        ...


class Control:
    """The handle of one running search; make a new one for every session."""

    def __init__(self) -> None:
        self.run_control = RunControl()
        self.steering = Steering()
        self.stopped_because = ""
        self._task: asyncio.Task[object] | None = None
        self._profile: SearchProfile | None = None
        self._search: ControlledSearch | None = None

    def watch(self, task: asyncio.Task[object]) -> None:
        """Take charge of the task that does the work."""
        self._task = task
        if self.stopped_because:
            task.cancel()

    def stop(self, why: str = "you asked") -> None:
        """End the search now, with the best so far; it can be resumed."""
        self.stopped_because = self.stopped_because or why
        if self._task is not None:
            self._task.cancel()

    def pause(self, why: str = "paused") -> None:
        """End the search at the next step's end; it can be resumed."""
        self.stopped_because = self.stopped_because or why
        self.run_control.request_drain(why)

    def steer(self, steering: Steering) -> None:
        """Replace the steering; the planner reads it at its next turn."""
        self.steering = steering

    def allow(self, profile: SearchProfile) -> None:
        """Replace what the search may spend; it holds from its next decision on."""
        self._profile = profile
        if self._search is not None:
            self._search.allow(profile)

    def attend(self, search: ControlledSearch) -> None:
        """Know whom this is the handle of; what was allowed before it began holds at once."""
        self._search = search
        if self._profile is not None:
            search.allow(self._profile)

    @property
    def spent(self) -> Spent:
        """What the search has spent; nothing before it began."""
        search = self._search
        if search is None:
            return Spent()
        over = search.searched_s >= search.searching_ends_s
        return Spent(search.searched_s, search.archive.spent_s(), over)
