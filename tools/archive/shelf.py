"""Tables read once: rows that never change are parsed when they appear, and kept.

One process may write to a run at a time, so whoever holds its claim need not even ask the database
again until it has written something itself. Others ask every time, for newer rows only.
What is not covered: threads; an archive belongs to one.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, Table, event, select

from kernelwright.tools.archive.database import Database

T = TypeVar("T")


class Watch:
    """Says whether there may be news since the last look.

    Args:
        database: Whose writing is watched.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_stale = True
        event.listen(database._engine, "commit", self._written)

    def look(self) -> bool:
        """Whether anything may have been written since this was asked last."""
        stale, self._is_stale = self._is_stale, False
        return stale or not self._database.is_claimed

    def _written(self, _: Connection) -> None:
        self._is_stale = True


class Shelf(Generic[T]):
    """One table to which rows are only added, as values in order.

    Args:
        database: Where the table is.
        table: Its rows never change once they are there.
        order: An integer column that grows with every row.
        parse: What a row becomes.
    """

    def __init__(
        self,
        database: Database,
        table: Table,
        order: ColumnElement[int],
        parse: Callable[[Row[tuple[object, ...]]], T],
    ) -> None:
        self._engine: Engine = database._engine
        self._watch = Watch(database)
        self._table, self._order, self._parse = table, order, parse
        self._last = -1
        self._items: tuple[T, ...] = ()

    def items(self) -> tuple[T, ...]:
        """Every row, the oldest first."""
        self.news()
        return self._items

    def news(self) -> tuple[T, ...]:
        """The rows that nobody has been given before; they count as given from now on."""
        if not self._watch.look():
            return ()
        query = select(self._table, self._order.label("place"))
        newer = query.where(self._order > self._last).order_by(self._order)
        with self._engine.connect() as connection:
            rows = list(connection.execute(newer))
        if not rows:
            return ()
        found = tuple(self._parse(row) for row in rows)
        self._last = rows[-1].place
        self._items += found
        return found
