"""The content of what was attached, drawn or made: one file each, named by what it belongs to.

Names come from pages and are never used as paths; who may read a file is asked of its thread.
"""

import hashlib
import shutil
from pathlib import Path

ADDRESS = "/files"


class Files:
    """The files of all conversations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, thread: str, element: str) -> str:
        """The address at which the page finds it."""
        return f"{ADDRESS}/{thread}/{element}"

    def path(self, thread: str, element: str) -> Path:
        """Where it lies."""
        name = hashlib.sha256(f"{thread}/{element}".encode()).hexdigest()
        return self.folder / name[:2] / name

    def keep(
        self, thread: str, element: str, path: str | None, content: str | bytes | None
    ) -> bool:
        """Write it down; False when there is nothing to write, as of an address elsewhere."""
        target = self.path(thread, element)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path is not None:
            shutil.copyfile(path, target)
            return True
        if content is None:
            return False
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return True

    def drop(self, thread: str, element: str) -> None:
        """Remove it."""
        self.path(thread, element).unlink(missing_ok=True)
