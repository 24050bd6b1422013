"""What a desk needs from this room: the report, and the doctor's findings."""

from pathlib import Path

from graphs.desk.settings import Finding, Settings
from graphs.story import load
from profiles.models import Models
from tools.archive import Target


def desk_settings(
    target: Target = "auto", search: str = "quick", models: Models | None = None
) -> Settings:
    """How the desks of a server work, with reports and the doctor at hand."""
    return Settings(
        target=target, search=search, models=models, report=write_report, examine=examine
    )


def write_report(run: str, home: Path, path: Path) -> Path:
    """A run's report, as one HTML file."""
    from ui.report.page import write

    return write(load(run, home), path)


async def examine() -> tuple[Finding, ...]:
    """What works on this machine, as the doctor finds it."""
    from ui.doctor import examine as examined

    return tuple(
        Finding(subject=row.subject, outcome=row.outcome, words=row.words, remedy=row.remedy)
        for row in await examined()
    )
