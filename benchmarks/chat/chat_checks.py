"""What must hold of a conversation and its run, whatever happened: none lost, none mixed up."""

import re
from dataclasses import dataclass
from pathlib import Path

from chat_driver import Visitor

from kernelwright.graphs.run_view.events import EVENT
from kernelwright.tools.archive import Archive, run_folders
from kernelwright.ui.chat.messages.lines import id_of
from kernelwright.ui.chat.messages.presenting import Presentation


@dataclass(frozen=True)
class Shown:
    """How much of a run's archive a conversation shows."""

    run: str
    events: int
    lines: int
    missing: tuple[str, ...]


def runs_of(home: Path, person: str) -> tuple[Path, ...]:
    """A person's runs."""
    return tuple(run_folders(home / "people" / person))


def shown(visitor: Visitor, run: Path) -> Shown:
    """Compare what a visitor sees with what the run's archive tells."""
    archive = Archive.open(run)
    try:
        events = tuple(archive.events(0))
        presentation = Presentation(archive.id)
        for item in events:
            presentation.take(item.seq, EVENT.validate_json(item.payload))
        keys = presentation.lines
        missing = [k for k in keys if id_of(visitor.thread, archive.id, k) not in visitor.steps]
        return Shown(archive.id, len(events), len(keys), tuple(missing))
    finally:
        archive.close()


def crossed(visitor: Visitor, mine: str, everybodys: tuple[str, ...]) -> tuple[str, ...]:
    """Names of others' tasks and runs that this visitor was shown."""
    text = visitor.told()
    return tuple(name for name in everybodys if name != mine and re.search(rf"\b{name}\b", text))
