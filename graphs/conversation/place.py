"""What a conversation's answers are made from: whose it is, its table, the searches."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kernelwright.graphs.conversation.life import Life
from kernelwright.graphs.conversation.lives import Lives
from kernelwright.graphs.conversation.settings import Settings
from kernelwright.graphs.conversation.table import OnTable, Table
from kernelwright.graphs.run_view.story import Story, load
from kernelwright.tools.archive import Archive, RunRecord

Result = TypeVar("Result")


@dataclass(frozen=True)
class Place:
    """A person's home, one conversation's table in it, and the server around them."""

    home: Path
    lives: Lives
    settings: Settings
    table: Table

    @property
    def now(self) -> OnTable:
        """What lies on the table."""
        return self.table.now

    @property
    def folder(self) -> Path | None:
        """The folder of the run that is talked about; None while there is none."""
        if not self.now.run:
            return None
        folder = self.home / "runs" / self.now.run
        return folder if (folder / "run.db").is_file() else None

    @property
    def life(self) -> Life | None:
        """The live search of that run, if it runs."""
        folder = self.folder
        return self.lives.find(folder) if folder else None

    def record(self) -> RunRecord | None:
        """What the run is over; slow enough for a thread."""
        if self.folder is None:
            return None
        archive = Archive.open(self.folder)
        try:
            return archive.record()
        finally:
            archive.close()

    async def story(self) -> Story | None:
        """Everything that is known of the run; None while there is none."""
        folder = self.folder
        return await asyncio.to_thread(load, str(folder)) if folder else None

    async def read(self, what: Callable[[], Result]) -> Result:
        """Read something from disk without making the page wait."""
        return await asyncio.to_thread(what)
