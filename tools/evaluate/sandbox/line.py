"""Who holds the device and who waits for it, in the order of asking.

One executor needs no more than a lock. Where several people share a device, each asks from a seat
of their own, so that somebody who waits can be told how many are before them.
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType

# The right to use a device, one at a time; an `asyncio.Lock` is one.
Lease = AbstractAsyncContextManager[None]


@dataclass(frozen=True, eq=False)
class _Turn:
    """One question of a seat; `since_s` is when it was asked, of the monotonic clock."""

    seat: "Seat"
    since_s: float


class Line:
    """The queue before one device; whoever is first holds it. Belongs to one event loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.turns: list[_Turn] = []

    def seat(self, name: str = "") -> "Seat":
        """A place to ask from; who has no name is nobody that others wait for."""
        return Seat(self, name)


class Seat:
    """A lease of the line's device, and how long one waits for it; any thread may ask that."""

    def __init__(self, line: Line, name: str) -> None:
        self.name = name
        self._line = line
        self._held: _Turn | None = None

    @property
    def ahead(self) -> int:
        """How many other people are before this seat's first question; 0 where there is none."""
        return len({turn.seat.name for turn in self._before() if turn.seat.name} - {self.name})

    @property
    def waited_s(self) -> float:
        """Since when this seat has waited without holding the device; 0.0 where it does not."""
        turns = tuple(self._line.turns)
        mine = [turn.since_s for turn in turns if turn.seat is self]
        waits = bool(mine) and turns[0].seat is not self
        return time.monotonic() - mine[0] if waits else 0.0

    def _before(self) -> tuple[_Turn, ...]:
        turns = tuple(self._line.turns)
        at = next((at for at, turn in enumerate(turns) if turn.seat is self), 0)
        return turns[:at]

    async def __aenter__(self) -> None:
        """Wait for the device."""
        turn = _Turn(self, time.monotonic())
        self._line.turns.append(turn)
        try:
            await self._line.lock.acquire()
        except BaseException:
            self._line.turns.remove(turn)
            raise
        self._held = turn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the device back."""
        assert self._held is not None, "who leaves has entered"
        self._line.turns.remove(self._held)
        self._held = None
        self._line.lock.release()
