"""The rows and files of conversations, read and written plainly, blocking, in one thread.

Bodies of rows are JSON objects as Chainlit makes them, which is why they are dicts here and nowhere
else. A row never changes its thread and a thread never its owner: an id that somebody else's page
made up writes nothing.

What was attached, drawn or made has its content in one file each, named by what it belongs to.
Names come from pages and are never used as paths; who may read a file is asked of its thread.
"""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Row,
    ScalarSelect,
    Select,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.pool import ConnectionPoolEntry

ADDRESS = "/files"
# In a conversation's body, once its person has named it.
RENAMED = "\0renamed"


class Files:
    """The files of all conversations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, thread: str, element: str) -> str:
        """The address at which the page finds it."""
        return f"{ADDRESS}/{thread}/{element}"

    def path(self, thread: str, element: str) -> Path:
        """Where it lies."""
        name = hashlib.sha256(f"{thread}/{element}".encode()).hexdigest()
        return self.folder / name[:2] / name

    def keep(
        self, thread: str, element: str, path: str | None, content: str | bytes | None
    ) -> bool:
        """Write it down; False when there is nothing to write, as of an address elsewhere."""
        target = self.path(thread, element)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path is not None:
            shutil.copyfile(path, target)
            return True
        if content is None:
            return False
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return True

    def drop(self, thread: str, element: str) -> None:
        """Remove it."""
        self.path(thread, element).unlink(missing_ok=True)


TABLES = MetaData()

USERS = Table(
    "people",
    TABLES,
    Column("id", String, primary_key=True),
    Column("identifier", String, nullable=False, unique=True),
    Column("created_at", String, nullable=False),
    Column("body", Text, nullable=False),
)
# `changed` counts upwards over all threads; the list of them shows the latest first.
THREADS = Table(
    "threads",
    TABLES,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("created_at", String, nullable=False),
    Column("changed", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
STEPS = Table(
    "steps",
    TABLES,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("thread", String, nullable=False, index=True),
    Column("created_at", String, nullable=False),
    Column("body", Text, nullable=False),
)
ELEMENTS = Table(
    "elements",
    TABLES,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("thread", String, nullable=False, index=True),
    Column("step", String, nullable=False, index=True),
    Column("body", Text, nullable=False),
)

# What the drivers that Kernelwright names itself are called to SQLAlchemy.
DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}


def open_tables(url: str, folder: Path) -> Engine:
    """The database at `url`, or the file in `folder` when it is empty, with its tables.

    Raises:
        SQLAlchemyError: It cannot be opened.
        ModuleNotFoundError: Its driver is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    address = _driven(url) if url else f"sqlite:///{folder / 'chat.sqlite'}"
    # A database that was restarted is connected to again.
    engine = create_engine(address, pool_pre_ping=True)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare)
    TABLES.create_all(engine)
    return engine


def _driven(url: str) -> str:
    scheme, colon, rest = url.partition(":")
    return DRIVERS.get(scheme, scheme) + colon + rest


def _prepare(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    """Write ahead, so that a killed server loses nothing that was committed."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA busy_timeout=10000")


Body = dict[str, object]


@dataclass(frozen=True)
class Thread:
    """One conversation; its body holds tags and metadata."""

    id: str
    owner: str
    name: str
    created_at: str
    body: Body


class Records:
    """The rows of one database."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        postgres = engine.dialect.name == "postgresql"
        self._insert = postgres_insert if postgres else sqlite_insert

    def person(self, identifier: str) -> tuple[str, str, Body] | None:
        """Somebody's id, when they first came, and their metadata."""
        with self.engine.connect() as connection:
            row = connection.execute(
                select(USERS).where(USERS.c.identifier == identifier)
            ).one_or_none()
        return (row.id, row.created_at, json.loads(row.body)) if row else None

    def name_of(self, id: str) -> str:
        """Who has this id; empty for nobody."""
        with self.engine.connect() as connection:
            query = select(USERS.c.identifier).where(USERS.c.id == id)
            return connection.scalar(query) or ""

    def add_person(self, id: str, identifier: str, created_at: str, body: Body) -> None:
        """Keep somebody; who is known already stays as they are, but for the metadata."""
        values = {"id": id, "identifier": identifier, "created_at": created_at}
        statement = self._insert(USERS).values(**values, body=json.dumps(body))
        with self.engine.begin() as connection:
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["identifier"], set_={"body": statement.excluded.body}
                )
            )

    def thread(self, id: str) -> Thread | None:
        """One conversation, without its steps."""
        with self.engine.connect() as connection:
            row = connection.execute(select(THREADS).where(THREADS.c.id == id)).one_or_none()
        return _thread(row) if row else None

    def threads(self, owner: str, search: str, after: str, limit: int) -> list[Thread]:
        """Somebody's conversations, the last changed first, beginning behind `after`."""
        query = select(THREADS).where(THREADS.c.owner == owner)
        if search:
            said = select(STEPS.c.thread).where(STEPS.c.body.icontains(search, autoescape=True))
            named = THREADS.c.name.icontains(search, autoescape=True)
            query = query.where(or_(named, THREADS.c.id.in_(said)))
        if after:
            last = select(THREADS.c.changed).where(THREADS.c.id == after).scalar_subquery()
            query = query.where(THREADS.c.changed < last)
        with self.engine.connect() as connection:
            rows = connection.execute(query.order_by(THREADS.c.changed.desc()).limit(limit)).all()
        return [_thread(row) for row in rows]

    def put_thread(self, id: str, owner: str, name: str | None, created_at: str, new: Body) -> None:
        """Keep or change a conversation; in its body None takes a key away."""
        with self.engine.begin() as connection:
            row = connection.execute(select(THREADS).where(THREADS.c.id == id)).one_or_none()
            if row is None and not owner:
                return  # nobody's conversation is nobody's to keep
            body = {**(json.loads(row.body) if row else {}), **new}
            values = {
                "body": json.dumps({key: value for key, value in body.items() if value is not None})
            } | ({"name": name} if name is not None else {})
            if row is not None:
                connection.execute(update(THREADS).where(THREADS.c.id == id).values(**values))
                return
            fixed = {"id": id, "owner": owner, "created_at": created_at, "name": ""}
            connection.execute(self._insert(THREADS).values(**(fixed | values), changed=_next()))

    def name_thread(self, id: str, name: str) -> bool | None:
        """Name a conversation for its person; False where nothing changed, None without one.

        What a person called it stays.
        """
        with self.engine.begin() as connection:
            row = connection.execute(select(THREADS).where(THREADS.c.id == id)).one_or_none()
            if row is None:
                return None
            if row.name == name or json.loads(row.body).get(RENAMED):
                return False
            connection.execute(update(THREADS).where(THREADS.c.id == id).values(name=name))
            return True

    def drop_thread(self, id: str) -> list[str]:
        """Forget a conversation, and return the ids of its elements."""
        with self.engine.begin() as connection:
            found = connection.scalars(select(ELEMENTS.c.id).where(ELEMENTS.c.thread == id)).all()
            for table in (ELEMENTS, STEPS):
                connection.execute(delete(table).where(table.c.thread == id))
            connection.execute(delete(THREADS).where(THREADS.c.id == id))
        return list(found)

    def put_step(self, id: str, thread: str, created_at: str, body: Mapping[str, object]) -> None:
        """Keep a step as it is now."""
        with self.engine.begin() as connection:
            values = {"id": id, "thread": thread, "created_at": created_at}
            fresh = self._upsert(connection, STEPS, values | {"body": json.dumps(body)})
            if fresh:
                newest = update(THREADS).where(THREADS.c.id == thread)
                connection.execute(newest.values(changed=_next()))

    def drop_step(self, id: str) -> None:
        """Forget a step and what belongs to it."""
        with self.engine.begin() as connection:
            connection.execute(delete(ELEMENTS).where(ELEMENTS.c.step == id))
            connection.execute(delete(STEPS).where(STEPS.c.id == id))

    def steps(self, thread: str) -> list[Body]:
        """A conversation's steps, in order."""
        query = select(STEPS.c.body).where(STEPS.c.thread == thread)
        return self._bodies(query.order_by(STEPS.c.created_at, STEPS.c.seq))

    def put_element(self, id: str, thread: str, step: str, body: Mapping[str, object]) -> None:
        """Keep what is known of an element; its content is a file."""
        with self.engine.begin() as connection:
            values = {"id": id, "thread": thread, "step": step, "body": json.dumps(body)}
            self._upsert(connection, ELEMENTS, values)

    def element(self, thread: str, id: str) -> Body | None:
        """One element of a conversation."""
        query = select(ELEMENTS.c.body).where(ELEMENTS.c.thread == thread, ELEMENTS.c.id == id)
        return next(iter(self._bodies(query)), None)

    def drop_element(self, id: str, thread: str) -> None:
        """Forget an element of a conversation."""
        mine = (ELEMENTS.c.id == id) & (ELEMENTS.c.thread == thread)
        with self.engine.begin() as connection:
            connection.execute(delete(ELEMENTS).where(mine))

    def elements(self, thread: str) -> list[Body]:
        """A conversation's elements, in order."""
        query = select(ELEMENTS.c.body).where(ELEMENTS.c.thread == thread)
        return self._bodies(query.order_by(ELEMENTS.c.seq))

    def _upsert(self, connection: Connection, table: Table, values: Mapping[str, str]) -> bool:
        """Write a row, and say whether it is a new one."""
        mine = (table.c.id == values["id"]) & (table.c.thread == values["thread"])
        if connection.execute(update(table).where(mine).values(body=values["body"])).rowcount:
            return False
        statement = self._insert(table).values(**values)
        return bool(connection.execute(statement.on_conflict_do_nothing()).rowcount)

    def _bodies(self, query: Select[str]) -> list[Body]:
        with self.engine.connect() as connection:
            return [json.loads(body) for body in connection.scalars(query)]


def _thread(row: Row[tuple[object, ...]]) -> Thread:
    return Thread(row.id, row.owner, row.name, row.created_at, json.loads(row.body))


def _next() -> ScalarSelect[int]:
    """One more than the largest there is."""
    return select(func.coalesce(func.max(THREADS.c.changed), 0) + 1).scalar_subquery()
