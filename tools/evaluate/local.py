"""Evaluates on this machine: one persistent worker process a device, replaced when it is lost.

Compiling runs in parallel outside the device's lease; verifying and timing inside it, one
candidate at a time. Workers run behind the wall that works here; `isolation` says which it is.
"""

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

from profiles.load import Hardware
from tools.compile import CompileFailure, compile_candidate
from tools.evaluate.defences import Defence
from tools.evaluate.endings import accompanied, evaluation_of, isolated, not_compiled, refusal_of
from tools.evaluate.executor import Effort
from tools.evaluate.foreign.check import Courthouse
from tools.evaluate.foreign.request import Foreign, ForeignRequest
from tools.evaluate.messages import (
    LAUNCHES,
    Audited,
    AuditRequest,
    BaselineMeasured,
    BaselineRequest,
    Broken,
    CeilingsMeasured,
    CeilingsRequest,
    DispatchRequest,
    DispatchSeen,
    HoldoutRequest,
    Judged,
    JudgeRequest,
    LaunchesRecorded,
    ProfileRequest,
    RecordRequest,
    Reply,
    ShapesTried,
    Traced,
    TraceRequest,
)
from tools.evaluate.process.beside import beside
from tools.evaluate.process.ended import Ended
from tools.evaluate.process.keeper import Keeper
from tools.evaluate.process.line import Lease
from tools.evaluate.process.spares import Spares
from tools.evaluate.process.walls import standing
from tools.evaluate.process.worker import WorkerBrokenError
from tools.evaluate.profiling.local import not_profiled, profile_here
from tools.evaluate.quarantine import cautious, suspicious
from tools.evaluate.rules import Rules
from tools.evaluate.sanitizing import sanitized, sanitized_here
from tools.evaluate.sanitizing.host import taken
from tools.evaluate.seeds import fresh_seed
from tools.hardware import cached_ceilings, detect, keep_ceilings
from tools.nouns import (
    Baseline,
    Baselines,
    Candidate,
    Doubt,
    Evaluation,
    Isolation,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
)
from tools.profile.code import code_evidence
from tools.tasks import read_source

STANDARD = {"cpu": ("eager", "compile"), "cuda": ("eager", "compile", "graph")}
CERTIFY = {"cpu": (), "cuda": ("max-autotune",)}
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


class LocalExecutor:
    """The executor of this machine. Close it with `aclose`; a closed one starts no worker."""

    def __init__(
        self,
        hardware: Hardware,
        scratch: Path,
        *,
        seed: int,
        rules: Rules,
        lease: Lease | None = None,
        spares: Spares | None = None,
    ) -> None:
        self.rules = rules
        self._hardware = hardware
        self._seed = seed
        self._trips = count()
        self._scratch = scratch
        lease = lease or asyncio.Lock()
        # Of one's own there is none before a worker was lost.
        self._spares = Spares(scratch / "spares", rules, lease, wanted=0, device=hardware.kind)
        self._keeper = Keeper(scratch, rules, hardware.kind, lease, spares or self._spares)
        self._aside = Keeper(scratch / "aside", rules, hardware.kind, self._keeper.lease)
        self._courthouse = Courthouse(scratch, hardware.kind)
        self._profiles = scratch / "profiles"
        self._baselines: dict[str, Baselines] = {}
        self._unmakeable: set[tuple[str, str]] = set()
        self._best_ms: dict[str, float] = {}

    @classmethod
    def create(
        cls,
        target: str,
        scratch: Path,
        seed: int = 0,
        rules: Rules | None = None,
        lease: Lease | None = None,
        spares: Spares | None = None,
    ) -> "LocalExecutor":
        """An executor for `auto`, `cuda` or `cpu`; starts nothing yet.

        Args:
            target: which device.
            scratch: a folder of its own, for compiled graphs and other caches.
            seed: every draw of inputs and weights follows from it.
            rules: the judge's figures, if not the defaults.
            lease: the device's, shared with the other executors of one program.
            spares: workers that stand ready, likewise shared.

        Raises:
            ValueError: the target or the wished isolation is unknown.
            EnvironmentLacksError: there is no such device, or no wall where one is demanded.
        """
        hardware = detect(target)
        rules = rules or Rules()
        standing(rules, hardware.kind)  # what is missing is said before anything is spent
        return cls(
            hardware,
            scratch.absolute(),
            seed=seed,
            rules=rules,
            lease=lease,
            spares=spares,
        )

    @property
    def isolation(self) -> Isolation:
        """How workers are kept apart."""
        return standing(self.rules, self._hardware.kind).isolation

    @property
    def together(self) -> bool:
        """A trip costs nothing here: ask for one thing after another, and learn in between."""
        return False

    def warm(self) -> None:
        """Start the worker in the background, as it will be asked soon."""
        self._keeper.warm()

    async def hardware(self) -> Hardware:
        """The device, with ceilings measured in a worker unless they are known already."""
        if not self._hardware.measured:
            self._hardware = cached_ceilings(self._hardware) or await self._ceilings()
        return self._hardware

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a user's file in a worker of its own, then see whether the task proves anything."""
        source = read_source(path)
        if isinstance(source, Refusal):
            return source
        self._keeper.warm()
        task = await self._read(source, path, policy)
        return await self.audit(task) if isinstance(task, Task) else task

    async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a user's file into a task, and leave open whether that proves anything."""
        source = read_source(path)
        return source if isinstance(source, Refusal) else await self._read(source, path, policy)

    async def _read(self, source: str, path: Path, policy: TracePolicy) -> Task | Refusal:
        request = TraceRequest(source=source, path=str(path), policy=policy)
        async with self._keeper.short_lived("trace", beside(source, str(path))) as worker:
            reply = await worker.ask(request, policy.timeout_s)
        if isinstance(reply, Ended):
            return refusal_of(reply, f"reading {path.name}")
        traced = _expect(reply, Traced).result
        if isinstance(traced, Task):
            return _draws_random(traced) if traced.draws_random else traced
        return traced

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """Measure eager and torch.compile (on a GPU also a CUDA graph), each once a task."""
        key = task_key(task)
        hardware = await self.hardware()
        wanted = STANDARD[hardware.kind][:1] if eager_only else STANDARD[hardware.kind]
        async with self._keeper.lease:
            for name in wanted:
                known = self._baselines.get(key, Baselines(items=()))
                if known.named(name) is not None:
                    continue
                item = await self._measure_baseline(task, hardware, name)
                if name == "eager" and item.measurement is None:
                    return Refusal(sentence=f"{task.name} does not run: {item.failure}.")
                self._baselines[key] = Baselines(items=(*known.items, item))
        return self._baselines[key]

    def reseed(self, seed: int) -> None:
        """Let every draw from now on follow from another seed."""
        self._seed, self._trips = seed, count()

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines that an earlier session measured as known; they are made when needed."""
        self._baselines[task_key(task)] = baselines

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """Compile, verify and time one candidate; every failure of it is an evaluation."""
        hardware = await self.hardware()
        if effort != "screen":
            await self.baselines(task)
        built = await compile_candidate(
            candidate,
            architecture=hardware.architecture,
            timeout_s=self.rules.compile_s,
            contract=self.rules.has(Defence.ALLOW_LIST),
        )
        if isinstance(built, CompileFailure):
            return not_compiled(candidate, built, self.isolation)
        request = JudgeRequest(
            task=task,
            hardware=hardware,
            rules=self.rules,
            candidate=candidate,
            built=built,
            effort=effort,
            seed=self._fresh_seed(task, candidate.id),
            baselines=self._baselines.get(task_key(task)),
            compare_to=self._compare_to(task, effort),
            best_ms=self._best_ms.get(task_key(task)),
        )
        async with self._keeper.lease:
            evaluation = await self._judge(request, fresh=effort == "certify")
            if effort == "certify" and suspicious(evaluation, self.rules):
                # Once more in another fresh process on other values; the worse one counts.
                seed = self._fresh_seed(task, candidate.id)
                again = request.model_copy(update={"seed": seed})
                evaluation = cautious(evaluation, await self._judge(again, fresh=True))
            if effort == "certify":
                evaluation = await self._hold_out(request, evaluation)
                evaluation = await self._sanitize(request, evaluation)
        self._note_best(task, evaluation)
        return evaluation

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """Where a call's time goes, and hardware counters where they can be read."""
        hardware = await self.hardware()
        built = await compile_candidate(
            candidate, architecture=hardware.architecture, timeout_s=self.rules.compile_s
        )
        if isinstance(built, CompileFailure):
            return not_profiled(candidate, built)
        request = ProfileRequest(
            task=task,
            hardware=hardware,
            rules=self.rules,
            candidate=candidate,
            built=built,
            seed=fresh_seed(self._seed, task.source_sha256, candidate.id, "profile"),
        )
        start = time.perf_counter()
        code = await code_evidence(candidate, hardware)
        reading_s = time.perf_counter() - start
        async with self._keeper.lease:
            found = await profile_here(request, self._keeper, self._aside, self._profiles)
        return found.model_copy(update={"code": code, "seconds": found.seconds + reading_s})

    async def check_foreign(
        self,
        task: Task,
        foreign: Foreign,
        *,
        timed: bool = True,
        against: Sequence[str] | None = None,
    ) -> Evaluation:
        """Verify foreign code in a guest and time it, as a finalist of a search would be.

        Args:
            task: what it is for.
            foreign: the code.
            timed: whether it is timed at all.
            against: the baselines to time it beside, where not all of them.
        """
        hardware = await self.hardware()
        if against is None:
            against = (*STANDARD[hardware.kind], *CERTIFY[hardware.kind])
        request = ForeignRequest(
            task=task,
            hardware=hardware,
            rules=self.rules,
            foreign=foreign,
            seed=self._fresh_seed(task, foreign.name),
            compare_to=tuple(against) if timed else (),
        )
        async with self._keeper.lease:
            return await self._courthouse.judge(request)

    async def aclose(self) -> None:
        """End every process."""
        await self._spares.aclose()
        await asyncio.gather(self._keeper.aclose(), self._aside.aclose(), self._courthouse.aclose())

    async def _ceilings(self) -> Hardware:
        request = CeilingsRequest(hardware=self._hardware)
        async with self._keeper.lease:
            reply = await self._keeper.ask(request, self.rules.ceilings_s)
        if isinstance(reply, Ended) or not isinstance(reply.answer, CeilingsMeasured):
            return self._hardware  # its figures are then the data sheet's, and say so
        return keep_ceilings(self._hardware, reply.answer.ceilings)

    async def audit(self, task: Task) -> Task | Refusal:
        """Run the task on the device it is for, and badge it where being right proves little."""
        request = AuditRequest(
            task=task,
            hardware=await self.hardware(),
            rules=self.rules,
            seed=self._fresh_seed(task, "audit"),
        )
        async with self._keeper.lease:
            reply = await self._keeper.ask(request, self.rules.reference_s, _readable(request.task))
        if isinstance(reply, Ended):
            return refusal_of(reply, f"running {task.name}")
        audited = _expect(reply, Audited)
        if audited.refusal is not None:
            return audited.refusal
        told = (*(badge.words for badge in audited.badges), *audited.notes)
        update = {
            "badges": (*task.badges, *audited.badges),
            "warnings": (*task.warnings, *(words for words in told if words not in task.warnings)),
        }
        return task.model_copy(update=update)

    async def dispatch(self, task: Task) -> DispatchSeen:
        """What PyTorch really runs for a task; in a worker whose end takes the profiler along."""
        request = DispatchRequest(
            task=task,
            hardware=await self.hardware(),
            rules=self.rules,
            seed=self._fresh_seed(task, "dispatch"),
        )
        async with self._keeper.lease, self._keeper.short_lived("dispatch") as worker:
            reply = await worker.ask(request, self.rules.reference_s)
        if isinstance(reply, Ended):
            return DispatchSeen(failure=refusal_of(reply, f"profiling {task.name}").sentence)
        return _expect(reply, DispatchSeen)

    async def _measure_baseline(self, task: Task, hardware: Hardware, name: str) -> Baseline:
        request = BaselineRequest(
            task=task,
            hardware=hardware,
            rules=self.rules,
            name=name,
            seed=self._fresh_seed(task, name),
        )
        reply = await self._keeper.ask(request, self.rules.baseline_s, _readable(task))
        if isinstance(reply, Ended):
            return Baseline(name=name, failure=f"{name} {reply.words}")
        return _expect(reply, BaselineMeasured).baseline

    async def _judge(self, request: JudgeRequest, *, fresh: bool) -> Evaluation:
        """One trip up the ladder; a worker that is lost on the way is explained."""
        if fresh:
            await self._keeper.renew()
        readable = (*_readable(request.task), request.built.artifact.parents[1])
        while True:
            reply = await self._keeper.ask(request, self.rules.reference_s, readable)
            if isinstance(reply, Reply):
                evaluation = _expect(reply, Judged).evaluation
                evaluation = accompanied(evaluation, self._keeper.company())
                return isolated(evaluation, self.isolation)
            baseline = reply.stage.baseline if reply.stage else ""
            if baseline in request.compare_to:
                # Not the candidate's fault: go on without that baseline.
                self._unmakeable.add((task_key(request.task), baseline))
                left = tuple(name for name in request.compare_to if name != baseline)
                request = request.model_copy(update={"compare_to": left})
            elif reply.how != "exited" or self._keeper.questions <= 1:
                return evaluation_of(request, reply, self.isolation)
            # An older worker may have died of what an earlier candidate did to its memory.

    async def _sanitize(self, request: JudgeRequest, found: Evaluation) -> Evaluation:
        """What a sanitizer says of a finalist: the GPU's, or the C++ compiler's own."""
        if found.verdict is not Verdict.CORRECT or not self.rules.has(Defence.SANITIZER):
            return found
        folder = self._scratch / "sanitize"
        if request.hardware.kind == "cuda":
            return await sanitized(request, found, folder)
        return await sanitized_here(request, found, folder, self.record)

    async def record(self, request: RecordRequest, place: Path) -> str:
        """Move the launches of one call of a C++ candidate to a place; why not, or ""."""
        reply = await self._keeper.ask(request, self.rules.reference_s, _readable(request.task))
        if isinstance(reply, Ended):
            return f"the process {reply.words}"
        told = _expect(reply, LaunchesRecorded)
        folder = self._keeper.scratch
        return told.problem or taken(folder / LAUNCHES if folder else None, place)

    async def _hold_out(self, request: JudgeRequest, found: Evaluation) -> Evaluation:
        """Try a correct candidate on other shapes; its worker may be lost over it."""
        if found.verdict is not Verdict.CORRECT or not self.rules.has(Defence.HOLDOUT_SHAPES):
            return found
        asked = HoldoutRequest(
            task=request.task,
            hardware=request.hardware,
            rules=request.rules,
            candidate=request.candidate,
            built=request.built,
            seed=request.seed,
        )
        reply = await self._keeper.ask(asked, self.rules.reference_s)
        if isinstance(reply, Ended):
            when = f", while {reply.stage.words}" if reply.stage else ""
            words = f"this shape only: on another one it {reply.words}{when}"
        else:
            words = _expect(reply, ShapesTried).words
        checked = found.verification.model_copy(update={"shapes": words})
        return found.model_copy(update={"verification": checked})

    def _compare_to(self, task: Task, effort: Effort) -> tuple[str, ...]:
        known = self._baselines.get(task_key(task))
        if effort == "screen" or known is None:
            return ()
        names = [item.name for item in known.items if item.measurement is not None]
        names += CERTIFY[self._hardware.kind] if effort == "certify" else ()
        return tuple(name for name in names if (task_key(task), name) not in self._unmakeable)

    def _note_best(self, task: Task, evaluation: Evaluation) -> None:
        if evaluation.verification.apart:
            return  # what computes in less sets no mark for the others
        if evaluation.verdict == "correct" and (taken := evaluation.median_ms) is not None:
            key = task_key(task)
            self._best_ms[key] = min(taken, self._best_ms.get(key, taken))

    def _fresh_seed(self, task: Task, what: str) -> int:
        return fresh_seed(self._seed, task.source_sha256, what, next(self._trips))


def _readable(task: Task) -> tuple[Path, ...]:
    return beside(task.source, task.path)


def task_key(task: Task) -> str:
    """What tells tasks apart: the file's content, the entry and the inputs."""
    return "|".join((task.source_sha256, task.entry, *task.input_override))


def _expect(reply: Reply, kind: type[Expected]) -> Expected:
    """The answer, which is of the expected kind or a confession."""
    if isinstance(reply.answer, Broken):
        raise WorkerBrokenError(f"{reply.answer.words}\n{reply.answer.detail}")
    if not isinstance(reply.answer, kind):
        raise WorkerBrokenError(f"a worker answered {reply.answer.kind!r} to another question")
    return reply.answer


def _draws_random(task: Task) -> Refusal:
    """Candidates draw in another order than PyTorch does, so fixing the generator is no help."""
    reasons = {badge.name: badge.reason for badge in task.badges}
    where = reasons.get(Doubt.DRAWS_RANDOM, "its forward draws random numbers")
    also = f"; besides, {reasons[Doubt.CONSTANT]}" if Doubt.CONSTANT in reasons else ""
    return Refusal(
        sentence=f"{task.name} cannot be compared: {where}, in an order that no other "
        f"implementation could keep; call .eval() in the constructor{also}.",
    )
