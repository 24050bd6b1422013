"""The archive of one run, everything that it learnt; and every run of a home at a glance.

What is written is durable before anyone acts upon it. Writing is idempotent: what is there already
stays as it is, so that a resumed run may repeat its last step. Reading needs no lock and may happen
while a search writes. The list of runs includes those that cannot be read.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import Row, select
from sqlalchemy.exc import DatabaseError, NoResultFound

from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.archive import schema
from kernelwright.tools.archive.database import (
    CorruptRunError,
    RunError,
    RunInfo,
    RunRecord,
    RunStatus,
    Target,
    find_run,
    is_held,
    new_run_folder,
    run_folders,
)
from kernelwright.tools.archive.records import Attempts, Journal, Talks, Thoughts
from kernelwright.tools.runtime import home as default_home
from kernelwright.tools.types import Baselines, Task, TracePolicy
from kernelwright.tools.types.run import Summary


class Archive(Journal, Attempts, Thoughts, Talks):
    """One run: its record, and by inheritance its events, candidates, thoughts, talks."""

    @classmethod
    def create(
        cls,
        home: Path,
        task: Task,
        *,
        policy: TracePolicy,
        profile: SearchProfile,
        hardware: Hardware,
        target: Target = "auto",
        seed: int = 0,
    ) -> "Archive":
        """Make the folder and database of a new run."""
        archive = cls(new_run_folder(home, task.name))
        try:
            schema.make_tables(archive._engine)
            archive._insert(
                schema.runs,
                id=archive.folder.name,
                version=schema.VERSION,
                created_at=datetime.now(UTC).isoformat(),
                status="running",
                target=target,
                seed=seed,
                task=task.model_dump_json(),
                policy=policy.model_dump_json(),
                profile=profile.model_dump_json(),
                hardware=hardware.model_dump_json(),
            )
        except BaseException:  # a full disk: no run that nobody can read stays behind
            archive.close()
            shutil.rmtree(archive.folder, ignore_errors=True)
            raise
        return archive

    @classmethod
    def open(cls, run: str | Path, home: Path | None = None) -> "Archive":
        """Open a run by its id, the beginning of it, or its folder.

        Raises:
            UnknownRunError: When there is no such run.
            CorruptRunError: When its database cannot be read.
        """
        return cls._opened(run, home)[0]

    @classmethod
    def _opened(cls, run: str | Path, home: Path | None = None) -> "tuple[Archive, RunRecord]":
        archive = cls(find_run(run, home))
        try:
            record = archive.record()
            schema.make_tables(archive._engine)  # those younger than the run
        except CorruptRunError:
            archive.close()
            raise
        return archive, record

    def record(self) -> RunRecord:
        """What the run is over; CorruptRunError when the database does not say."""
        try:
            with self._engine.connect() as connection:
                row = connection.execute(select(schema.runs)).one()
            return _record(row)
        except (DatabaseError, NoResultFound, ValidationError) as error:
            kind = type(error).__name__
            raise CorruptRunError(
                f"run {self.id} cannot be read ({kind}) in {self.folder}"
            ) from None

    def set_status(self, status: RunStatus) -> None:
        """Say whether the search goes on."""
        self._set_run(status=status)

    def record_baselines(self, baselines: Baselines) -> None:
        """Keep what PyTorch itself does."""
        self._set_run(baselines=baselines.model_dump_json())

    def settle(self, hardware: Hardware, task: Task) -> None:
        """Keep what a far host said of its device and of the task."""
        self._set_run(hardware=hardware.model_dump_json(), task=task.model_dump_json())

    def set_profile(self, profile: SearchProfile) -> None:
        """Give the run more, or less, to spend."""
        self._set_run(profile=profile.model_dump_json())

    def record_summary(self, summary: Summary, status: RunStatus = "finished") -> None:
        """Keep what the search amounted to, and how it ended."""
        self._set_run(summary=summary.model_dump_json(), status=status)


def _record(row: Row[tuple[object, ...]]) -> RunRecord:
    return RunRecord(
        id=row.id,
        created_at=row.created_at,
        status=row.status,
        target=row.target,
        seed=row.seed,
        task=Task.model_validate_json(row.task),
        policy=TracePolicy.model_validate_json(row.policy),
        profile=SearchProfile.model_validate_json(row.profile),
        hardware=Hardware.model_validate_json(row.hardware),
        baselines=Baselines.model_validate_json(row.baselines) if row.baselines else None,
        summary=Summary.model_validate_json(row.summary) if row.summary else None,
    )


def list_runs(home: Path | None = None) -> tuple[RunInfo, ...]:
    """The runs of a home (the user's own by default), the newest first."""
    infos = [_info(folder) for folder in run_folders(home or default_home())]
    return tuple(sorted(infos, key=lambda info: str(info.created_at or ""), reverse=True))


def _info(folder: Path) -> RunInfo:
    try:
        archive, record = Archive._opened(folder)
    except RunError as error:
        return RunInfo(id=folder.name, folder=str(folder), problem=str(error))
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
