"""A run's database as a thing to hold: its session, its lock, the time it has spent.

What stands in the tables is for the modules beside this one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from sqlalchemy import Connection, Row, Select, Table, func, select, update
from sqlalchemy.dialects.sqlite import insert

from kernelwright.tools.archive import lock, schema
from kernelwright.tools.archive.places import DATABASE


class Database:
    """One run's folder and database.

    Args:
        folder: `<home>/runs/<run id>`, holding `run.db`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._engine = schema.connect(folder / DATABASE)
        self._session: int | None = None
        self._before_s: float | None = None
        self._began = 0.0
        self._waiters = 0
        self._waiting_since = 0.0
        self._waited_s = 0.0

    @property
    def id(self) -> str:
        """The run's id, which is its folder's name."""
        return self.folder.name

    @property
    def is_claimed(self) -> bool:
        """Whether this session is the one that works on the run."""
        return self._session is not None

    def close(self) -> None:
        """End the session, give the lock back and close the database."""
        if self._session is not None:
            self.tick()
            self._session = None
            lock.release(self.folder)
        self._engine.dispose()

    def claim(self) -> None:
        """Begin a session: nobody else may search this run until `close`.

        Raises:
            RunBusyError: When somebody does.
        """
        lock.claim(self.folder)
        self._began, self._waited_s = monotonic(), 0.0
        with self._engine.begin() as connection:
            row = connection.execute(
                insert(schema.sessions).values(started_at=datetime.now(UTC).isoformat(), seconds=0)
            )
            self._session, self._before_s = int(row.lastrowid), None

    def tick(self) -> None:
        """Write down how long this session has lasted; every event does so too."""
        with self._engine.begin() as connection:
            self._tick(connection)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this is entered, by whomever and how often, the time is not the run's.

        For those who wait for somebody outside: a person's answer, a far host's queue.
        """
        if not self._waiters:
            self._waiting_since = monotonic()
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1
            if not self._waiters:
                self._waited_s += monotonic() - self._waiting_since

    def spent_s(self) -> float:
        """Seconds that all sessions took, the present one included, without what was waited."""
        if self._session is None:
            return self._earlier_s()
        # Asked before every evaluation; earlier sessions are over while this one holds the claim.
        if self._before_s is None:
            self._before_s = self._earlier_s()
        return self._before_s + self._lasted_s()

    def _earlier_s(self) -> float:
        earlier = select(func.coalesce(func.sum(schema.sessions.c.seconds), 0.0)).where(
            schema.sessions.c.id != (self._session or 0)
        )
        with self._engine.connect() as connection:
            return float(connection.execute(earlier).scalar_one())

    def _insert(self, table: Table, **values: object) -> None:
        with self._engine.begin() as connection:
            connection.execute(insert(table).values(values).on_conflict_do_nothing())

    def _set_run(self, **values: object) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(schema.runs).values(values))

    def _rows(self, query: Select[tuple[object, ...]]) -> list[Row[tuple[object, ...]]]:
        with self._engine.connect() as connection:
            return list(connection.execute(query))

    def _tick(self, connection: Connection) -> None:
        if self._session is not None:
            mine = schema.sessions.c.id == self._session
            connection.execute(update(schema.sessions).where(mine).values(seconds=self._lasted_s()))

    def _lasted_s(self) -> float:
        """How long this session has worked."""
        now = monotonic()
        waiting_s = now - self._waiting_since if self._waiters else 0.0
        return now - self._began - self._waited_s - waiting_s
