"""The tables of the conversations, in SQLite or in PostgreSQL.

A step and an element are kept as the JSON that Chainlit makes of them, beside the few columns that
are asked for: a field that a later version adds is kept without a change here.
"""

from pathlib import Path
from sqlite3 import Connection

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, Text, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

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


def _prepare(connection: Connection, _: ConnectionPoolEntry) -> None:
    """Write ahead, so that a killed server loses nothing that was committed."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA busy_timeout=10000")
