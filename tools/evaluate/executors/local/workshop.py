"""What every question on this machine shares: the device, its workers, its seeds, its account.

Whoever asks holds the device's lease.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeGuard, TypeVar

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.messages import (
    Audited,
    BaselineMeasured,
    Broken,
    CeilingsMeasured,
    CeilingsRequest,
    DispatchSeen,
    Judged,
    LaunchesRecorded,
    Reply,
    Request,
    ShapesTried,
    Traced,
)
from kernelwright.tools.evaluate.rules import Rules, fresh_seed
from kernelwright.tools.evaluate.sandbox.device_queue import Lease
from kernelwright.tools.evaluate.sandbox.keeper import BUILT, Keeper, Spares
from kernelwright.tools.evaluate.sandbox.walled import Ended
from kernelwright.tools.evaluate.sandbox.walls import beside, standing
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError
from kernelwright.tools.hardware import cached_ceilings, keep_ceilings
from kernelwright.tools.types import Isolation, Phase, Task
from kernelwright.tools.types.measurement import together

Expected = TypeVar(
    "Expected",
    Traced,
    Audited,
    DispatchSeen,
    BaselineMeasured,
    Judged,
    ShapesTried,
    LaunchesRecorded,
)


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
        self._trips = count()
        self._phases: dict[str, list[Phase]] = {}

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
        if not self._known.measured and not self._tried:
            self._known = cached_ceilings(self._known) or await self._ceilings()
            # Where they could not be measured, nobody waits again: who asks may hold the lease.
            self._tried = True
        return self._known

    def reseed(self, seed: int) -> None:
        """Let every draw from now on follow from another seed."""
        self.seed, self._trips = seed, count()

    def fresh_seed(self, task: Task, what: str) -> int:
        """Another seed for every question."""
        return fresh_seed(self.seed, task.source_sha256, what, next(self._trips))

    async def ask(
        self, task: Task, request: Request, limit_s: float, readable: tuple[Path, ...] = ()
    ) -> Reply | Ended:
        """A question about a task to the persistent worker."""
        waited_s = self.keeper.waited_s
        reply = await self.keeper.ask(request, limit_s, readable)
        self._note_start(task.path, self.keeper.waited_s - waited_s)
        if isinstance(reply, Reply):
            self.note(task.path, *reply.phases)
        return reply

    def spent(self, path: str) -> tuple[Phase, ...]:
        """Where the time of a file went since it was read, in the order of first steps."""
        return tuple(self._phases.get(path, ()))

    def open_account(self, path: str) -> None:
        """Begin a file's account anew."""
        self._phases.pop(path, None)

    def stand_by(self, workers: int) -> None:
        """Let that many workers stand ready from now on, where they are of our own."""
        if self.alone:
            self.ahead = True
            self._spares.stand_by(workers)

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
        request = CeilingsRequest(hardware=self._known)
        async with self.lease:
            reply = await self.keeper.ask(request, self.rules.ceilings_s)
        if isinstance(reply, Ended) or not isinstance(reply.answer, CeilingsMeasured):
            return self._known  # its figures are then the data sheet's, and say so
        return keep_ceilings(self._known, reply.answer.ceilings)


def task_key(task: Task) -> str:
    """What tells tasks apart: the file's content, the entry and the inputs."""
    return "|".join((task.source_sha256, task.entry, *task.input_override))


def readable(task: Task) -> tuple[Path, ...]:
    """What a worker must be able to read for a task."""
    return beside(task.source, task.path)


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
