"""How somebody outside reaches into a running search: stop, pause, wishes.

Everything here may be called from any code on the search's event loop. A stop ends the step that
is running and loses nothing, as every step can be repeated from the archive; a pause waits for
the end of the step.
"""

import asyncio

from langgraph.runtime import RunControl

from kernelwright.agents.shared.steering import Steering


class Control:
    """The handle of one running search; make a new one for every session."""

    def __init__(self) -> None:
        self.run_control = RunControl()
        self.steering = Steering()
        self.stopped_because = ""
        self._task: asyncio.Task[None] | None = None

    def watch(self, task: asyncio.Task[None]) -> None:
        """Take charge of the task that runs the graph."""
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
        """Replace the wishes; the planner reads them at its next turn."""
        self.steering = steering
