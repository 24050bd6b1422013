"""Taking results home: the best of a run, or a candidate of the person's choice, as an export."""

from pathlib import Path

from tools.archive import Archive
from tools.export import (
    ExportRefusedError,
    Material,
    check_place,
    export_folder,
    export_kernelbench,
    export_zip,
)
from ui.commands.output import console
from ui.complaints import Complaint, writable_file


def export(
    run: str, output: Path, format: str, candidate: str | None, force: bool, home: Path | None
) -> None:
    """Export from a finished, stopped or running search."""
    archive = Archive.open(run, home)
    try:
        material = gather(archive, candidate, forced=force)
    finally:
        archive.close()
    if format == "kernelbench":
        target = output / "model_new.py" if output.is_dir() else output
        path = export_kernelbench(material, writable_file(target))
    else:
        path = take_home(material, output)
    console().print(f"exported to {path}", markup=False)


def take_home(material: Material, output: Path) -> Path:
    """Write a module export into a folder, or a zip file where the path ends so."""
    if output.suffix == ".zip":
        return export_zip(material, writable_file(output))
    return export_folder(material, output)


def check_output(output: Path) -> None:
    """Say before any work is done that an export could not be written there."""
    if output.suffix == ".zip":
        writable_file(output)
    else:
        check_place(output)


def gather(archive: Archive, candidate: str | None, *, forced: bool) -> Material:
    """What an export is made of, from a run's archive.

    Raises:
        Complaint: When the run has no such candidate, or no baselines yet.
        ExportRefusedError: When no candidate is correct.
    """
    record = archive.record()
    if record.baselines is None:
        raise Complaint(f"run {record.id} has not measured its baselines yet; resume it first")
    best = record.summary.best if record.summary else None
    chosen = candidate or (best.candidate if best else None)
    if chosen is None:
        standing = archive.best()
        if standing is None:
            raise ExportRefusedError(f"run {record.id} has no correct candidate to export")
        chosen = standing.candidate.id
    found = archive.candidate(chosen)
    evaluation = archive.evaluation(found.id)
    if evaluation is None:
        raise Complaint(f"candidate {found.id} of run {record.id} was never judged")
    return Material(
        task=record.task,
        candidate=found,
        evaluation=evaluation,
        baselines=record.baselines,
        hardware=record.hardware,
        summary=record.summary,
        forced=forced,
    )
