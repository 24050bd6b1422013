"""Judges as a recorded run did: every verdict and every time from its archive, nothing is run.

For replays. Not here: making the calls in the same order, which is the graph's part.
"""

from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Archive, NotRecordedError
from kernelwright.tools.evaluate.executors.base.executor import Capabilities, Executor
from kernelwright.tools.evaluate.profiling.local import not_asked
from kernelwright.tools.types import (
    UNBUILT,
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Isolation,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    WallKind,
)

# The baselines that a search went by, where they were measured again after it.
SEARCHED_BY = "baselines of the search"
AS_RECORDED = Isolation(kind=WallKind.UNKNOWN, words="as recorded")


class RecordedExecutor(Executor):
    """The executor of a run that was evaluated before, here or elsewhere.

    Args:
        past: The recorded run; it stays its owner's.
        present: The replay of it so far.
        remote: Whether the run's device was elsewhere.
    """

    def __init__(self, past: Archive, present: Archive, *, remote: bool = False) -> None:
        self.capabilities = Capabilities(remote=remote)
        self._past = past
        self._present = present
        self._record = past.record()
        searched_by = past.term(SEARCHED_BY)
        self._baselines = (
            Baselines.model_validate_json(searched_by) if searched_by else self._record.baselines
        )

    @property
    def isolation(self) -> Isolation:
        """How workers were kept apart, as the run says."""
        summary = self._record.summary
        return summary.isolation if summary else AS_RECORDED

    async def hardware(self) -> Hardware:
        """The device of the run."""
        return self._record.hardware

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """The task of the run, whatever lies at the path now."""
        return self._record.task

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """What the search went by; with `eager_only` no more than what was known at first."""
        known = self._baselines
        if known is None:
            raise NotRecordedError("the baselines")
        eager = tuple(item for item in known.items if item.name == "eager")
        return Baselines(items=eager) if eager_only and not self.capabilities.remote else known

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """What the judge said.

        Raises:
            NotRecordedError: When the run never asked for that.
        """
        found = self._past.evaluation(candidate.id, effort)
        if found is None:
            raise NotRecordedError(f"the judgement of {candidate.id} at the effort {effort!r}")
        return found

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """What was measured in the run; nothing in runs that are older than profiling."""
        found = self._past.measured(candidate.id)
        return found or not_asked(candidate, "the recorded run measured no counters")

    async def aclose(self) -> None:
        """Nothing runs."""

    def audited(self, task: Task) -> Task:
        """The task with what the far audit had brought."""
        return self._record.task

    async def check(self, candidate: Candidate) -> Evaluation | None:
        """Why the compiler refused it in the run, if it did."""
        found = self._past.evaluation(candidate.id, "screen")
        refused = found is not None and found.verification.isolation == UNBUILT
        return found if refused else None

    def known(self, candidate: str, effort: Effort) -> Evaluation | None:
        """What trips had brought by the round that the replay is in."""
        now = max((idea.round for idea in self._present.ideas()), default=0)
        then = any(
            item.round <= now for item in self._past.candidates() if item.candidate.id == candidate
        )
        return self._past.evaluation(candidate, effort) if then else None
