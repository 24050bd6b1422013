"""Judges as a recorded settings space says: every verdict and time is a measurement of before.

For judging search policies without a device. What a measurement is told as may differ from one
repetition of a search to the next, as on a device. It counts what a search pays for: candidates
that it had not asked about yet. A precise look at a known one gives the same time again.

What is not covered: candidates that nobody measured, which a search that tries recorded settings
only cannot write; and repairs by other means than other settings and strategies.
"""

from collections.abc import Callable
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import NotRecordedError
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.recorded import AS_RECORDED
from kernelwright.tools.evaluate.profiling.local import not_asked
from kernelwright.tools.evaluate.surfaces import Point, Surface
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Isolation,
    Measurement,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
    Verification,
)
from kernelwright.tools.types.measurement import Conditions


class SurfaceExecutor(Executor):
    """The judge of one recorded loop.

    Args:
        surface: What was measured.
        task: The loop as a task.
        hardware: The device that it was measured on.
        asked: Told of every candidate that is evaluated for the first time.
        noisy: What a recorded measurement is told as.
    """

    def __init__(
        self,
        surface: Surface,
        task: Task,
        hardware: Hardware,
        asked: Callable[[Point], None],
        noisy: Callable[[Point], Point],
    ) -> None:
        self._noisy = noisy
        self._surface, self._task, self._hardware = surface, task, hardware
        self._asked = asked
        self._conditions = Conditions(device=hardware.name, l2_flushed=True, input_sets=1)
        self._evaluated: dict[str, Evaluation] = {}

    @property
    def isolation(self) -> Isolation:
        """As it was recorded."""
        return AS_RECORDED

    async def hardware(self) -> Hardware:
        """The device of the recording."""
        return self._hardware

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """The loop's task, whatever lies at the path."""
        return self._task

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """Eager alone was timed."""
        measured = self._measurement(*(self._surface.eager_ms,) * 3)
        return Baselines(items=(Baseline(name="eager", measurement=measured),))

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """What was measured of it, by whatever effort it is asked.

        Raises:
            NotRecordedError: When nobody measured that candidate.
        """
        if candidate.id not in self._evaluated:
            point = self._surface.point_of(candidate)
            if point is None:
                raise NotRecordedError(f"candidate {candidate.id} under its settings")
            self._evaluated[candidate.id] = self._evaluation(candidate, self._noisy(point))
            self._asked(point)
        return self._evaluated[candidate.id]

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """Nothing was counted."""
        return not_asked(candidate, "the recording holds no counters")

    async def aclose(self) -> None:
        """Nothing runs."""

    def _evaluation(self, candidate: Candidate, point: Point) -> Evaluation:
        correct = point.verdict is Verdict.CORRECT
        screen = None
        if correct and point.median_ms and point.p10_ms and point.p90_ms:
            screen = self._measurement(point.median_ms, point.p10_ms, point.p90_ms)
        return Evaluation(
            candidate=candidate.id,
            verification=Verification(
                verdict=point.verdict,
                reason=point.reason or "as recorded",
                error_ratio=point.error_ratio,
            ),
            reports=point.reports,
            launches=point.launches,
            screen=screen,
        )

    def _measurement(self, median_ms: float, p10_ms: float, p90_ms: float) -> Measurement:
        return Measurement(
            median_ms=median_ms,
            p10_ms=p10_ms,
            p90_ms=p90_ms,
            samples_ms=(p10_ms, median_ms, p90_ms),
            conditions=self._conditions,
        )
