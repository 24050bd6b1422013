from collections.abc import Callable

from sqlalchemy import event

from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Idea, LedgerEntry


def idea(number: int) -> Idea:
    return Idea(
        id=f"r1i{number}", title=f"idea {number}", mechanism="", reason="", category="memory",
        metric="ms", round=1,
    )  # fmt: skip


def entry(ms: float) -> LedgerEntry:
    return LedgerEntry(
        idea="r1i1", category="memory", predicted_ms=1.0, measured_ms=ms, best_before_ms=2.0,
        candidates=1, correct=1, round=1,
    )  # fmt: skip


def statements(archive: Archive) -> list[str]:
    """What the database is asked from now on."""
    asked: list[str] = []
    event.listen(
        archive._engine, "before_cursor_execute", lambda _, __, words, *rest: asked.append(words)
    )
    return asked


def test_who_holds_the_claim_asks_the_database_once(new_archive: Callable[[], Archive]) -> None:
    archive = new_archive()
    archive.claim()
    archive.record_ideas((idea(1),))
    first = archive.ideas(), archive.standings(), archive.ledger(), archive.calls()
    asked = statements(archive)
    again = archive.ideas(), archive.standings(), archive.ledger(), archive.calls()
    assert asked == []
    assert again == first


def test_what_is_written_is_read_at_once(new_archive: Callable[[], Archive]) -> None:
    archive = new_archive()
    archive.claim()
    for number in range(3):
        archive.record_ideas((idea(number),))
        assert [item.id for item in archive.ideas()] == [f"r1i{n}" for n in range(number + 1)]


def test_a_reader_sees_what_another_one_wrote(new_archive: Callable[[], Archive]) -> None:
    writer = new_archive()
    writer.claim()
    reader = Archive.open(writer.folder)
    for number in range(3):
        writer.record_ideas((idea(number),))
        writer.record_ledger(entry(1.0 + number))
        assert len(reader.ideas()) == number + 1
        assert reader.ledger()[0].measured_ms == 1.0 + number


def test_a_line_of_the_ledger_that_did_not_change_is_not_written_again(
    new_archive: Callable[[], Archive],
) -> None:
    archive = new_archive()
    archive.claim()
    archive.record_ledger(entry(1.0))
    archive.ledger()
    asked = statements(archive)
    archive.record_ledger(entry(1.0))
    assert asked == []
    archive.record_ledger(entry(0.5))
    assert archive.ledger() == (entry(0.5),)
