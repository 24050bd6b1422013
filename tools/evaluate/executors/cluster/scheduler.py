"""Gives jobs to devices: one at a time to each, and to another one where a device is lost.

    answer = await scheduler.do(job, Wanted("H200"))

Who is free takes the next job, preferably of a task whose torch.compile it has built; else the
oldest task's come first, so that many searches at once end one after another. What is compared with
torch.compile waits a while for a device that has it, rather than have it built twice. A lost device
costs the job's time; the job is begun elsewhere, and after `LOSSES` such ends it is given up as one
that takes devices along. A device that says that its own judge failed is not asked for that job
again.

Nothing here knows Ray: a `Fleet` runs a job on a device by whatever means.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from kernelwright.tools.evaluate.executors.cluster.messages import Answer, Greeting, Job
from kernelwright.tools.types import EnvironmentLacksError

# So many devices may be lost over a job, or say that they failed, before nobody else is asked.
LOSSES, FAILURES = 4, 3
# The judge on a device has limits of its own for every question; this is for one that hangs.
HUNG_S = 3600.0
# What is compared with torch.compile waits so long for a device that has built it: as long as
# another one would need to build it too.
PATIENT_S = 10.0
_ANYWHERE = ("probe", "screen", "profile")
# A device's judge holds the baselines of about so many tasks.
_REMEMBERED = 4
_POLL_S = 1.0


class DeviceLostError(Exception):
    """A device did not live to answer; the message says how it ended."""


class Fleet(Protocol):
    """Runs jobs on devices."""

    async def run(self, device: str, job: str) -> str:
        """An `Answer` to a `Job`, both as text.

        Raises:
            DeviceLostError: When the device was lost meanwhile.
        """
        ...

    def end(self, device: str) -> None:
        """End what hangs; the device comes back with another process."""
        ...


@dataclass(frozen=True)
class Wanted:
    """Which devices may do a job: those of a kind, and of one name where that is known."""

    kind: str
    name: str = ""


@dataclass
class Device:
    """One device that is up: who it is, which tasks it has built, and whether it has a job."""

    id: str
    kind: str
    greeting: Greeting
    tasks: "OrderedDict[str, None]" = field(default_factory=OrderedDict)
    busy: bool = False

    @property
    def name(self) -> str:
        """The hardware's name."""
        return self.greeting.hardware.name

    def fits(self, wanted: Wanted) -> bool:
        """Whether it is one of those."""
        return self.kind == wanted.kind and wanted.name in ("", self.name)

    def learn(self, task: str) -> None:
        """Know a task from now on, and forget the one that was of use longest ago."""
        self.tasks[task] = None
        self.tasks.move_to_end(task)
        while len(self.tasks) > _REMEMBERED:
            self.tasks.popitem(last=False)


# Told of a job, of the device that was lost over it, and how.
Told = Callable[[Job, str, str], None]


def _unheard(job: Job, device: str, words: str) -> None:
    """Where nobody listens."""


@dataclass(eq=False)
class _Waiting:
    """A job on its way: who waits for it, and where it was lost or failed already."""

    job: Job
    text: str
    wanted: Wanted
    answer: "asyncio.Future[Answer]"
    order: tuple[int, int]
    told: Told
    queued_s: float
    since_s: float
    losses: int = 0
    failed_on: set[str] = field(default_factory=set)


class Scheduler:
    """Spreads jobs over the devices that are up. For one event loop.

    Args:
        fleet: Runs them.
        patience_s: How long a job waits while no device that may do it is up.
        clock: Seconds, for that.
    """

    def __init__(
        self, fleet: Fleet, patience_s: float = 900.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fleet, self._patience_s, self._clock = fleet, patience_s, clock
        self.devices: dict[str, Device] = {}
        self._queue: list[_Waiting] = []
        self._tasks: dict[str, int] = {}
        self._numbers = count()
        self._running: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._failed: Exception | None = None

    async def do(self, job: Job, wanted: Wanted, told: Told = _unheard) -> Answer:
        """What a device answers to a job; `told` of every device that did not live to answer.

        Raises:
            EnvironmentLacksError: No such device was up for too long, or it lacks something.
        """
        if self._failed is not None:
            raise self._failed
        order = (self._tasks.setdefault(job.task_key, len(self._tasks)), next(self._numbers))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        text = job.model_dump_json()
        now_s = self._clock()
        waiting = _Waiting(job, text, wanted, answer, order, told, now_s, now_s)
        self._enqueue(waiting)
        try:
            return await answer
        finally:
            if waiting in self._queue:
                self._queue.remove(waiting)

    async def some(self, kind: str, starting_s: float) -> Device:
        """A device of a kind, as soon as one is up.

        Raises:
            EnvironmentLacksError: None was within `starting_s`.
        """
        until_s = self._clock() + starting_s
        while True:
            if self._failed is not None:
                raise self._failed
            for device in self.devices.values():
                if device.kind == kind:
                    return device
            left_s = until_s - self._clock()
            if left_s <= 0:
                raise EnvironmentLacksError(_none_up(kind, starting_s))
            self._changed.clear()
            await asyncio.wait({asyncio.ensure_future(self._changed.wait())}, timeout=left_s)

    def up(self, device: str, kind: str, greeting: Greeting) -> None:
        """A device is ready; it knows no task, whatever it did before."""
        self.devices[device] = Device(device, kind, greeting)
        self._changed.set()
        self._dispatch()

    def down(self, device: str) -> None:
        """A device takes no job any more; its present one ends by its own call's end."""
        self.devices.pop(device, None)

    def fail(self, error: Exception) -> None:
        """Nobody will answer any more."""
        self._failed = error
        self._changed.set()
        for waiting in tuple(self._queue):
            _give_up(waiting, error)

    async def aclose(self) -> None:
        """Give up what is running."""
        tasks = [*self._running, *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _enqueue(self, waiting: _Waiting) -> None:
        waiting.queued_s = waiting.since_s = self._clock()
        self._queue.append(waiting)
        if len(self._queue) > 1 and self._queue[-2].order > waiting.order:
            self._queue.sort(key=lambda item: item.order)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give every free device a job."""
        for device in self.devices.values():
            if not self._queue:
                break
            waiting = None if device.busy else self._next(device)
            if waiting is not None:
                self._queue.remove(waiting)
                device.busy = True
                running = asyncio.create_task(self._run(device, waiting))
                self._running.add(running)
                running.add_done_callback(self._running.discard)
        if self._queue and self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def _next(self, device: Device) -> _Waiting | None:
        """A job of a task that the device has built, else the first that it may as well begin."""
        first = None
        for waiting in self._queue:
            if device.id in waiting.failed_on or not device.fits(waiting.wanted):
                continue
            if waiting.job.task_key in device.tasks:
                return waiting
            if first is None and self._may_move(waiting):
                first = waiting
        return first

    def _may_move(self, waiting: _Waiting) -> bool:
        """Whether a job is not to wait for a device that has built what it is compared with."""
        if waiting.job.kind in _ANYWHERE or self._clock() - waiting.queued_s >= PATIENT_S:
            return True
        return not any(waiting.job.task_key in item.tasks for item in self.devices.values())

    async def _run(self, device: Device, waiting: _Waiting) -> None:
        """One job on one device."""
        if waiting.job.kind not in _ANYWHERE or waiting.job.kind == "probe":
            device.learn(waiting.job.task_key)
        try:
            async with asyncio.timeout(HUNG_S):
                answer = Answer.model_validate_json(await self._fleet.run(device.id, waiting.text))
        except TimeoutError:
            self._fleet.end(device.id)
            self._lost(device, waiting, f"it did not answer within {HUNG_S:.0f} s")
        except DeviceLostError as error:
            self._lost(device, waiting, str(error))
        except Exception as error:
            _give_up(waiting, error)
        else:
            device.busy = False
            self._answered(device, waiting, answer)
        self._dispatch()

    def _lost(self, device: Device, waiting: _Waiting, words: str) -> None:
        # It is up again when it says so.
        if self.devices.get(device.id) is device:
            self.down(device.id)
        waiting.losses += 1
        waiting.told(waiting.job, device.id, words)
        if waiting.losses < LOSSES:
            self._again(waiting)
        else:
            broken = f"{waiting.losses} devices were lost over it, the last one as {words}"
            _answer(waiting, Answer(job=waiting.job.id, device=device.id, broken=broken))

    def _answered(self, device: Device, waiting: _Waiting, answer: Answer) -> None:
        if not answer.broken:
            _answer(waiting, answer)
            return
        waiting.failed_on.add(device.id)
        others = [item for item in self.devices.values() if item.fits(waiting.wanted)]
        others = [item for item in others if item.id not in waiting.failed_on]
        if others and len(waiting.failed_on) < FAILURES:
            waiting.told(waiting.job, device.id, answer.broken)
            self._again(waiting)
        else:
            _answer(waiting, answer)

    def _again(self, waiting: _Waiting) -> None:
        if self._failed is not None:
            _give_up(waiting, self._failed)
        elif not waiting.answer.done():  # who asked may have gone
            self._enqueue(waiting)

    async def _watch(self) -> None:
        """Look again at jobs that waited: for a device of theirs, or for any device at all."""
        try:
            while self._queue:
                await asyncio.sleep(_POLL_S)
                for waiting in tuple(self._queue):
                    self._impatient(waiting)
                self._dispatch()
        finally:
            self._watching = None

    def _impatient(self, waiting: _Waiting) -> None:
        now_s = self._clock()
        if any(device.fits(waiting.wanted) for device in self.devices.values()):
            waiting.since_s = now_s
        elif now_s - waiting.since_s > self._patience_s:
            words = _none_up(waiting.wanted.name or waiting.wanted.kind, self._patience_s)
            self._queue.remove(waiting)
            _give_up(waiting, EnvironmentLacksError(words))


def _answer(waiting: _Waiting, answer: Answer) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)


def _give_up(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)


def _none_up(what: str, seconds: float) -> str:
    return (
        f"the cluster had no {what} that was ready within {seconds:.0f} s: `kernelwright cluster "
        "status` lists what it has; nothing that was measured is lost, and the run can be resumed"
    )
