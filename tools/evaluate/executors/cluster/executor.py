"""The search's side of a cluster: an executor whose devices are Ray's.

What a search asks at once is spread over the devices that are free, by the same rules by which one
device would be asked one after the other: screen, tune the fastest, compare the promising, certify
until one settles the rest. Files are traced and sources compiled here. Every answer is kept under
its job's id the moment it is there; what is known is not asked again, by a resumed search neither.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import BatchRequest, Capabilities, Executor
from kernelwright.tools.evaluate.executors.batch.bundle import Probed
from kernelwright.tools.evaluate.executors.cluster.messages import (
    Answer,
    Ground,
    Job,
    JobKind,
    Up,
)
from kernelwright.tools.evaluate.executors.cluster.ray_fleet import RayFleet
from kernelwright.tools.evaluate.executors.cluster.results import Results
from kernelwright.tools.evaluate.executors.cluster.scheduler import Scheduler, Wanted
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.executors.local.workshop import task_key
from kernelwright.tools.evaluate.finalists import fastest, promising, settles
from kernelwright.tools.evaluate.profiling.local import not_asked
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.worker import not_compiled
from kernelwright.tools.languages import CompileFailure, compile_candidate
from kernelwright.tools.types import (
    UNBUILT,
    Baselines,
    Candidate,
    Effort,
    EnvironmentLacksError,
    Evaluation,
    Isolation,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
    Verification,
    WallKind,
)

STARTING_S = 180.0
RESULTS = "cluster.sqlite"


class Cluster:
    """A cluster that several searches may share: its fleet, and the scheduler before it.

    Args:
        ground: Where it is, and which kinds of devices are wanted of it.
        scratch: A folder of its own, for the processes that read files.
        token: Another one than Ray would find, if any.
    """

    def __init__(self, ground: Ground, scratch: Path, token: str = "") -> None:
        self.ground, self._scratch = ground, scratch
        self.fleet = RayFleet(
            ground,
            on_up=self._up,
            on_down=self._down,
            on_end=lambda error: self.scheduler.fail(error),
            token=token,
        )
        self.scheduler = Scheduler(self.fleet)
        self._refused: dict[str, str] = {}
        self._software = ""
        self._reader: LocalExecutor | None = None
        self._reading = asyncio.Semaphore(os.cpu_count() or 1)

    async def some(self, kind: str) -> Hardware:
        """The hardware of a device of that kind, as soon as one is ready.

        Raises:
            EnvironmentLacksError: There is none, or none on which candidates may run.
        """
        seen = await self.fleet.looked()
        if kind.lower() not in map(str.lower, seen.kinds):
            named = [item for item in seen.kinds.items() if item[0] != "gpu"]
            have = ", ".join(f"{number} {name}" for name, number in named)
            raise EnvironmentLacksError(f"the cluster has no {kind}; it has {have or 'no device'}")
        try:
            device = await self.scheduler.some(kind, STARTING_S)
        except EnvironmentLacksError as error:
            words = next((why for name, why in self.refusals.items() if name.startswith(kind)), "")
            raise EnvironmentLacksError(words or str(error)) from None
        return device.greeting.hardware

    @property
    def refusals(self) -> dict[str, str]:
        """Devices that are not used, by their place, and why."""
        down = {**self.fleet.refused, **self._refused}
        return {name: why for name, why in down.items() if name not in self.scheduler.devices}

    @property
    def devices(self) -> int:
        """How many devices there are of the kinds that are wanted, ready or not."""
        seen = self.fleet.seen.kinds if self.fleet.seen is not None else {}
        wanted = {kind.lower() for kind in self.ground.kinds}
        return sum(number for kind, number in seen.items() if kind.lower() in wanted)

    async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a file here, for all searches in turn: the processes that do it are large.

        Raises:
            EnvironmentLacksError: A file could reach the cluster's token from here.
        """
        from kernelwright.tools.evaluate.executors.cluster.judge import wall_lacks

        if lacks := await asyncio.to_thread(wall_lacks, "cpu"):
            raise EnvironmentLacksError(lacks)
        async with self._reading:
            if self._reader is None:
                self._reader = LocalExecutor.create("cpu", self._scratch)
            return await self._reader.read(path, policy)

    async def aclose(self) -> None:
        """End it, where it is of this machine's own; else leave it."""
        await self.scheduler.aclose()
        await self.fleet.aclose()
        if self._reader is not None:
            await self._reader.aclose()

    def _up(self, told: Up) -> None:
        """Take a device whose verdicts compare with ours, and on which candidates may run."""
        from kernelwright.tools.evaluate.executors.cluster.judge import software

        self._software = self._software or software()
        greeting = told.greeting
        why = greeting.lacks
        if greeting.software != self._software:
            why = f"{greeting.node} has {greeting.software}, but this machine {self._software}"
        if why:
            self._refused[told.device] = why
        else:
            self.scheduler.up(told.device, told.kind, greeting)

    def _down(self, device: str) -> None:
        self.scheduler.down(device)


class RayExecutor(Executor):
    """An executor that asks devices of a cluster. Close it with `aclose`.

    Args:
        cluster: Whose devices; `owned` says whether it ends with this executor.
        kind: Which devices, as `H200` or `cpu`.
        seed: Every draw of inputs and weights on a device follows from it.
        rules: The judge's figures; the defaults if None.
    """

    capabilities = Capabilities(remote=True)

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        *,
        seed: int = 0,
        rules: Rules | None = None,
        owned: bool = True,
    ) -> None:
        self._cluster, self._kind, self._owned = cluster, kind, owned
        self._seed, self._rules = seed, rules or Rules()
        self._hardware: Hardware | None = None
        self._run, self.results = "", Results()
        self._texts: dict[str, str] = {}
        self._baselines: dict[str, Baselines] = {}
        self._warnings: dict[str, tuple[str, ...]] = {}
        self._known: dict[tuple[str, Effort], Evaluation] = {}
        self._flying: dict[str, asyncio.Task[Answer]] = {}
        # Told of every job that is begun; for tests and tables.
        self.on_job: Callable[[Job], None] = lambda job: None

    @property
    def isolation(self) -> Isolation:
        """How workers are kept apart."""
        return Isolation(
            kind=WallKind.UNKNOWN, words="workers of a cluster; each evaluation says how"
        )

    @property
    def rules(self) -> Rules:
        """The judge's figures."""
        return self._rules

    def attach(self, run: str, folder: Path) -> None:
        """Say which run asks; answers are kept beside the folder for what is sent."""
        self._run = run
        self.results.close()
        self.results = Results(folder.parent / RESULTS)

    async def hardware(self) -> Hardware:
        """The device: what the first of the kind says, with ceilings once one was probed."""
        if self._hardware is None:
            self._hardware = await self._cluster.some(self._kind)
        return self._hardware

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a user's file here; whether it proves anything is found on a device."""
        task = await self._cluster.read(path, policy)
        large = task.project.elsewhere if isinstance(task, Task) and task.project else ()
        if not large:
            return task
        listed = ", ".join(f"{item.path} ({item.size_bytes / 1e6:.1f} MB)" for item in large)
        return Refusal(
            sentence=f"{path.name} reads {listed}, which is too large to be sent to a cluster; "
            "let the file make such data itself, or search on the machine that has it."
        )

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """What PyTorch itself does on such a device, with its audit; measured once a task."""
        key = task_key(task)
        if key in self._baselines:
            return self._baselines[key]
        answer = await self._asked(self._job(task, "probe"))
        probed = answer.probed or Probed(hardware=await self.hardware(), refusal=_unprobed(answer))
        self._hardware = probed.hardware
        if probed.refusal is not None or probed.baselines is None:
            return probed.refusal or Refusal(sentence=f"{task.name} has no baselines.")
        self._warnings[key] = probed.warnings
        self._baselines[key] = probed.baselines
        return probed.baselines

    def audited(self, task: Task) -> Task:
        """The task with what the audit on a device found worth a warning."""
        new = [item for item in self._warnings.get(task_key(task), ()) if item not in task.warnings]
        return task.model_copy(update={"warnings": (*task.warnings, *new)})

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines that an earlier session learnt as known."""
        self._baselines[task_key(task)] = baselines

    async def check(self, candidate: Candidate) -> Evaluation | None:
        """Compile here: why the candidate cannot be built, or None when it is worth a job."""
        hardware = await self.hardware()
        try:
            built = await compile_candidate(
                candidate, architecture=hardware.architecture, timeout_s=self._rules.compile_s
            )
        except EnvironmentLacksError:
            return None  # a device will say
        if isinstance(built, CompileFailure):
            failed = not_compiled(candidate, built, UNBUILT)
            self._known[candidate.id, "screen"] = failed
            return failed
        return None

    async def fetch(self, task: Task, request: BatchRequest) -> None:
        """Have all of a request done, as much of it at once as there are devices."""
        if request.probe:
            await self.baselines(task)
        screened = await self._all(task, request.screen, "screen")
        tuned = {item.candidate for item in fastest(screened)[: request.tuned]}
        variants = [
            item for group in request.variants if group.of in tuned for item in group.candidates
        ]
        screened += await self._all(task, variants, "screen")
        by_id = {item.id: item for item in request.candidates()}
        close = promising(screened, request.to_beat_ms, request.finalists)
        precise = [*(by_id[item.candidate] for item in close), *request.precise]
        await self._all(task, precise, "precise")
        await self._certify(task, request)

    def known(self, candidate: str, effort: Effort) -> Evaluation | None:
        """What this session was answered."""
        return self._known.get((candidate, effort))

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """What a device says of a candidate; asked once."""
        if (known := self.known(candidate.id, effort)) is not None:
            return known
        if (failed := await self.check(candidate)) is not None:
            return failed
        (found,) = await self._all(task, (candidate,), effort)
        return found

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """Where a call's time goes on such a device."""
        answer = await self._asked(self._job(task, "profile", candidate))
        return answer.profile or not_asked(candidate, f"not profiled: {answer.broken}")

    async def aclose(self) -> None:
        """End what is asked, and a cluster of one's own."""
        flying = tuple(self._flying.values())
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
        self.results.close()
        if self._owned:
            await self._cluster.aclose()

    async def _certify(self, task: Task, request: BatchRequest) -> None:
        """Rivals at once; then one after the other until one settles the rest."""
        screened_ms = request.screened_ms or (None,) * len(request.certify)
        rivals = max(1, request.rivals)
        found = await self._all(task, request.certify[:rivals], "certify")
        decided = any(settles(item, ms) for item, ms in zip(found, screened_ms, strict=False))
        for candidate, ms in zip(request.certify[rivals:], screened_ms[rivals:], strict=True):
            if decided:
                break
            (certified,) = await self._all(task, (candidate,), "certify")
            decided = settles(certified, ms)

    async def _all(
        self, task: Task, candidates: Sequence[Candidate], effort: Effort
    ) -> list[Evaluation]:
        asked = (self._judged(task, item, effort) for item in candidates)
        return list(await asyncio.gather(*asked))

    async def _judged(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        key = (candidate.id, effort)
        if key not in self._known:
            answer = await self._asked(self._job(task, effort, candidate))
            self._known[key] = answer.evaluation or self._not_judged(candidate, answer)
        return self._known[key]

    def _not_judged(self, candidate: Candidate, answer: Answer) -> Evaluation:
        reason = f"not judged, as the judge itself failed: {answer.broken}"[:500]
        verification = Verification(
            verdict=Verdict.CRASHED, reason=reason, isolation=self.isolation
        )
        return Evaluation(candidate=candidate.id, verification=verification)

    async def _asked(self, job: Job) -> Answer:
        """The answer to a job: kept from before, on its way already, or asked for now."""
        if (kept := self.results.get(job.id)) is not None:
            return kept
        if job.id not in self._flying:
            flying = self._flying[job.id] = asyncio.create_task(self._ask(job))
            flying.add_done_callback(lambda _: self._flying.pop(job.id, None))
        # One of several that wait may go.
        return await asyncio.shield(self._flying[job.id])

    async def _ask(self, job: Job) -> Answer:
        self.on_job(job)
        wanted = Wanted(self._kind, (await self.hardware()).name)
        answer = await self._cluster.scheduler.do(
            job, wanted, lambda job, device, words: self.results.lose(job.id, device, words)
        )
        if answer.lacks:
            raise EnvironmentLacksError(f"{answer.device}: {answer.lacks}")
        self.results.put(answer, job.kind, job.candidate.id if job.candidate else "")
        return answer

    def _job(self, task: Task, kind: JobKind, candidate: Candidate | None = None) -> Job:
        key = task_key(task)
        plain = self._texts.get(key)
        if plain is None:
            plain = self._texts[key] = task.model_copy(update={"warnings": ()}).model_dump_json()
        asked = candidate.model_dump_json() if candidate is not None else ""
        named = (self._run, self._kind, key, kind, asked, self._rules.model_dump_json())
        return Job(
            id=sha256("\0".join((*named, str(self._seed))).encode()).hexdigest()[:32],
            kind=kind,
            task=plain,
            task_key=key,
            rules=self._rules,
            seed=self._seed,
            candidate=candidate,
            baselines=self._baselines.get(key),
        )


def _unprobed(answer: Answer) -> Refusal:
    return Refusal(sentence=f"No device could look at it: {answer.broken}.")
