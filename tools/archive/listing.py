"""Every run of a home at a glance, those that cannot be read included."""

from pathlib import Path

from kernelwright.tools.archive.errors import RunError
from kernelwright.tools.archive.lock import is_held
from kernelwright.tools.archive.places import run_folders
from kernelwright.tools.archive.records import RunInfo
from kernelwright.tools.archive.store import Archive
from kernelwright.tools.home import home as default_home


def list_runs(home: Path | None = None) -> tuple[RunInfo, ...]:
    """The runs of a home (the user's own by default), the newest first."""
    infos = [_info(folder) for folder in run_folders(home or default_home())]
    return tuple(sorted(infos, key=lambda info: str(info.created_at or ""), reverse=True))


def _info(folder: Path) -> RunInfo:
    try:
        archive = Archive.open(folder)
    except RunError as error:
        return RunInfo(id=folder.name, folder=str(folder), problem=str(error))
    try:
        record = archive.record()
    finally:
        archive.close()
    return RunInfo(
        id=record.id,
        folder=str(folder),
        created_at=record.created_at,
        task=record.task.name,
        hardware=record.hardware.name,
        status=record.status,
        live=is_held(folder),
        summary=record.summary,
    )
