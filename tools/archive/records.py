"""What an archive hands out, where runs live, their names, and what can be wrong with one.

A run is a folder `<home>/runs/<run id>/`. Its id reads as task, month and day, and four letters
that make it unique: `softmax-1121-k3f9`. What can be wrong with a run that somebody names is an
error whose message is one sentence for a person. The values here are those that are no nouns of
their own (`tools.types`).
"""

import difflib
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.runtime import home as default_home
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Task,
    TracePolicy,
    Value,
)
from kernelwright.tools.types.run import Summary


class RunError(ValueError):
    """A run cannot be used as asked; the message says why in one sentence."""


class UnknownRunError(RunError):
    """No run has that name."""


class CorruptRunError(RunError):
    """The run's folder exists, but what is in it cannot be read."""


class NotRecordedError(Exception):
    """A replay wants to know what the recorded run never found out; the message names it."""


class RunBusyError(RunError):
    """Another search works on this run right now."""


# No vowels, so that no words appear, and nothing that reads as something else.
LETTERS = "bcdfghjkmnpqrstvwxz23456789"
DATABASE = "run.db"


def new_run_folder(home: Path, task: str) -> Path:
    """Make the folder of a new run over a task of that name."""
    slug = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")[:24].strip("-") or "task"
    while True:
        tail = "".join(secrets.choice(LETTERS) for _ in range(4))
        folder = home / "runs" / f"{slug}-{datetime.now(UTC):%m%d}-{tail}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder


def run_folders(home: Path) -> tuple[Path, ...]:
    """The folders of every run, by name."""
    return tuple(sorted(path.parent for path in (home / "runs").glob(f"*/{DATABASE}")))


def find_run(run: str | Path, home: Path | None = None) -> Path:
    """The folder of a run named by its folder, its id, or the beginning of one id.

    Raises:
        UnknownRunError: When there is none; the sentence names what is close.
    """
    if (Path(run) / DATABASE).is_file():
        return Path(run)
    folders = {path.name: path for path in run_folders(home or default_home())}
    begin = [name for name in folders if name.startswith(str(run)) and str(run)]
    if str(run) in folders or len(begin) == 1:
        return folders.get(str(run)) or folders[begin[0]]
    if begin:
        raise UnknownRunError(f"several runs begin with {str(run)!r}: {', '.join(begin[:5])}")
    near = difflib.get_close_matches(str(run), folders, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    where = (home or default_home()) / "runs"
    raise UnknownRunError(f"there is no run {str(run)!r} in {where}{hint}")


Author = Literal["coder", "tuner", "repair"]
RunStatus = Literal["running", "stopped", "finished"]
Target = Literal["auto", "cuda", "cpu"]

# From the least to the most trusted; the last one there is stands for the candidate.
EFFORTS: tuple[Effort, ...] = ("screen", "precise", "certify")


class RunRecord(Value):
    """What a run is over and under which terms; `baselines` and `summary` once they exist."""

    id: str
    created_at: datetime
    status: RunStatus
    target: Target
    seed: int
    task: Task
    policy: TracePolicy
    profile: SearchProfile
    hardware: Hardware
    baselines: Baselines | None = None
    summary: Summary | None = None


class RunInfo(Value):
    """A run in a list: `live` when a process works on it; `problem` when it cannot be read."""

    id: str
    folder: str
    created_at: datetime | None = None
    task: str = ""
    hardware: str = ""
    status: RunStatus | None = None
    live: bool = False
    summary: Summary | None = None
    problem: str = ""


class StoredEvent(Value):
    """An event as text: `payload` is the JSON of one of `graphs.run_view.events`."""

    seq: int
    kind: str
    round: int
    at: datetime
    payload: str
    key: str | None = None


class Written(Value):
    """A candidate with when and by whom it was written; `number` counts from 1 in a run."""

    number: int
    candidate: Candidate
    round: int
    author: Author


class Standing(Value):
    """A candidate with the most trusted evaluation that it has."""

    number: int
    candidate: Candidate
    round: int
    author: Author
    effort: Effort
    evaluation: Evaluation
