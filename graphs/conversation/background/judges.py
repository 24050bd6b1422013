"""The executors of a server's searches, and their thread: one a person, one device for all.

Whoever measures holds the device's lease, so that nobody's times are disturbed by another's; the
lease goes round in the order of asking. A worker that nobody has asked for a while is closed.
The executors belong to one event loop, which runs in a thread of its own: a search's own planning
and writing take the loop they run on for a tenth of a second now and then; twenty of them would
make a page stutter, so the page keeps its loop for itself.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kernelwright.tools.archive import Target
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.sandbox.device_queue import Lease, Line, Seat
from kernelwright.tools.types import Refusal, Task

if TYPE_CHECKING:
    from kernelwright.tools.evaluate.sandbox.keeper import Spares


Result = TypeVar("Result")


class Engine:
    """The loop; it is started when first needed and ended with `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="searches", daemon=True
                )
                self._thread.start()
            return self._loop

    def submit(self, work: Coroutine[object, object, Result]) -> Future[Result]:
        """Run something there, and do not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[object, object, Result]) -> Result:
        """Run something there and wait for it on the caller's loop; a cancellation reaches it."""
        return await asyncio.wrap_future(self.submit(work))

    def tell(self, what: Callable[[], object]) -> None:
        """Call something there soon."""
        self.loop.call_soon_threadsafe(what)

    def close(self) -> None:
        """End the loop; what still runs there is cancelled and waited for."""
        with self._starting:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run until stopped, and leave nothing half done: a question holds a worker, or its lease."""
    try:
        loop.run_forever()
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
    finally:
        loop.close()


# Shorter waits are over before anybody has read of them.
WORTH_SAYING_S = 2.0

MakeExecutor = Callable[[Target, Path, Lease], Executor]


@dataclass
class _Judge:
    """An executor with how many use it, and when it goes if nobody does."""

    executor: Executor
    seat: Seat
    users: int = 0
    leaving: asyncio.TimerHandle | None = None


class Judges:
    """The executors of a server.

    Args:
        target: Which kind of device.
        scratch: A folder for the workers' caches.
        make: Makes an executor; worker processes on this machine by default.
        idle_s: How long an unused worker stays.
        ready: How many workers of this machine stand ready.
    """

    def __init__(
        self,
        target: Target,
        scratch: Path,
        make: MakeExecutor | None = None,
        idle_s: float = 120.0,
        ready: int = 4,
    ) -> None:
        self._line = Line()
        self._target = target
        self._scratch = scratch
        self._spares: Spares | None = None
        self._make = make or self._local
        self._idle_s, self._ready = idle_s, ready
        self._judges: dict[str, _Judge] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def present(self) -> int:
        """How many people have workers."""
        return len(self._judges)

    @asynccontextmanager
    async def of(self, person: str) -> AsyncIterator[Executor]:
        """A person's executor, which stays theirs between searches; a person by their folder."""
        judge = self._judges.get(person)
        if judge is None:
            seat = self._line.seat(person)
            executor = self._make(self._target, self._scratch / person, seat)
            judge = self._judges[person] = _Judge(executor, seat)
        if judge.leaving is not None:
            judge.leaving.cancel()
            judge.leaving = None
        judge.users += 1
        try:
            yield judge.executor
        finally:
            judge.users -= 1
            if not judge.users:
                loop = asyncio.get_running_loop()
                judge.leaving = loop.call_later(self._idle_s, self._let_go, person)

    def ahead(self, person: str) -> int:
        """How many other people's questions a person's search waits for; 0 after a short wait."""
        judge = self._judges.get(person)
        waits = judge is not None and judge.seat.waited_s >= WORTH_SAYING_S
        return judge.seat.ahead if judge is not None and waits else 0

    async def aclose(self) -> None:
        """End every worker."""
        for name in tuple(self._judges):
            self._let_go(name)
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._spares is not None:
            await self._spares.aclose()

    def _local(self, target: Target, scratch: Path, lease: Lease) -> Executor:
        """Worker processes on this machine, some of them started beforehand."""
        from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
        from kernelwright.tools.evaluate.rules import Rules
        from kernelwright.tools.evaluate.sandbox.keeper import Spares
        from kernelwright.tools.hardware import detect

        scratch.mkdir(parents=True, exist_ok=True)
        if self._spares is None:
            self._spares = Spares(
                self._scratch / ".spares",
                Rules(),
                self._line.seat(),
                wanted=self._ready,
                device=detect(target).kind,
            )
            self._spares.fill()
        return LocalExecutor.create(target, scratch, lease=lease, spares=self._spares)

    def _let_go(self, name: str) -> None:
        judge = self._judges.pop(name, None)
        if judge is None:
            return
        if judge.leaving is not None:
            judge.leaving.cancel()
        task = asyncio.get_running_loop().create_task(judge.executor.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def audited_by(judge: Executor, task: Task | None) -> Task | Refusal | None:
    """The task with the judge's audit; None where the search has to read the file itself."""
    if task is None or not judge.capabilities.reads_apart:
        return None
    return await judge.audit(task)
