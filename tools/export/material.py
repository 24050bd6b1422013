"""What an export is made of, and when there must be none."""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.types import Baselines, Candidate, Evaluation, Task, Value, Verdict
from kernelwright.tools.types.run import Summary


class ExportRefusedError(ValueError):
    """There is nothing that may be exported, or no place for it; one sentence for a person."""


class Material(Value):
    """A verified candidate with everything that is known about it.

    `forced` says that the person wants the export although it is not faster, or computes in less
    than was asked; the export then says so itself.
    """

    task: Task
    candidate: Candidate
    evaluation: Evaluation
    baselines: Baselines
    hardware: Hardware
    summary: Summary | None = None
    forced: bool = False

    @property
    def improved(self) -> bool:
        """Whether the interval clears the hardest baseline by more than the session's noise."""
        hardest = min(self.evaluation.comparisons, key=lambda item: item.ratio, default=None)
        return hardest is not None and hardest.outcome == "faster"

    @property
    def apart(self) -> str:
        """Why it does not compete with those of the task's own precision; "" where it does."""
        return self.evaluation.verification.apart


def check(material: Material) -> None:
    """Refuse what must not be exported.

    Raises:
        ExportRefusedError: When the candidate is not correct; or when it computes in a precision
            that nobody allowed, or is not faster, and is not forced.
    """
    verdict = material.evaluation.verdict
    if verdict is not Verdict.CORRECT:
        raise ExportRefusedError(
            f"candidate {material.candidate.id} cannot be exported: its verdict is {verdict.value}"
        )
    if material.apart and not material.forced:
        raise ExportRefusedError(
            f"candidate {material.candidate.id} {material.apart}, which was not allowed "
            "(search with --allow to admit it, or --force exports it all the same)"
        )
    if not material.improved and not material.forced:
        raise ExportRefusedError(
            f"candidate {material.candidate.id} is not faster than the best baseline by its "
            "interval (--force exports it all the same)"
        )
