"""Where runs live and what they are called.

A run is a folder `<home>/runs/<run id>/`. Its id reads as task, month and day, and four letters
that make it unique: `softmax-1121-k3f9`.
"""

import difflib
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

from kernelwright.tools.archive.errors import UnknownRunError
from kernelwright.tools.home import home as default_home

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
