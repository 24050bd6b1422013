"""What every question on this machine shares: the device, its workers, its seeds, its account.

Whoever asks holds the device's lease.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import TypeGuard, TypeVar

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import HEARER
from kernelwright.tools.evaluate.finalists import has_floor
from kernelwright.tools.evaluate.messages import (
    Audited,
    BackwardSeen,
    BaselineMeasured,
    Broken,
    CeilingsMeasured,
    CeilingsRequest,
    DispatchSeen,
    Judged,
    LaunchesRecorded,
    OutlineSeen,
    Reply,
    Request,
    ShapesTried,
    Traced,
)
from kernelwright.tools.evaluate.rules import Rules, fresh_seed
from kernelwright.tools.evaluate.sandbox.device_queue import Lease
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.keeper import BUILT, Keeper, Spares
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.evaluate.sandbox.worker import Patience, WorkerBrokenError, WorkerProcess
from kernelwright.tools.hardware import NEAR, cached_ceilings, floor_ms, keep_ceilings
from kernelwright.tools.tasks.sources.carried import elsewhere
from kernelwright.tools.types import Isolation, Phase, Task, TracePolicy
from kernelwright.tools.types.measurement import together

Expected = TypeVar(
    "Expected",
    Traced,
    Audited,
    DispatchSeen,
    OutlineSeen,
    BackwardSeen,
    BaselineMeasured,
    Judged,
    ShapesTried,
    LaunchesRecorded,
)


_CONFIRMING = 2
# A time that is less of a floor than this share of an earlier one has them measured once more.
_NO_NEWS = 0.99


class Workshop:
    """The workers of one device, and where their time went, by the task's file.

    Args:
        hardware: the device, perhaps without measured ceilings.
        scratch: a folder of its own, for compiled graphs and other caches.
        seed: every draw follows from it.
        rules: the judge's figures.
        lease: the device's, where several executors use one device.
        spares: workers that stand ready, if there are any.
    """

    def __init__(
        self,
        hardware: Hardware,
        scratch: Path,
        *,
        seed: int,
        rules: Rules,
        lease: Lease | None,
        spares: Spares | None,
    ) -> None:
        self.rules, self.scratch, self.seed = rules, scratch, seed
        self.device = hardware.kind
        # Where several share a machine, no process of one waits for what it may be good for.
        self.alone, self.ahead = spares is None, False
        lease = lease or asyncio.Lock()
        # Of one's own there is none before a worker was lost, or a suite asks for some.
        self._spares = Spares(
            scratch / "spares",
            rules,
            lease,
            wanted=0,
            device=hardware.kind,
            readable=(scratch / BUILT,),
        )
        self.keeper = Keeper(scratch, rules, hardware.kind, lease, spares or self._spares)
        self._known, self._tried = hardware, False
        self._measuring, self._confirming = asyncio.Lock(), _CONFIRMING
        # By task, the shortest time that had the ceilings measured again, in floors.
        self._nearest: dict[str, float] = {}
        self._trips = count()
        self._phases: dict[str, list[Phase]] = {}
        self._load_seconds: dict[str, float] = {}
        self._background: set[WorkerProcess] = set()
        self._timing = False

    @property
    def lease(self) -> Lease:
        """The lease of the device, which whoever asks its workers holds."""
        return self.keeper.lease

    @property
    def isolation(self) -> Isolation:
        """How workers are kept apart."""
        return standing(self.rules, self.device).isolation

    async def hardware(self) -> Hardware:
        """The device, with ceilings measured in a worker unless they are known already."""
        async with self._measuring:
            if not self._known.measured and not self._tried:
                known = cached_ceilings(self._known)
                if known is None:
                    async with self.undisturbed():
                        known = await self._ceilings()
                self._known = known
                # Where they could not be measured, nobody waits again: who asks may hold the lease.
                self._tried = True
        return self._known

    async def confirm(self) -> None:
        """Measure ceilings again that one measurement stands for; whoever asks holds the lease.

        A few times only: on a machine that stays busy it would find the same again.
        """
        known = self._known
        if self._tried and known.measured and not known.confirmed and self._confirming:
            self._confirming -= 1
            self._known = await self._ceilings()

    async def near_the_floor(self, task: Task, taken_ms: float | None) -> bool:
        """Measure the ceilings again for what comes near a task's floor; whether that raised them.

        Whoever asks holds the lease. Once for every time that is the shortest so far: what was
        found to be so stays so.
        """
        known = self._known
        if not self._tried or taken_ms is None or not has_floor(task, known, self.rules):
            return False
        ratio = taken_ms / floor_ms(task.bytes_moved, task.flops, known)
        if ratio > NEAR or ratio > _NO_NEWS * self._nearest.get(task_key(task), inf):
            return False
        self._known = await self._ceilings()
        raised = self._known.bandwidth_gb_s > known.bandwidth_gb_s
        if raised:
            await self.confirm()
        self._nearest[task_key(task)] = taken_ms / floor_ms(
            task.bytes_moved, task.flops, self._known
        )
        return raised

    def reseed(self, seed: int) -> None:
        """Let every draw from now on follow from another seed."""
        self.seed, self._trips = seed, count()

    def fresh_seed(self, task: Task, what: str) -> int:
        """Another seed for every question."""
        return fresh_seed(self.seed, task.digest, what, next(self._trips))

    async def ask(
        self,
        task: Task,
        request: Request,
        limit_s: float,
        readable: tuple[Path, ...] = (),
        patience: Patience | None = None,
    ) -> Reply | Ended:
        """A question about a task to the persistent worker."""
        waited_s = self.keeper.waited_s
        reply = await self.keeper.ask(request, limit_s, readable, patience)
        self._note_start(task.path, self.keeper.waited_s - waited_s)
        if isinstance(reply, Reply):
            self.note(task.path, *reply.phases)
        return reply

    def patience(self, path: str, doing: str, load_seconds: float | None = None) -> Patience:
        """With a process that loads or runs a file; as when the file was read, by default."""
        usual = TracePolicy().load_seconds
        still_s = load_seconds or self._load_seconds.get(path, usual)
        self._load_seconds[path] = still_s
        return Patience(still_s, partial(_tell, f"{doing} {Path(path).name}"))

    def spent(self, path: str) -> tuple[Phase, ...]:
        """Where the time of a file went since it was read, in the order of first steps."""
        return tuple(self._phases.get(path, ()))

    def open_account(self, path: str) -> None:
        """Begin a file's account anew."""
        self._phases.pop(path, None)

    def stand_by(self, workers: int, *, compiler: bool) -> None:
        """Let that many workers stand ready from now on, where they are of our own."""
        if self.alone:
            self.ahead = compiler
            self._spares.stand_by(workers, compiler=compiler)

    @contextmanager
    def in_background(self, worker: WorkerProcess) -> Iterator[None]:
        """While this worker works for nobody who waits, it stands still when something is timed.

        A GPU's times do not depend on what one of many processors does.
        """
        if self.device != "cpu":
            yield
            return
        self._background.add(worker)
        if self._timing:
            worker.pause()
        try:
            yield
        finally:
            self._background.discard(worker)
            worker.resume()

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        """Hold the lease, with nothing of ours at work in the background: for what is timed."""
        async with self.lease:
            self._timing = True
            for worker in self._background:
                worker.pause()
            try:
                yield
            finally:
                self._timing = False
                for worker in self._background:
                    worker.resume()

    def note(self, path: str, *phases: Phase) -> None:
        """Enter into a file's account."""
        self._phases[path] = list(together((*self._phases.get(path, ()), *phases)))

    @contextmanager
    def noting(self, path: str, name: str) -> Iterator[None]:
        """Enter what is done inside, by the wall's clock."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.note(path, Phase(name=name, seconds=time.perf_counter() - start))

    def _note_start(self, path: str, seconds: float) -> None:
        if seconds:
            self.note(path, Phase(name="worker: start", seconds=seconds))

    async def aclose(self) -> None:
        """End the workers."""
        await self._spares.aclose()
        await self.keeper.aclose()

    async def _ceilings(self) -> Hardware:
        """The device with what is measured now; as it was where nothing could be."""
        reply = await self.keeper.ask(CeilingsRequest(hardware=self._known), self.rules.ceilings_s)
        if isinstance(reply, Ended) or not isinstance(reply.answer, CeilingsMeasured):
            return self._known  # its figures may be the data sheet's, and say so
        found = reply.answer.ceilings
        if strangers := self.keeper.company():
            found = found.model_copy(update={"others_share": float(strangers > 0)})
        return keep_ceilings(self._known, found)


def _tell(doing: str, passed_s: float, busy: bool) -> None:
    how = "using the processor" if busy else "waiting"
    HEARER.get()(f"still {doing}, {passed_s:.0f} s, {how}")


def task_key(task: Task) -> str:
    """What tells tasks apart: the content of its files, the entry and the inputs."""
    return "|".join((task.digest, task.entry, *task.input_override))


def readable(task: Task) -> tuple[Path, ...]:
    """What a worker must be able to read for a task."""
    return elsewhere(task)


def is_spent(reply: Reply | Ended) -> TypeGuard[Reply]:
    """Whether a worker ends with this reply, so that asking again is asking a new one."""
    return isinstance(reply, Reply) and bool(reply.retire)


def fell(reply: Reply | Ended) -> bool:
    """Whether a signal ended the worker that nobody sent to it, as an access violation does."""
    return isinstance(reply, Ended) and reply.how == "exited" and reply.signal is not None


def expect(reply: Reply, kind: type[Expected]) -> Expected:
    """The answer, which is of the expected kind or a confession."""
    if isinstance(reply.answer, Broken):
        raise WorkerBrokenError(f"{reply.answer.words}\n{reply.answer.detail}")
    if not isinstance(reply.answer, kind):
        raise WorkerBrokenError(f"a worker answered {reply.answer.kind!r} to another question")
    return reply.answer
