"""Workers that stand ready, for whoever cannot wait for one to start; and the order of starts.

A start takes seconds, most of them torch's imports, and so does the first export, which a spare has
behind it (`tools.tasks.tracing`). A spare is started when nobody holds the device's lease, so as to
disturb nobody's times, and a while after the last one was taken, so as not to compete with whoever
took it. It does not hold the lease itself: nobody should wait for a spare. A suite knows how many
it needs: its spares are started side by side and import torch.compile too.

Who finds none starts one, in turn with all others who do. Where nobody waits for files (a search
from the command line) none stands ready at first; once a worker was lost, the next loss is likely,
and from then on one does (`lost`).

`Starts` lets a few start at a time, in the order in which they were asked for. A start keeps a
processor busy for seconds. Of twenty that share two processors each takes as long as all; one after
the other they take no longer together, and half of them are ready in half the time.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from kernelwright.tools.evaluate.messages import RehearseRequest
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.device_queue import Lease
from kernelwright.tools.evaluate.sandbox.walled import Ended
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError, WorkerProcess


class Starts:
    """A queue of those who want to start a worker. For one event loop.

    Args:
        at_once: How many start at the same time; as many as there are processors by default.
    """

    def __init__(self, at_once: int | None = None) -> None:
        self._slots = asyncio.Semaphore(at_once or os.cpu_count() or 1)
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return self._waiting

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One's turn to start a worker, first come, first served."""
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()


log = logging.getLogger(__name__)

FOR_FILES = 2


class Spares:
    """A few started workers, each with a folder of its own.

    Args:
        scratch: The folder of their folders.
        rules: The judge's figures.
        lease: The lease of the device.
        wanted: How many stand ready.
        after_s: How long after one was taken another is started.
        device: What they work on.
        readable: What they may read beside what every worker may.

    Attributes:
        for_files: How many of them are left for those who read a file: somebody waits for that.
        starts: Whose turn it is to start a worker, here and beside.
    """

    def __init__(
        self,
        scratch: Path,
        rules: Rules,
        lease: Lease,
        wanted: int = 4,
        after_s: float = 5.0,
        device: str = "cpu",
        readable: tuple[Path, ...] = (),
    ) -> None:
        self._scratch, self._rules, self._lease = scratch, rules, lease
        self.readable, self.for_files = readable, FOR_FILES
        self._wanted, self._after_s, self._device = wanted, after_s, device
        self.starts = Starts()
        self._ready: list[WorkerProcess] = []
        self._numbers = count()
        self._at_once, self._compiler = 1, False
        self._coming: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def ready(self) -> int:
        """How many can be taken at once."""
        return sum(worker.alive for worker in self._ready)

    def take(self, leave: int = 0) -> WorkerProcess | None:
        """A worker that was never asked anything; None where none stands ready.

        Args:
            leave: So many are left for those who are in a greater hurry; of one, none is.
        """
        taken, leave = None, min(leave, max(0, self._wanted - 1))
        while len(self._ready) > leave and taken is None:
            worker = self._ready.pop(0)
            taken = worker if worker.alive else None
        self.fill(self._after_s)
        return taken

    def lost(self) -> None:
        """A worker did not live to be asked again: whoever needs one next should find it ready."""
        self._wanted = max(1, self._wanted)
        self.fill()

    def stand_by(self, wanted: int) -> None:
        """From now on that many stand ready for a suite: the next ones start at once, together."""
        self._wanted, self._at_once, self._after_s = wanted, wanted, 0.0
        self._compiler, self.for_files = True, 0
        self.fill()

    def fill(self, after_s: float = 0.0) -> None:
        """Start what is missing, in the background; each is there as soon as it is ready itself."""
        while not self._closed and len(self._coming) < min(self._at_once, self._missing):
            coming = asyncio.create_task(self._one_more(after_s))
            self._coming.add(coming)
            coming.add_done_callback(self._came)

    async def aclose(self) -> None:
        """End them."""
        self._closed = True
        coming = tuple(self._coming)
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        await asyncio.gather(*(worker.aclose() for worker in self._ready))
        self._ready = []

    @property
    def _missing(self) -> int:
        return self._wanted - self.ready

    def _came(self, coming: asyncio.Task[None]) -> None:
        self._coming.discard(coming)
        if coming.cancelled():
            return
        if (failed := coming.exception()) is None:
            self.fill()
        elif isinstance(failed, WorkerBrokenError):
            # Whoever needs a worker starts one and is told what is wrong with it.
            log.warning("no spare worker: %s", str(failed).splitlines()[0])
        else:
            log.error("a spare worker could not be started", exc_info=failed)

    async def _one_more(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        async with self._lease:
            pass  # somebody who measures is let finish
        folder = self._scratch / f"spare-{next(self._numbers)}"
        for place in self.readable:
            place.mkdir(parents=True, exist_ok=True)
        async with self.starts.turn():
            worker = await WorkerProcess.start(
                folder, self._rules, device=self._device, readable=self.readable
            )
            self._ready.append(await rehearsed(worker, self._rules, compiler=self._compiler))


async def rehearsed(worker: WorkerProcess, rules: Rules, *, compiler: bool) -> WorkerProcess:
    """The worker with the first export behind it, and asked for nothing else.

    Args:
        worker: Which one.
        rules: The judge's figures.
        compiler: Whether it imports what torch.compile needs as well.

    Raises:
        WorkerBrokenError: It did not survive that.
    """
    for request in (RehearseRequest(), *([RehearseRequest(compiler=True)] if compiler else [])):
        reply = await worker.ask(request, rules.start_s)
        if isinstance(reply, Ended):
            raise WorkerBrokenError(f"a worker {reply.words} while it was made ready")
    return worker
