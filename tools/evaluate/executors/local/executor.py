"""The executor of this machine: one persistent worker process a device, replaced when lost.

Compiling runs in parallel outside the device's lease; verifying and timing inside it, one
candidate at a time. Workers run behind the wall that works here; `isolation` says which it is.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import Capabilities, Executor
from kernelwright.tools.evaluate.executors.local.baselines import (
    STANDARD,
    Compiling,
    KnownBaselines,
)
from kernelwright.tools.evaluate.executors.local.builder import Builder, Reading
from kernelwright.tools.evaluate.executors.local.certification import Certification, Profiles
from kernelwright.tools.evaluate.executors.local.workshop import Workshop, readable
from kernelwright.tools.evaluate.foreign.host.judges import ForeignJudge
from kernelwright.tools.evaluate.messages import (
    BackwardSeen,
    DispatchSeen,
    Foreign,
    ForeignRequest,
    OutlineSeen,
    RecordRequest,
)
from kernelwright.tools.evaluate.rules import CERTIFY, Rules
from kernelwright.tools.evaluate.sandbox.device_queue import Lease
from kernelwright.tools.evaluate.sandbox.keeper import Spares
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.evaluate.sandbox.worker import not_compiled
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import CompileFailure
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Isolation,
    Phase,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
    refuse,
)


class LocalExecutor(Executor):
    """The executor of this machine. Close it with `aclose`; a closed one starts no worker."""

    capabilities = Capabilities(
        reads_apart=True, stands_ready=True, foresees=True, metered=True, watches=True
    )

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
        self._shop = Workshop(hardware, scratch, seed=seed, rules=rules, lease=lease, spares=spares)
        self._builder = Builder(self._shop)
        self._compiling = Compiling(self._shop)
        self._reading = Reading(self._shop, self._builder)
        self._baselines = KnownBaselines(self._shop, self._builder)
        self._certification = Certification(self._shop, self._baselines, self._builder)
        self._profiles = Profiles(self._shop)
        self._foreign_judge = ForeignJudge(scratch, hardware.kind)

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
    def rules(self) -> Rules:
        """The judge's figures; other ones hold from the next question on."""
        return self._shop.rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        self._shop.rules = rules

    @property
    def scratch(self) -> Path:
        """Where its processes have their folders."""
        return self._shop.scratch

    @property
    def isolation(self) -> Isolation:
        """How workers are kept apart."""
        return self._shop.isolation

    def warm(self) -> None:
        """Start the worker in the background, as it will be asked soon."""
        self._shop.keeper.warm()

    def stand_by(self, workers: int, *, compiler: bool = True) -> None:
        """From now on let that many workers stand ready; on a CPU their starts disturb times."""
        self._shop.stand_by(workers, compiler=compiler)

    async def hardware(self) -> Hardware:
        """The device, with ceilings measured in a worker unless they are known already."""
        return await self._shop.hardware()

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a user's file in a worker of its own, then see whether the task proves anything."""
        return await self._reading.trace(path, policy)

    async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a user's file into a task, and leave open whether that proves anything."""
        return await self._reading.read(path, policy)

    async def retrace(self, task: Task, policy: TracePolicy) -> Task | Refusal:
        """The text that a task was read from, read again with another policy."""
        return await self._reading.retrace(task, policy)

    async def prove(self, task: Task, candidate: Candidate) -> Evaluation | None:
        """Whether a candidate is right, on every distribution, untimed."""
        built = await self._compiling.of(candidate)
        if isinstance(built, CompileFailure):
            return not_compiled(candidate, built, self.isolation)
        return await self._certification.proved(task, candidate, built)

    async def audit(self, task: Task) -> Task | Refusal:
        """Run the task on the device it is for, and badge it where being right proves little."""
        return await self._reading.audit(task)

    async def dispatch(self, task: Task) -> DispatchSeen:
        """What PyTorch really runs for a task; in a worker whose end takes the profiler along."""
        return await self._reading.dispatch(task)

    def compile_ahead(self, wanted: bool) -> None:
        """Whether torch.compile begins as soon as a file was read, or when it is asked for."""
        self.rules = self.rules.model_copy(update={"compile_ahead": wanted})

    def beside_eager_alone(self, wanted: bool) -> None:
        """Whether candidates are from now on compared with eager PyTorch and nothing else."""
        self._baselines.eager_alone = wanted

    async def outline(self, task: Task) -> OutlineSeen:
        """Where the time of PyTorch's own forward goes; in a worker of its own, likewise."""
        return await self._reading.outline(task)

    async def backward(self, task: Task) -> BackwardSeen:
        """The backward of PyTorch's own forward; in a worker of its own, likewise."""
        return await self._reading.backward(task)

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """Measure eager and torch.compile (on a GPU also a CUDA graph), each once a task."""
        return await self._baselines.measured(task, eager_only=eager_only)

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines that an earlier session measured as known; they are made when needed."""
        self._baselines.remember(task, baselines)

    def reseed(self, seed: int) -> None:
        """Let every draw from now on follow from another seed."""
        self._shop.reseed(seed)

    def spent(self, path: str) -> tuple[Phase, ...]:
        """Where the time of a file went since it was read; lost questions are left out."""
        return self._shop.spent(path)

    def hurry(self, until_s: float | None) -> None:
        """Nothing that is certified from now on lasts beyond that, once it was compared."""
        self._certification.until_s = until_s

    def foresee(self, candidates: Sequence[Candidate]) -> None:
        """Compile candidates that will be asked about, where that disturbs no times."""
        self._compiling.begin(candidates)

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """Compile, verify and time one candidate; every failure of it is an evaluation."""
        hardware = await self.hardware()
        if effort != "screen":
            await self.baselines(task)
        built = await self._compiling.of(candidate)
        self._shop.note(task.path, Phase(name="compile: candidates", seconds=built.seconds))
        if isinstance(built, CompileFailure):
            return not_compiled(candidate, built, self.isolation)
        self._profiles.prepare(task)
        if effort == "precise" and hardware.kind == "cuda":
            # A finalist will want a process of its own; on a CPU its start would disturb the times.
            self._shop.keeper.prepare((*readable(task), built.artifact.parents[1]))
        return await self._certification.judged(task, candidate, built, effort)

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """Where a call's time goes, and hardware counters where they can be read."""
        return await self._profiles.of(task, candidate)

    async def record(self, request: RecordRequest, place: Path) -> str:
        """Move the launches of one call of a C++ candidate to a place; why not, or ""."""
        return await self._certification.record(request, place)

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

        Raises:
            RefusedError: the task draws random numbers; foreign code may set their generator.
        """
        if task.draws_random:
            raise refuse(
                f"{task.name} draws random numbers; foreign code is not compared there, as it "
                "could set the generator's state itself. Write it as a kernel with a plan."
            )
        hardware = await self.hardware()
        if against is None:
            against = (*STANDARD[hardware.kind], *CERTIFY[hardware.kind])
        request = ForeignRequest(
            task=task,
            hardware=hardware,
            rules=self.rules,
            foreign=foreign,
            seed=self._shop.fresh_seed(task, foreign.name),
            compare_to=tuple(against) if timed else (),
        )
        async with self._shop.undisturbed():
            found = await self._foreign_judge.judge(request)
            below = found.verdict is Verdict.BELOW_FLOOR
            if below and await self._shop.near_the_floor(task, 0.0):
                # The floor was too high: judged by the one that was found now.
                higher = request.model_copy(update={"hardware": await self.hardware()})
                found = await self._foreign_judge.judge(higher)
            return found

    async def aclose(self) -> None:
        """End every process."""
        await asyncio.gather(
            self._builder.aclose(),
            self._compiling.aclose(),
            self._shop.aclose(),
            self._profiles.aclose(),
            self._foreign_judge.aclose(),
        )
