"""Keeps the one persistent worker of a device, and starts short-lived ones beside it.

Whoever asks holds the device's lease. A worker that was lost is replaced by the next question.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from kernelwright.tools.evaluate.messages import RehearseRequest, Reply, Request
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.device_queue import Lease, company, idle
from kernelwright.tools.evaluate.sandbox.spares import Spares
from kernelwright.tools.evaluate.sandbox.walled import Ended
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError, WorkerProcess
from kernelwright.tools.languages.base.cache import cache_folder

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

    async def ask(
        self, request: Request, limit_s: float, readable: tuple[Path, ...] = ()
    ) -> Reply | Ended:
        """One question to the persistent worker; `questions` counts those to the present one.

        `readable` is what it must be able to read; a worker that cannot is replaced.
        """
        worker = await self._present(readable)
        self.questions += 1
        reply = await worker.ask(request, limit_s)
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
