"""Turns files into tasks, and builds torch.compile's baselines where no candidate can reach them.

`Reading` says what a file is, and whether being right on it proves anything. `Builder` builds the
baselines once a task, in processes that no candidate ever saw: Inductor keeps what it compiles in a
folder, and whoever can write there can make the baseline slow. So a candidate's worker has a folder
of its own, which goes with it, and what was built cleanly lies in another one, which workers can
read and none can write: they copy it before they compile, and find the work done. The process that
read the file builds it too where it is still there.
Not covered: executors that share workers which stood ready before (the chat's): those have no such
folder to read, and build for themselves.
"""

import asyncio
import contextlib
import os
import time
from hashlib import sha256
from pathlib import Path

from kernelwright.tools.candidates.plan.vocabulary import CONTRACTIONS
from kernelwright.tools.evaluate.executors.local.workshop import (
    Workshop,
    expect,
    fell,
    is_spent,
    readable,
    task_key,
)
from kernelwright.tools.evaluate.messages import (
    Audited,
    AuditRequest,
    BackwardRequest,
    BackwardSeen,
    BuildRequest,
    BuiltElsewhere,
    DispatchRequest,
    DispatchSeen,
    OutlineRequest,
    OutlineSeen,
    Reply,
    Traced,
    TraceRequest,
)
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.worker import WorkerProcess, refusal_of
from kernelwright.tools.tasks.project import beside
from kernelwright.tools.tasks.sources import Found, find
from kernelwright.tools.tasks.sources.carried import with_state_kept
from kernelwright.tools.types import Doubt, Refusal, RefusedError, Task, TensorSpec, TracePolicy
from kernelwright.tools.types.graph import reads, words
from kernelwright.tools.types.value import Value

COMPILED = frozenset({"compile", "max-autotune"})
# Processes that have read a file and wait to build for it; the one of the present task is among
# them even where the next file is read beside it.
_KEPT = 2
# Processors beside a GPU of which one is not missed.
_MANY = 8
_CACHES = ("inductor", "triton")
# The most elements that Inductor pads a matrix product's sizes to a multiple of.
_ALIGNED = 8
_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})


class Making(Value):
    """What building one baseline took; `ended` says how a process was lost over it, "" if not."""

    seconds: float = 0.0
    ended: str = ""


class Builder:
    """Builds baselines of tasks, each once, and knows where they lie."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._readers: dict[str, WorkerProcess] = {}
        self._made: dict[tuple[str, str], Making] = {}
        self._begun: dict[str, asyncio.Task[None]] = {}
        self._complete: dict[str, WorkerProcess] = {}
        self._discarded: set[str] = set()

    async def adopt(self, path: str, reader: WorkerProcess) -> None:
        """Keep the process that read a file, which nothing but that file has run in."""
        if not self._shop.alone:
            await self._shop.keeper.end(reader)
            return
        old = [self._readers.pop(path)] if path in self._readers else []
        self._readers[path] = reader
        while len(self._readers) > _KEPT:
            old.append(self._readers.pop(next(iter(self._readers))))
        await asyncio.gather(*map(self._shop.keeper.end, old))

    def begin(self, task: Task) -> None:
        """Compile torch.compile's default mode of a task in the background.

        That is host work for one processor. Its inputs are placed on the device under the lease,
        and keep no memory there; it is run by the workers alone, which find it ready. On a CPU it
        is begun for every task, and stands still whenever something is timed; beside a GPU where
        there are processors enough, or where a suite has work ahead.
        """
        shop, key, reader = self._shop, _digest(task), self._readers.get(task.path)
        on_cpu, many = shop.device == "cpu", (os.cpu_count() or 1) >= _MANY
        if reader is None or key in self._begun or not (on_cpu or many or shop.ahead):
            return
        if on_cpu or _compiles_on_the_host(task):
            self._begun[key] = asyncio.create_task(self._compile(task, reader))

    def at_work(self, task: Task) -> bool:
        """Whether something is being built for a task in the background."""
        begun = self._begun.get(_digest(task))
        return begun is not None and not begun.done()

    async def settled(self, task: Task) -> float:
        """Wait for what `begin` began, so many seconds; whoever asks does not hold the lease."""
        start = time.monotonic()
        if (begun := self._begun.get(_digest(task))) is not None:
            await asyncio.wait({begun})
        return time.monotonic() - start

    async def finish(self, task: Task, step: str = "worker: end") -> None:
        """Lay out what `begin` has made whole, if it has; whoever asks holds the lease.

        The process that made it is ended first, so that nothing of the file's writes there. It has
        the device open, and its end is not for times that are taken meanwhile.

        Args:
            task: whose.
            step: the end's name in the account.
        """
        key = _digest(task)
        if (worker := self._complete.pop(key, None)) is None:
            return
        with self._shop.noting(task.path, step):
            await self._shop.keeper.end(worker)
        if self._readers.get(task.path) is worker:
            del self._readers[task.path]
        _move(worker.scratch, self.place(task) / "compile")
        self._made[key, "compile"] = Making()

    async def build(self, task: Task, name: str, readable: tuple[Path, ...]) -> Making:
        """Build one of `COMPILED`; whoever asks holds the lease.

        What cannot be built is left to the worker that wants it, which says why.
        """
        key = (_digest(task), name)
        if not self._shop.alone:
            return Making()
        if name == "compile":
            await self.finish(task)
        if key not in self._made:
            self._made[key] = await self._build(task, name, readable)
        return self._made[key]

    def lying(self, task: Task) -> tuple[Path, ...]:
        """The folders with what was built for a task."""
        if _digest(task) in self._discarded:
            return ()
        return tuple(sorted(self.place(task).glob("*")))

    def place(self, task: Task) -> Path:
        """The folder that holds what is built for a task, a folder for each baseline."""
        return self._shop.keeper.built / _digest(task)

    def discard(self, task: Task) -> None:
        """Let nobody take over what was built for a task: a process was lost over it."""
        self._discarded.add(_digest(task))

    async def aclose(self) -> None:
        """End the processes that wait."""
        for begun in self._begun.values():
            begun.cancel()
        await asyncio.gather(*self._begun.values(), return_exceptions=True)
        readers, self._readers = tuple(self._readers.values()), {}
        await asyncio.gather(*(worker.aclose() for worker in readers))

    async def _compile(self, task: Task, worker: WorkerProcess) -> None:
        """In the process that read the file; one that is lost over it is no loss but of time."""
        shop = self._shop
        whole = await self._request(task, "compile")
        placing = whole.model_copy(update={"step": "place"})
        if shop.device == "cpu":
            placed = await worker.ask(placing, shop.rules.baseline_s)
        else:
            async with shop.lease:
                shop.keeper.opens_device(worker)
                placed = await worker.ask(placing, shop.rules.baseline_s)
        if isinstance(placed, Ended):
            return
        shop.note(task.path, *placed.phases)
        if isinstance(placed.answer, BuiltElsewhere):
            compiling = whole.model_copy(update={"step": "compile"})
            with shop.in_background(worker):
                done = await worker.ask(compiling, shop.rules.baseline_s)
            if isinstance(done, Reply):
                shop.note(task.path, *done.phases)
                if isinstance(done.answer, BuiltElsewhere) and done.answer.complete:
                    self._complete[_digest(task)] = worker

    async def _request(self, task: Task, name: str) -> BuildRequest:
        shop = self._shop
        return BuildRequest(
            task=task,
            hardware=await shop.hardware(),
            rules=shop.rules,
            name=name,
            seed=shop.seed,
        )

    async def _build(self, task: Task, name: str, readable: tuple[Path, ...]) -> Making:
        shop = self._shop
        request = await self._request(task, name)
        limit_s = shop.rules.max_autotune_s if "max" in name else shop.rules.baseline_s
        worker = self._readers.pop(task.path, None)
        if worker is None or not worker.alive:
            with shop.noting(task.path, "worker: start"):
                worker = await shop.keeper.apart("build", readable)
        try:
            reply = await worker.ask(request, limit_s)
        finally:
            with shop.noting(task.path, "worker: end"):
                await shop.keeper.end(worker)
        if isinstance(reply, Ended):
            return Making(ended=f"{name} {reply.words}")
        shop.note(task.path, *reply.phases)
        if isinstance(reply.answer, BuiltElsewhere):
            _move(worker.scratch, self.place(task) / name)
        return Making(seconds=_seconds(reply))


def _digest(task: Task) -> str:
    return sha256(task_key(task).encode()).hexdigest()[:16]


def _compiles_on_the_host(task: Task) -> bool:
    """Compiling a matrix product may try on the device whether padding it pays.

    Only sizes are padded that are not aligned, whatever products a contraction becomes.
    """
    specs = {node.name: node.out for node in task.graph.nodes}
    for node in task.graph.nodes:
        name = node.op.split(".")[1] if "." in node.op else ""
        if name not in CONTRACTIONS or name.startswith("conv"):
            continue
        touched = [spec for read in (node.name, *reads(node)) for spec in specs[read]]
        if name in _RECURRENT or not all(map(_is_aligned, touched)):
            return False
    return True


def _is_aligned(spec: TensorSpec) -> bool:
    return all(size == 1 or size % _ALIGNED == 0 for size in spec.shape)


def _seconds(reply: Reply) -> float:
    return sum(phase.seconds for phase in reply.phases)


def _move(scratch: Path, place: Path) -> None:
    """Rename, and never follow or read: what lies there was written by a user's file."""
    place.mkdir(parents=True, exist_ok=True)
    for name in _CACHES:
        with contextlib.suppress(OSError):
            (scratch / name).rename(place / name)


class Reading:
    """Turns files into tasks, audits them, and lists what PyTorch runs for them."""

    def __init__(self, shop: Workshop, builder: Builder) -> None:
        self._shop = shop
        self._builder = builder

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a file in a worker of its own, then see whether the task proves anything."""
        found = await asyncio.to_thread(find, path, policy)
        if isinstance(found, Refusal):
            return found
        self._shop.keeper.warm()
        task = await self._read(found)
        return await self.audit(task) if isinstance(task, Task) else task

    async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a file into a task, and leave open whether that proves anything."""
        found = await asyncio.to_thread(find, path, policy)
        return found if isinstance(found, Refusal) else await self._read(found)

    async def retrace(self, task: Task, policy: TracePolicy) -> Task | Refusal:
        """The text that a task was read from, read again with another policy."""
        return await self._read(Found(source=task.source, path=Path(task.path), policy=policy))

    async def audit(self, task: Task) -> Task | Refusal:
        """Run the task on the device it is for, and badge it where being right proves little."""
        shop = self._shop
        request = AuditRequest(
            task=task,
            hardware=await shop.hardware(),
            rules=shop.rules,
            seed=shop.fresh_seed(task, "audit"),
        )
        patience = shop.patience(task.path, "running")
        async with shop.lease:
            # No time that is taken here counts: that of the process which compiled may end.
            reply, _ = await asyncio.gather(
                shop.ask(task, request, shop.rules.reference_s, readable(task), patience),
                self._builder.finish(task, "beside: worker end"),
            )
            if is_spent(reply) or fell(reply):
                # What it lacked, or what ended it, may be what earlier tasks left behind in it.
                reply = await shop.ask(
                    task, request, shop.rules.reference_s, readable(task), patience
                )
        if isinstance(reply, Ended):
            return refusal_of(reply, f"running {task.name}")
        audited = expect(reply, Audited)
        return audited.refusal or _badged(task, audited)

    async def dispatch(self, task: Task) -> DispatchSeen:
        """What PyTorch really runs for a task; in a worker whose end takes the profiler along."""
        reply = await self._looked_at(task, "dispatch", DispatchRequest)
        if isinstance(reply, Ended):
            return DispatchSeen(failure=refusal_of(reply, f"profiling {task.name}").sentence)
        return expect(reply, DispatchSeen)

    async def outline(self, task: Task) -> OutlineSeen:
        """Where the time of PyTorch's own forward goes, operator by operator."""
        reply = await self._looked_at(task, "outline", OutlineRequest)
        if isinstance(reply, Ended):
            return OutlineSeen(failure=refusal_of(reply, f"running {task.name}").sentence)
        return expect(reply, OutlineSeen)

    async def backward(self, task: Task) -> BackwardSeen:
        """The backward of PyTorch's own forward, as a task of its own."""
        reply = await self._looked_at(task, "backward", BackwardRequest)
        if isinstance(reply, Ended):
            return BackwardSeen(failure=refusal_of(reply, f"running {task.name}").sentence)
        return expect(reply, BackwardSeen)

    async def _looked_at(
        self,
        task: Task,
        what: str,
        kind: type[DispatchRequest] | type[OutlineRequest] | type[BackwardRequest],
    ) -> Reply | Ended:
        """What a worker of its own saw of PyTorch's forward."""
        shop = self._shop
        seed, hardware = shop.fresh_seed(task, what), await shop.hardware()
        request = kind(task=task, hardware=hardware, rules=shop.rules, seed=seed)
        async with shop.lease, shop.keeper.short_lived(what, readable(task)) as worker:
            return await worker.ask(request, shop.rules.reference_s)

    async def _read(self, file: Found) -> Task | Refusal:
        shop, source, path, policy = self._shop, file.source, file.path, file.policy
        limit_s = policy.limit_s
        patience = shop.patience(str(path), "reading", policy.load_seconds)
        request = TraceRequest(source=source, path=str(path), policy=policy)
        readable = (*beside(source, str(path), policy.project), *file.saved)
        shop.open_account(str(path))
        with shop.noting(str(path), "read: worker and file"):
            worker = await shop.keeper.apart("trace", readable)
            found: Task | Refusal | None = None
            try:
                found = _read_from(await worker.ask(request, limit_s, patience), path)
                if isinstance(found, Task):
                    found = await asyncio.to_thread(_with_state, found, worker.scratch)
            finally:
                # Processes that the file started end with the reader; nothing of it may run on.
                # A region's reader would take the place of the model's, which may be compiling.
                ahead = shop.rules.compile_ahead
                keep = isinstance(found, Task) and ahead and not worker.strays()
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
    return _draws_random(traced) if isinstance(traced, Task) and traced.unkept_draws else traced


def _with_state(task: Task, scratch: Path) -> Task | Refusal:
    try:
        return with_state_kept(task, scratch)
    except RefusedError as refused:
        return refused.refusal
    except OSError as error:
        return Refusal(sentence=f"The weights of {task.name} cannot be kept: {error.strerror}.")


def _badged(task: Task, audited: Audited) -> Task:
    told = (*(badge.words for badge in audited.badges), *audited.notes)
    update = {
        "badges": (*task.badges, *audited.badges),
        "warnings": (*task.warnings, *(words for words in told if words not in task.warnings)),
    }
    return task.model_copy(update=update)


# What a tensor's normal_() and its like draw, and so a distribution's rsample(), whatever the mode.
_FILLED = words("cauchy exponential geometric log_normal normal_functional uniform")


def _draws_random(task: Task) -> Refusal:
    """Fixing the generator's state is no help where candidates draw in another order."""
    reasons = {badge.name: badge.reason for badge in task.badges}
    where = reasons.get(Doubt.DRAWS_RANDOM, "its forward draws random numbers")
    also = f"; besides, {reasons[Doubt.CONSTANT]}" if Doubt.CONSTANT in reasons else ""
    in_training = task.training and _FILLED.isdisjoint(task.unkept_draws)
    way = ""
    if in_training:
        way = "; --eval puts it into evaluation mode, where dropout draws nothing"
    elif not _FILLED.isdisjoint(task.unkept_draws):
        way = "; torch.randn_like and torch.rand_like draw in one that they can keep"
    return Refusal(
        sentence=f"{task.name} cannot be compared: {where}, in an order that no other "
        f"implementation could keep{way}{also}.",
        draws_in_training=in_training,
    )
