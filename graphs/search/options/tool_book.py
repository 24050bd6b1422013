"""Which tools the roles of a run have, and where their calls are kept: as events of the run.

A run says whether its roles have tools; one from before there were any has none. A call is told and
kept by one event, so that it is a step which a person can open. A resume finds what was called, and
a replay is given it from the record.
"""

from collections.abc import Callable

from kernelwright.graphs.run_view.events import EVENT, Event, ToolCalled
from kernelwright.tools.archive import Archive, NotRecordedError
from kernelwright.tools.types import ToolRun

_TERM = "tools"
_HAS_TOOLS = "drafts and readings"

Emit = Callable[[Event, str], None]


def keep_tools(archive: Archive) -> None:
    """Let the roles of a new run have tools."""
    archive.record_term(_TERM, _HAS_TOOLS)


def has_tools(archive: Archive) -> bool:
    """Whether the roles of this run have tools."""
    return archive.term(_TERM) == _HAS_TOOLS


class EventBook:
    """Keeps calls as events of a run.

    Args:
        archive: The run's.
        emit: Keeps an event under a key, and shows it.
    """

    def __init__(self, archive: Archive, emit: Emit) -> None:
        self._archive = archive
        self._emit = emit

    def tool_run(self, key: str) -> ToolRun | None:
        """The call with that key; None where it was never made."""
        stored = self._archive.event(_key(key))
        return None if stored is None else _run(stored.payload)

    def record_tool_run(self, run: ToolRun) -> None:
        """Keep a call, and tell it."""
        self._emit(ToolCalled(round=run.round, run=run), _key(run.key))


class PastBook:
    """Gives the calls of a recorded run, and keeps them with its replay.

    Args:
        past: The recorded run.
        present: The replay of it so far.
    """

    def __init__(self, past: Archive, present: Archive) -> None:
        self._past = past
        self._present = present

    def tool_run(self, key: str) -> ToolRun | None:
        """The call as it was made then.

        Raises:
            NotRecordedError: The run never made it.
        """
        stored = self._past.event(_key(key))
        if stored is None:
            raise NotRecordedError(f"the call of a tool {key}")
        self._present.append_event(stored.kind, stored.round, stored.payload, key=stored.key)
        return _run(stored.payload)

    def record_tool_run(self, run: ToolRun) -> None:
        """What is run in a replay was not in the record."""
        raise NotRecordedError(f"the call of a tool {run.key}")


def _key(run: str) -> str:
    return f"tool:{run}"


def _run(payload: str) -> ToolRun:
    event = EVENT.validate_json(payload)
    if not isinstance(event, ToolCalled):
        raise TypeError(f"{event.kind} stands where a call of a tool should")
    return event.run
