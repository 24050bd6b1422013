"""A person's runs: which there are, and taking up one of them again."""

from pathlib import Path

from agents.assistant.sayings import Offer, Saying, Table
from agents.assistant.wishes import ContinueSearch, ReopenRun, ShowProgress
from graphs.desk.place import Place
from graphs.desk.table import OnTable
from graphs.words import STATUS, one_line, ratio
from tools.archive import Archive, RunError, RunRecord, run_folders

SHOWN = 20


async def listing(place: Place) -> Saying:
    """The person's runs, the newest first."""
    records = await place.read(lambda: records_of(place.home))
    if not records:
        return Saying.of("You have no runs yet. Attach a file or paste a module to begin one.")
    rows = tuple(_row(place, record) for record in records[:SHOWN])
    columns = ("run", "task", "begun (UTC)", "status", "speed-up")
    offers = tuple(
        Offer(label=f"Open {record.id}", wish=ReopenRun(run=record.id)) for record in records[:5]
    )
    return Saying(pieces=(Table(title="your runs", columns=columns, rows=rows),), offers=offers)


async def reopen(place: Place, wish: ReopenRun) -> Saying:
    """Talk about an earlier run from now on."""
    records = await place.read(lambda: records_of(place.home))
    wanted = wish.run.strip().lower()
    found = [record for record in records if record.id == wanted]
    found = found or [record for record in records if wanted and record.id.startswith(wanted)]
    if len(found) != 1:
        words = "Several of your runs begin with that" if found else "I know no such run of yours"
        offers = tuple(
            Offer(label=f"Open {record.id}", wish=ReopenRun(run=record.id))
            for record in (found or records)[:5]
        )
        return Saying.of(f"{words}.", *offers)
    record = found[0]
    await place.table.put(
        OnTable(
            file=record.task.path,
            name=record.task.name,
            policy=record.policy,
            task=record.task,
            audited=True,
            run=record.id,
        )
    )
    goes_on = place.life is not None
    offers = (Offer(label="Where does it stand?", wish=ShowProgress()),)
    if not goes_on:
        offers += (Offer(label="Continue", wish=ContinueSearch()),)
    state = "it is running" if goes_on else _state(record)
    return Saying.of(f"We are talking about run `{record.id}` now; {state}.", *offers)


def records_of(home: Path) -> tuple[RunRecord, ...]:
    """What the person's runs are over, the newest first; those that cannot be read left out."""
    found = []
    for folder in run_folders(home):
        try:
            archive = Archive.open(folder)
        except RunError:
            continue
        try:
            found.append(archive.record())
        finally:
            archive.close()
    return tuple(sorted(found, key=lambda record: record.created_at, reverse=True))


def _row(place: Place, record: RunRecord) -> tuple[str, ...]:
    live = place.lives.find(place.home / "runs" / record.id) is not None
    best = record.summary.best if record.summary else None
    return (
        record.id,
        one_line(record.task.name, 40),
        f"{record.created_at:%Y-%m-%d %H:%M}",
        "running" if live else _state(record),
        ratio(best.speedup_vs_best_baseline) if best else "-",
    )


def _state(record: RunRecord) -> str:
    if record.summary is not None and record.status == "finished":
        return STATUS[record.summary.status]
    return "stopped; it can go on" if record.status != "finished" else "its module does not run"
