"""What an export is made of, gathered from a run's archive."""

from kernelwright.tools.archive import Archive, RunError, apart
from kernelwright.tools.export import ExportRefusedError, Material


def material_of(archive: Archive, candidate: str | None = None, *, forced: bool) -> Material:
    """A candidate with everything that an export says of it; the best one where none is named.

    Raises:
        RunError: When the run has no such candidate, or no baselines yet.
        ExportRefusedError: When no candidate is correct.
    """
    record = archive.record()
    if record.baselines is None:
        raise RunError(f"run {record.id} has not measured its baselines yet; resume it first")
    found = archive.candidate(candidate or _best(archive))
    evaluation = archive.evaluation(found.id)
    if evaluation is None:
        raise RunError(f"candidate {found.id} of run {record.id} was never judged")
    return Material(
        task=record.task,
        candidate=found,
        evaluation=evaluation,
        baselines=record.baselines,
        hardware=record.hardware,
        summary=record.summary,
        forced=forced,
    )


def _best(archive: Archive) -> str:
    """What the summary stands for, else the fastest that is correct so far."""
    summary = archive.record().summary
    if summary is not None and summary.best is not None:
        return summary.best.candidate
    standing = archive.best()
    if standing is None and (others := apart(archive.standings())):
        first = others[0]
        raise ExportRefusedError(
            f"run {archive.id} has no correct candidate in an allowed precision; "
            f"{first.candidate.id} {first.evaluation.verification.apart} (name it with --candidate "
            "and --force exports it)"
        )
    if standing is None:
        raise ExportRefusedError(f"run {archive.id} has no correct candidate to export")
    return standing.candidate.id
