"""What a conversation's answers are made from: its person, its loaded task, the server's settings.

Settings are decided by a server for all its conversations: the device, the usual search, which
agents. What needs a page (a report, the doctor's table) belongs to the UI and is handed in.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from kernelwright.graphs.conversation.background.search_manager import SearchManager, SearchSession
from kernelwright.graphs.conversation.background.store import ConversationState, ConversationStore
from kernelwright.graphs.run_view.story import Story, load
from kernelwright.profiles.load import Models
from kernelwright.tools.archive import Archive, RunRecord, Target
from kernelwright.tools.types import Value


class Finding(Value):
    """One thing that works on this machine or does not, and what would mend it."""

    subject: str
    outcome: Literal["works", "missing", "optional"]
    words: str
    remedy: str = ""


# From the id of a run, the home it lives in and a path to write to; slow, called in a thread.
WriteReport = Callable[[str, Path, Path], Path]
Examine = Callable[[], Awaitable[tuple[Finding, ...]]]


@dataclass(frozen=True)
class Settings:
    """How the conversations of a server work.

    Attributes:
        target: The kind of device that searches run on.
        search: The name of the search profile, where a person names none.
        models: Who thinks; None is the playbook.
        seed: Of everything that is drawn by chance.
        report: Writes a run's report; None where this server makes none.
        examine: Says what works on this machine; None where this server does not look.
        first_answer_s: How long after a file came the answer goes without PyTorch's own time,
            where the device is busy.
        load_seconds: After how long a file is given up that neither computes nor reads.
    """

    target: Target = "auto"
    search: str = "quick"
    models: Models | None = None
    seed: int = 0
    report: WriteReport | None = None
    examine: Examine | None = None
    first_answer_s: float = 3.0
    load_seconds: float = 60.0


Result = TypeVar("Result")


@dataclass(frozen=True)
class ConversationContext:
    """A person's home, the conversation's store in it, and the server around them."""

    home: Path
    search_manager: SearchManager
    settings: Settings
    store: ConversationStore

    @property
    def now(self) -> ConversationState:
        """The loaded task and the run that is talked about."""
        return self.store.now

    @property
    def folder(self) -> Path | None:
        """The folder of the run that is talked about; None while there is none."""
        if not self.now.run:
            return None
        folder = self.home / "runs" / self.now.run
        return folder if (folder / "run.db").is_file() else None

    @property
    def search_session(self) -> SearchSession | None:
        """The live search of that run, if it runs."""
        folder = self.folder
        return self.search_manager.find(folder) if folder else None

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
