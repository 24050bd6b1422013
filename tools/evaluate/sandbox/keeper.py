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

Keeps the one persistent worker of a device, and starts short-lived ones beside it.

Whoever asks holds the device's lease. A worker that was lost is replaced by the next question.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from kernelwright.tools.evaluate.messages import RehearseRequest, Reply, Request
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.device_queue import Lease, company, idle
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.worker import Patience, WorkerBrokenError, WorkerProcess
from kernelwright.tools.languages.base.compile import cache_folder


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

    def stand_by(self, wanted: int, *, compiler: bool = True) -> None:
        """From now on that many stand ready for a suite: the next ones start at once, together.

        Without `compiler` they import nothing of torch.compile, which nobody will ask for.
        """
        self._wanted, self._at_once, self._after_s = wanted, wanted, 0.0
        self._compiler, self.for_files = compiler, 0
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


# The folder for what every worker may read and none may write.
BUILT = "built"


class Keeper:
    """The workers of one device.

    Args:
        scratch: a folder for their caches.
        rules: the judge's figures.
        device: what they work on.
        lease: the device's, where several keepers use one device; one of its own by default.
        spares: workers that stand ready, if there are any.

    Attributes:
        questions: How many the present persistent worker was asked.
        waited_s: For persistent workers to start, all of them together.
        built: A folder that every worker can read and none can write.
    """

    def __init__(
        self,
        scratch: Path,
        rules: Rules,
        device: str = "cpu",
        lease: Lease | None = None,
        spares: Spares | None = None,
    ) -> None:
        self.lease: Lease = lease or asyncio.Lock()
        self.questions = 0
        self.waited_s = 0.0
        self.built = scratch / BUILT
        self._scratch = scratch
        self._rules = rules
        self._device = device
        self._spares = spares
        self._worker: WorkerProcess | None = None
        self._beside: set[WorkerProcess] = set()
        self._opened: set[WorkerProcess] = set()
        self._warming: asyncio.Task[None] | None = None
        self._next: asyncio.Task[WorkerProcess] | None = None
        self._closed = False
        self._numbers = count()

    def warm(self) -> None:
        """Start the persistent worker in the background, if there is none; it takes seconds."""
        if self._worker is None and self._warming is None:
            self._warming = asyncio.create_task(self._warm())

    def prepare(self, readable: tuple[Path, ...] = (), *, compiler: bool = True) -> None:
        """Start in the background the worker that comes after the present one, if there is none.

        It imports what torch.compile needs where it is to compile, and leaves the device alone
        until it is asked.
        """
        ready = self._spares.ready if self._spares is not None else 0
        if self._next is None and not ready and not self._closed:
            self._next = asyncio.create_task(self._prepared(readable, compiler))

    async def prepared(self) -> None:
        """Wait until the worker that comes after the present one is ready, if one is prepared."""
        if self._next is not None:
            await asyncio.wait({self._next})

    async def ask(
        self,
        request: Request,
        limit_s: float,
        readable: tuple[Path, ...] = (),
        patience: Patience | None = None,
    ) -> Reply | Ended:
        """One question to the persistent worker; `questions` counts those to the present one.

        `readable` is what it must be able to read; a worker that cannot is replaced. `patience` is
        with a worker that does nothing.
        """
        worker = await self._present(readable)
        self.questions += 1
        reply = await worker.ask(request, limit_s, patience)
        self._missed(worker)
        if isinstance(reply, Ended) and self._device == "cuda":
            await idle(self._rules.idle_s)
        return reply

    def company(self) -> int | None:
        """Processes of others on the device; None where there is none or it does not tell."""
        if self._device != "cuda" or self._worker is None:
            return None
        opened = [worker for worker in self._opened if worker.alive]
        ours = [pid for worker in (self._worker, *opened) for pid in worker.processes()]
        return company(ours, 1 + len(opened))

    def opens_device(self, worker: WorkerProcess) -> None:
        """Take note that a worker beside has the device open, and is nobody's company."""
        self._opened.add(worker)

    def stands_beside(self, other: "Keeper") -> None:
        """Take note that another keeper's worker has the device open too, if there is one."""
        if other._worker is not None:
            self.opens_device(other._worker)

    async def renew(self) -> None:
        """Let the worker go; the next question starts another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.aclose()
            await asyncio.to_thread(shutil.rmtree, worker.scratch, ignore_errors=True)

    @asynccontextmanager
    async def short_lived(
        self, name: str, readable: tuple[Path, ...] = ()
    ) -> AsyncIterator[WorkerProcess]:
        """A worker of one's own, so that what a file leaves behind meets nothing else."""
        worker = await self.apart(name, readable)
        try:
            yield worker
        finally:
            await self.end(worker)

    async def end(self, worker: WorkerProcess) -> None:
        """End a worker of `apart`, and see that one stands ready where this one was lost."""
        self._missed(worker)
        self._beside.discard(worker)
        self._opened.discard(worker)
        await worker.aclose()

    async def apart(self, name: str, readable: tuple[Path, ...] = ()) -> WorkerProcess:
        """A worker of the caller's, who ends it; the keeper does at the latest."""
        worker = await self._start(name, readable, leave=0)
        self._beside = {item for item in self._beside if item.alive} | {worker}
        return worker

    async def aclose(self) -> None:
        """End every worker; none can be started any more."""
        self._closed = True
        starting = [task for task in (self._warming, self._next) if task is not None]
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        await self.renew()
        await asyncio.gather(*(worker.aclose() for worker in tuple(self._beside)))

    def _missed(self, worker: WorkerProcess) -> None:
        """See that another stands ready where this one was lost."""
        if self._spares is not None and not worker.alive:
            self._spares.lost()

    async def _warm(self) -> None:
        async with self.lease:
            await self._present()

    @property
    def scratch(self) -> Path | None:
        """The folder of the worker that was asked last, if it lives."""
        return self._worker.scratch if self._worker is not None else None

    async def _present(self, readable: tuple[Path, ...] = ()) -> WorkerProcess:
        """The persistent worker, started when there is none."""
        if self._worker is not None and not set(readable) <= set(self._worker.readable):
            await self.renew()
        if self._worker is None or not self._worker.alive:
            self.questions, start = 0, time.perf_counter()
            self._worker = await self._another(readable)
            self.waited_s += time.perf_counter() - start
        return self._worker

    async def _another(self, readable: tuple[Path, ...]) -> WorkerProcess:
        """The prepared worker where it will do, else a new one."""
        if self._next is not None and (worker := await self._successor()) is not None:
            if worker.alive and set(readable) <= set(worker.readable):
                return worker
            await worker.aclose()
        leave = self._spares.for_files if self._spares is not None else 0
        return await self._start("evaluate", readable, leave=leave)

    async def _successor(self) -> WorkerProcess | None:
        """What was being prepared; None where that failed, as whoever needs one will be told."""
        preparing, self._next = self._next, None
        if preparing is None:
            return None
        try:
            return await preparing
        except WorkerBrokenError:
            return None

    async def _prepared(self, readable: tuple[Path, ...], compiler: bool) -> WorkerProcess:
        worker = await self._started("evaluate", readable)
        self._beside = {item for item in self._beside if item.alive} | {worker}
        if not compiler:
            return worker
        reply = await worker.ask(RehearseRequest(compiler=True), self._rules.start_s)
        if isinstance(reply, Ended):
            raise WorkerBrokenError(f"a worker {reply.words} while it was made ready")
        return worker

    async def _start(self, name: str, readable: tuple[Path, ...], *, leave: int) -> WorkerProcess:
        if self._closed:
            raise RuntimeError("the executor is closed")
        if self._spares is None:
            return await self._started(name, readable)
        if (spare := self._spare(readable, leave)) is not None:
            return spare
        async with self._spares.starts.turn():
            if (spare := self._spare(readable, leave)) is not None:
                return spare  # it became ready meanwhile
            return await self._started(name, readable)

    def _spare(self, readable: tuple[Path, ...], leave: int) -> WorkerProcess | None:
        """A worker that stands ready and can read what is asked, if there is one."""
        if self._spares is None:
            return None
        if not set(readable) <= {cache_folder(), *self._spares.readable}:
            return None
        return self._spares.take(leave)

    async def _started(self, name: str, readable: tuple[Path, ...]) -> WorkerProcess:
        try:
            return await self._once(name, readable)
        except WorkerBrokenError:
            # On a machine short of memory workers are the first to be killed; once is no pattern.
            return await self._once(name, readable)

    async def _once(self, name: str, readable: tuple[Path, ...]) -> WorkerProcess:
        # Never another's folder: what a candidate left there would be believed.
        folder = self._scratch / name / str(next(self._numbers))
        self.built.mkdir(parents=True, exist_ok=True)
        readable = (self.built, *readable)
        return await WorkerProcess.start(
            folder, self._rules, device=self._device, readable=readable
        )
