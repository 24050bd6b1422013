"""What a server decides for all its desks: the device, the usual search, who thinks.

What needs a page (a report, the doctor's table) belongs to another room and is handed in.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelwright.profiles.models import Models
from kernelwright.tools.archive import Target
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
    """How desks work.

    Attributes:
        target: The kind of device that searches run on.
        search: The name of the search profile, where a person names none.
        models: Who thinks; None is the playbook.
        seed: Of everything that is drawn by chance.
        report: Writes a run's report; None where this server makes none.
        examine: Says what works on this machine; None where this server does not look.
        first_answer_s: How long after a file came the answer goes without PyTorch's own time,
            where the device is busy.
    """

    target: Target = "auto"
    search: str = "quick"
    models: Models | None = None
    seed: int = 0
    report: WriteReport | None = None
    examine: Examine | None = None
    first_answer_s: float = 3.0
