"""Files that are there whole or not at all, whatever the disk says in between.

Written beside their place first and moved into it: a full disk or a kill leaves what was there
before. Only what cannot be moved into place (a pipe, a device, a file in a folder that nobody may
write to) is written as it stands.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

# In a folder that is being filled: what is not in its place yet.
UNFINISHED = ".unfinished"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, its folder made if need be; text is UTF-8.

    Raises:
        OSError: It cannot be written; what stood there before still does.
    """
    data = content.encode() if isinstance(content, str) else content
    target = path.resolve()  # of a link, what it leads to
    target.parent.mkdir(parents=True, exist_ok=True)
    # What is redirected into a file has it open: it must not become another.
    is_open = path.absolute().parts[1] in ("dev", "proc")
    is_special = path.exists() and not path.is_file()
    if is_open or is_special or not os.access(target.parent, os.W_OK | os.X_OK):
        path.write_bytes(data)
        return
    beside = target.with_name(f".{target.name}{UNFINISHED}")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def fill_folder(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files of a folder by their names in it, the last one last; others there stay.

    Nothing is moved into its place before all are written.

    Raises:
        OSError: They cannot be written; the folder is as before, and gone if it was not there.
    """
    there = folder.exists()
    scratch = folder / UNFINISHED
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        for name, content in files.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content.encode() if isinstance(content, str) else content)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).replace(folder / name)
        shutil.rmtree(scratch)
    except OSError:
        shutil.rmtree(scratch if there else folder, ignore_errors=True)
        raise
