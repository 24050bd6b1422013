"""The device as the parent sees it: who holds it, who waits, and whether it is at rest.

`Line` is the queue before one device, in the order of asking. One executor needs no more than a
lock. Where several people share a device, each asks from a seat of their own, so that somebody who
waits can be told how many are before them.

`idle` and `company` ask NVML: whether the GPU is at rest after a worker was lost, and whether
others compute on it. A worker cannot tell: behind a wall with processes of its own, those of others
do not exist.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType

from kernelwright.tools.hardware.detect import visible_gpu_or_none

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


async def idle(within_s: float) -> bool:
    """Wait until the device does nothing; False when it still worked then or cannot be asked."""
    nvml, handle = visible_gpu_or_none()
    if nvml is None:
        return False
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            # A mean over the last moments: a zero means that nothing ran for a while.
            if nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0:
                return True
        except nvml.NVMLError:
            return False
        await asyncio.sleep(0.05)
    return False


def company(ours: Iterable[int], trees: int = 1) -> int | None:
    """How many processes compute on the device beside ours; None when NVML does not say.

    Args:
        ours: every process of ours that may.
        trees: how many workers these belong to.
    """
    nvml, handle = visible_gpu_or_none()
    if nvml is None:
        return None
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return None
    return strangers((int(process.pid) for process in running), ours, trees)


def strangers(running: Iterable[int], ours: Iterable[int], trees: int = 1) -> int:
    """How many of the running are not ours; a container may list ours by other numbers."""
    listed, known = set(running), set(ours)
    unknown = len(listed - known)
    return unknown if listed & known else max(unknown - trees, 0)
