"""The judge as the search over one region sees it: eager alone, and nothing is certified.

Nothing is claimed of a region by itself. What its search finds is verified and compared with eager
as ever; torch.compile and the certification are for the whole. Who searches regions does it
`beside_eager_alone`, or the executor would build torch.compile for each of them.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import Capabilities, Executor
from kernelwright.tools.evaluate.rules import Rules
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
)


@asynccontextmanager
async def beside_eager_alone(executor: Executor) -> AsyncIterator[None]:
    """Nothing is compared with torch.compile meanwhile, and none is built ahead."""
    ahead = executor.rules is not None and executor.rules.compile_ahead
    executor.compile_ahead(False)
    executor.beside_eager_alone(True)
    try:
        yield
    finally:
        if ahead:
            executor.compile_ahead(True)
        executor.beside_eager_alone(False)


class RegionJudge(Executor):
    """Asks another executor, which stays its owner's."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._precise: dict[str, Evaluation] = {}

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """The other executor's, but for certifying."""
        return self._executor.capabilities.model_copy(update={"certifies": False})

    @property
    def isolation(self) -> Isolation:
        """The other executor's."""
        return self._executor.isolation

    @property
    def rules(self) -> Rules | None:
        """The other executor's."""
        return self._executor.rules

    async def hardware(self) -> Hardware:
        """The device."""
        return await self._executor.hardware()

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a region's file; its audit would say what that of the whole has said."""
        return await self._executor.read(path, policy)

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """Eager's time."""
        return await self._executor.baselines(task, eager_only=True)

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines as known."""
        self._executor.remember(task, baselines)

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """As the other executor does; a certification is the precise look that there was."""
        if effort == "certify" and candidate.id in self._precise:
            return self._precise[candidate.id]
        asked: Effort = "precise" if effort == "certify" else effort
        found = await self._executor.evaluate(task, candidate, asked)
        if asked == "precise":
            self._precise[candidate.id] = found
        return found

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """As the other executor does."""
        return await self._executor.profile(task, candidate)

    def hurry(self, until_s: float | None) -> None:
        """As the other executor does."""
        self._executor.hurry(until_s)

    def foresee(self, candidates: Sequence[Candidate]) -> None:
        """As the other executor does."""
        self._executor.foresee(candidates)

    def spent(self, path: str) -> tuple[Phase, ...]:
        """As the other executor does."""
        return self._executor.spent(path)

    async def aclose(self) -> None:
        """The owner closes it."""
