"""The tables of a run's database.

Values are kept as the JSON of the nouns they are, beside the few columns that queries need, so
that a noun may grow a field without a migration. Rows are only ever added or, where a primary key
repeats, left as they were: what was measured once stays as it was measured. An evaluation that a
person had made again gives its place to the newer one, and stays under a longer name.
"""

import os
from functools import cache
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

VERSION = 1

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("created_at", String, nullable=False),
    Column("status", String, nullable=False),
    Column("target", String, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("task", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("hardware", Text, nullable=False),
    Column("baselines", Text),
    Column("summary", Text),
)

# One row for each process that worked on the run; together they are the time it has spent.
sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started_at", String, nullable=False),
    Column("seconds", Float, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("key", String, unique=True),
    Column("kind", String, nullable=False),
    Column("round", Integer, nullable=False),
    Column("at", String, nullable=False),
    Column("payload", Text, nullable=False),
)

candidates = Table(
    "candidates",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("idea", String, nullable=False),
    Column("round", Integer, nullable=False),
    Column("author", String, nullable=False),
    Column("json", Text, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("candidate", String, nullable=False, index=True),
    Column("effort", String, nullable=False),
    Column("round", Integer, nullable=False),
    Column("verdict", String, nullable=False),
    Column("median_ms", Float),
    Column("json", Text, nullable=False),
    UniqueConstraint("candidate", "effort"),
)

ideas = Table(
    "ideas",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("round", Integer, nullable=False),
    Column("json", Text, nullable=False),
)

ledger = Table(
    "ledger",
    metadata,
    Column("idea", String, primary_key=True),
    Column("round", Integer, nullable=False),
    Column("json", Text, nullable=False),
)

analyses = Table(
    "analyses",
    metadata,
    Column("round", Integer, primary_key=True),
    Column("json", Text, nullable=False),
)

profiles = Table(
    "profiles",
    metadata,
    Column("candidate", String, primary_key=True),
    Column("evidence", Text, nullable=False),
    Column("symptoms", Text, nullable=False),
)


# What was measured of candidates beside their times; evidence is made of it.
measured = Table(
    "measured",
    metadata,
    Column("candidate", String, primary_key=True),
    Column("json", Text, nullable=False),
)

# Questions to models in the order they were asked; one that failed and was asked again has two.
calls = Table(
    "calls",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, index=True),
    Column("sha256", String, nullable=False),
    Column("role", String, nullable=False),
    Column("round", Integer, nullable=False),
    Column("json", Text, nullable=False),
)

# What was decided by the clock or by anything else that a replay cannot compute again.
decisions = Table(
    "decisions",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, index=True),
    Column("value", String, nullable=False),
)

strategies = Table(
    "strategies",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("role", String, nullable=False),
    Column("round", Integer, nullable=False),
    Column("json", Text, nullable=False),
)

# Terms that a run was started under and that came after version 1 of the table `runs`.
terms = Table(
    "terms",
    metadata,
    Column("name", String, primary_key=True),
    Column("json", Text, nullable=False),
)


# An event that was told is not lost when the power fails.
_COMMITS = "synchronous=FULL"


def connect(path: Path) -> Engine:
    """An engine over one SQLite file: write-ahead log, and commits that reach the disk.

    Where nothing can be written, as on a disk that is mounted read-only, what is there is read.
    """
    if not os.access(path.parent, os.W_OK):
        return create_engine(f"sqlite:///file:{quote(str(path))}?{_unwritten(path)}&uri=true")
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def _set_up(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", _COMMITS, "busy_timeout=15000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def _unwritten(path: Path) -> str:
    """How SQLite opens a file beside which it can make none; a log that lies there counts too."""
    log = path.with_name(f"{path.name}-wal")
    return "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"


def make_tables(engine: Engine) -> None:
    """Make the tables that a database lacks, in one commit; one that lacks none is only read.

    All of a new run's are made, and those that are younger than an older run.
    """
    with engine.connect() as connection:
        if not _missing(connection):
            return
        # Another process may have begun as well; who holds the lock looks again.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        for table in _missing(connection):
            for statement in _making(table):
                connection.exec_driver_sql(statement)
        connection.commit()


def _missing(connection: Connection) -> list[Table]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    there = set(connection.exec_driver_sql(query).scalars())
    return [table for table in metadata.sorted_tables if table.name not in there]


@cache
def _making(table: Table) -> tuple[str, ...]:
    """The statements that make a table and its indices."""
    indices = sorted(table.indexes, key=lambda index: str(index.name))
    made: tuple[DDLElement, ...] = (CreateTable(table), *map(CreateIndex, indices))
    return tuple(str(one.compile(dialect=sqlite.dialect())) for one in made)
