"""What a file is, and whether being right on it proves anything."""

import asyncio
from pathlib import Path

from kernelwright.tools.evaluate.executors.local.builder import Builder
from kernelwright.tools.evaluate.executors.local.workshop import (
    Workshop,
    expect,
    fell,
    is_spent,
    readable,
)
from kernelwright.tools.evaluate.messages import (
    Audited,
    AuditRequest,
    DispatchRequest,
    DispatchSeen,
    Reply,
    Traced,
    TraceRequest,
)
from kernelwright.tools.evaluate.sandbox.beside import beside
from kernelwright.tools.evaluate.sandbox.ended import Ended
from kernelwright.tools.evaluate.sandbox.endings import refusal_of
from kernelwright.tools.tasks import read_source
from kernelwright.tools.types import Doubt, Refusal, Task, TracePolicy


class Reading:
    """Turns files into tasks, audits them, and lists what PyTorch runs for them."""

    def __init__(self, shop: Workshop, builder: Builder) -> None:
        self._shop = shop
        self._builder = builder

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a file in a worker of its own, then see whether the task proves anything."""
        source = read_source(path)
        if isinstance(source, Refusal):
            return source
        self._shop.keeper.warm()
        task = await self._read(source, path, policy)
        return await self.audit(task) if isinstance(task, Task) else task

    async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a file into a task, and leave open whether that proves anything."""
        source = read_source(path)
        return source if isinstance(source, Refusal) else await self._read(source, path, policy)

    async def audit(self, task: Task) -> Task | Refusal:
        """Run the task on the device it is for, and badge it where being right proves little."""
        shop = self._shop
        request = AuditRequest(
            task=task,
            hardware=await shop.hardware(),
            rules=shop.rules,
            seed=shop.fresh_seed(task, "audit"),
        )
        async with shop.lease:
            # No time that is taken here counts: that of the process which compiled may end.
            reply, _ = await asyncio.gather(
                shop.ask(task, request, shop.rules.reference_s, readable(task)),
                self._builder.finish(task, "beside: worker end"),
            )
            if is_spent(reply) or fell(reply):
                # What it lacked, or what ended it, may be what earlier tasks left behind in it.
                reply = await shop.ask(task, request, shop.rules.reference_s, readable(task))
        if isinstance(reply, Ended):
            return refusal_of(reply, f"running {task.name}")
        audited = expect(reply, Audited)
        return audited.refusal or _badged(task, audited)

    async def dispatch(self, task: Task) -> DispatchSeen:
        """What PyTorch really runs for a task; in a worker whose end takes the profiler along."""
        shop = self._shop
        request = DispatchRequest(
            task=task,
            hardware=await shop.hardware(),
            rules=shop.rules,
            seed=shop.fresh_seed(task, "dispatch"),
        )
        async with shop.lease, shop.keeper.short_lived("dispatch") as worker:
            reply = await worker.ask(request, shop.rules.reference_s)
        if isinstance(reply, Ended):
            return DispatchSeen(failure=refusal_of(reply, f"profiling {task.name}").sentence)
        return expect(reply, DispatchSeen)

    async def _read(self, source: str, path: Path, policy: TracePolicy) -> Task | Refusal:
        shop, limit_s = self._shop, policy.timeout_s
        request = TraceRequest(source=source, path=str(path), policy=policy)
        shop.open_account(str(path))
        with shop.noting(str(path), "read: worker and file"):
            worker = await shop.keeper.apart("trace", beside(source, str(path)))
            found: Task | Refusal | None = None
            try:
                found = _read_from(await worker.ask(request, limit_s), path)
            finally:
                # Processes that the file started end with the reader; nothing of it may run on.
                keep = isinstance(found, Task) and not worker.strays()
                if not keep:
                    await shop.keeper.end(worker)
        if keep:
            await self._builder.adopt(str(path), worker)
            if isinstance(found, Task):
                # A suite reads a file while the one before is searched.
                self._builder.begin(found)
        return found


def _read_from(reply: Reply | Ended, path: Path) -> Task | Refusal:
    if isinstance(reply, Ended):
        return refusal_of(reply, f"reading {path.name}")
    traced = expect(reply, Traced).result
    return _draws_random(traced) if isinstance(traced, Task) and traced.draws_random else traced


def _badged(task: Task, audited: Audited) -> Task:
    told = (*(badge.words for badge in audited.badges), *audited.notes)
    update = {
        "badges": (*task.badges, *audited.badges),
        "warnings": (*task.warnings, *(words for words in told if words not in task.warnings)),
    }
    return task.model_copy(update=update)


def _draws_random(task: Task) -> Refusal:
    """Candidates draw in another order than PyTorch does, so fixing the generator is no help."""
    reasons = {badge.name: badge.reason for badge in task.badges}
    where = reasons.get(Doubt.DRAWS_RANDOM, "its forward draws random numbers")
    also = f"; besides, {reasons[Doubt.CONSTANT]}" if Doubt.CONSTANT in reasons else ""
    return Refusal(
        sentence=f"{task.name} cannot be compared: {where}, in an order that no other "
        f"implementation could keep; call .eval() in the constructor{also}.",
    )
