"""What happened in a run, in order, as text."""

from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert

from kernelwright.tools.archive import schema
from kernelwright.tools.archive.database import Database
from kernelwright.tools.archive.records import StoredEvent


class Journal(Database):
    """The events of a run; what they mean is said in `graphs.run_view.events`."""

    def append_event(
        self, kind: str, round: int, payload: str, *, key: str | None = None
    ) -> StoredEvent | None:
        """Add an event; None when one with that key is there already.

        Args:
            kind: Which of `graphs.run_view.events` it is.
            round: The round it belongs to.
            payload: Its JSON.
            key: What happened, so that a repeated step does not tell it twice.
        """
        at = datetime.now(UTC)
        with self._engine.begin() as connection:
            self._tick(connection)
            done = connection.execute(
                insert(schema.events)
                .values(key=key, kind=kind, round=round, at=at.isoformat(), payload=payload)
                .on_conflict_do_nothing()
            )
            seq = int(done.lastrowid) if done.rowcount else 0
        if not seq:
            return None
        return StoredEvent(seq=seq, kind=kind, round=round, at=at, payload=payload, key=key)

    def event(self, key: str) -> StoredEvent | None:
        """The event with that key; None when it was not told."""
        rows = self._rows(select(schema.events).where(schema.events.c.key == key))
        return StoredEvent.model_validate(rows[0]._asdict()) if rows else None

    def events(self, after: int = 0, kind: str | None = None) -> tuple[StoredEvent, ...]:
        """Events in order, those behind number `after`, of one kind or of all."""
        query = select(schema.events).where(schema.events.c.seq > after).order_by("seq")
        if kind is not None:
            query = query.where(schema.events.c.kind == kind)
        return tuple(StoredEvent.model_validate(row._asdict()) for row in self._rows(query))
