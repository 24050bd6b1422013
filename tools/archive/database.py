"""A run's folder and database: its name, its lock, its session, the time it has spent.

A run is a folder `<home>/runs/<run id>/`. Its id reads as task, month and day, and four letters
that make it unique: `softmax-1121-k3f9`. What can be wrong with a run that somebody names is an
error whose message is one sentence for a person.

One process may write to a run at a time, as two searches over one archive would interleave their
rounds. The lock belongs to the process and ends with it, however it ends; processes that it forks
do not inherit it. It is only advisory, and only on this machine: two hosts over one network folder
are not kept apart.

Rows that never change are parsed when they appear, and kept. Whoever holds the run's lock need not
even ask the database again until it has written something itself; others ask every time, for newer
rows only. Not covered: threads; an archive belongs to one. Not here: what stands in the tables,
which is for the modules beside this one.
"""

import difflib
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Generic, Literal, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    UpdateBase,
    bindparam,
    event,
    func,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import Insert, insert

from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.archive import schema
from kernelwright.tools.runtime import home as default_home
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Task,
    TracePolicy,
    Value,
)
from kernelwright.tools.types.run import Summary


class RunError(ValueError):
    """A run cannot be used as asked; the message says why in one sentence."""


class UnknownRunError(RunError):
    """No run has that name."""


class CorruptRunError(RunError):
    """The run's folder exists, but what is in it cannot be read."""


class NotRecordedError(Exception):
    """A replay wants to know what the recorded run never found out; the message names it."""


class RunBusyError(RunError):
    """Another search works on this run right now."""


# No vowels, so that no words appear, and nothing that reads as something else.
LETTERS = "bcdfghjkmnpqrstvwxz23456789"
DATABASE = "run.db"


def new_run_folder(home: Path, task: str) -> Path:
    """Make the folder of a new run over a task of that name."""
    slug = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")[:24].strip("-") or "task"
    while True:
        tail = "".join(secrets.choice(LETTERS) for _ in range(4))
        folder = home / "runs" / f"{slug}-{datetime.now(UTC):%m%d}-{tail}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder


def run_folders(home: Path) -> tuple[Path, ...]:
    """The folders of every run, by name."""
    return tuple(sorted(path.parent for path in (home / "runs").glob(f"*/{DATABASE}")))


def find_run(run: str | Path, home: Path | None = None) -> Path:
    """The folder of a run named by its folder, its id, or the beginning of one id.

    Raises:
        UnknownRunError: When there is none; the sentence names what is close.
    """
    if (Path(run) / DATABASE).is_file():
        return Path(run)
    folders = {path.name: path for path in run_folders(home or default_home())}
    begin = [name for name in folders if name.startswith(str(run)) and str(run)]
    if str(run) in folders or len(begin) == 1:
        return folders.get(str(run)) or folders[begin[0]]
    if begin:
        raise UnknownRunError(f"several runs begin with {str(run)!r}: {', '.join(begin[:5])}")
    near = difflib.get_close_matches(str(run), folders, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    where = (home or default_home()) / "runs"
    raise UnknownRunError(f"there is no run {str(run)!r} in {where}{hint}")


Author = Literal["coder", "tuner", "repair"]
RunStatus = Literal["running", "stopped", "finished"]
Target = Literal["auto", "cuda", "cpu"]

# From the least to the most trusted; the last one there is stands for the candidate.
EFFORTS: tuple[Effort, ...] = ("screen", "precise", "certify")


class RunRecord(Value):
    """What a run is over and under which terms; `baselines` and `summary` once they exist."""

    id: str
    created_at: datetime
    status: RunStatus
    target: Target
    seed: int
    task: Task
    policy: TracePolicy
    profile: SearchProfile
    hardware: Hardware
    baselines: Baselines | None = None
    summary: Summary | None = None


class RunInfo(Value):
    """A run in a list: `live` when a process works on it; `problem` when it cannot be read."""

    id: str
    folder: str
    created_at: datetime | None = None
    task: str = ""
    hardware: str = ""
    status: RunStatus | None = None
    live: bool = False
    summary: Summary | None = None
    problem: str = ""


class StoredEvent(Value):
    """An event as text: `payload` is the JSON of one of `graphs.run_view.events`."""

    seq: int
    kind: str
    round: int
    at: datetime
    payload: str
    key: str | None = None


class Written(Value):
    """A candidate with when and by whom it was written; `number` counts from 1 in a run."""

    number: int
    candidate: Candidate
    round: int
    author: Author


class Standing(Value):
    """A candidate with the most trusted evaluation that it has."""

    number: int
    candidate: Candidate
    round: int
    author: Author
    effort: Effort
    evaluation: Evaluation


# A POSIX lock is the process's own: taking it twice succeeds, and closing any descriptor of the
# file drops it. Hence this table, consulted before the file is touched.
_held: dict[Path, int] = {}


def claim(folder: Path) -> None:
    """Take the run for this process.

    Raises:
        RunBusyError: When this or another process has it already.
    """
    path = (folder / "lock").resolve()
    if path in _held:
        raise RunBusyError(f"run {folder.name} is already being worked on in this process")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RunBusyError(f"run {folder.name} is being worked on by another process") from None
    _held[path] = descriptor


def release(folder: Path) -> None:
    """Give the run back; nothing happens when it was not taken."""
    descriptor = _held.pop((folder / "lock").resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether some process works on the run right now; nothing is written to learn it."""
    path = (folder / "lock").resolve()
    if path in _held:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # nobody ever took it, or it is not ours to read
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


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
            release(self.folder)
        self._engine.dispose()

    def claim(self) -> None:
        """Begin a session: nobody else may search this run until `close`.

        Raises:
            RunBusyError: When somebody does.
        """
        claim(self.folder)
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
            connection.execute(unless_there(table), values)

    def _set_run(self, **values: object) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(schema.runs).values(values))

    def _rows(self, query: Select[tuple[object, ...]]) -> list[Row[tuple[object, ...]]]:
        with self._engine.connect() as connection:
            return list(connection.execute(query))

    def _tick(self, connection: Connection) -> None:
        if self._session is not None:
            values = {"session": self._session, "lasted_s": self._lasted_s()}
            connection.execute(_LASTED, values)

    def _lasted_s(self) -> float:
        """How long this session has worked."""
        now = monotonic()
        waiting_s = now - self._waiting_since if self._waiters else 0.0
        return now - self._began - self._waited_s - waiting_s


# Made once, as in every step of a search: building a statement takes longer than carrying it out.
_LASTED = (
    update(schema.sessions)
    .where(schema.sessions.c.id == bindparam("session"))
    .values(seconds=bindparam("lasted_s"))
)


@cache
def unless_there(table: Table) -> Insert:
    """A row is written unless one like it is there; executed with its values."""
    return insert(table).on_conflict_do_nothing()


T = TypeVar("T")
# What a connection has written and not committed; a rollback leaves at worst one look too many.
_WRITTEN = "kernelwright_written"


class TableWatch:
    """Says whether there may be news in a table since the last look.

    Args:
        database: Whose writing is watched.
        table: Which of its tables.
    """

    def __init__(self, database: Database, table: Table) -> None:
        self._database, self._table = database, table
        self._is_stale = True
        event.listen(database._engine, "after_execute", self._executed)
        event.listen(database._engine, "commit", self._committed)

    def look(self) -> bool:
        """Whether anything may have been written since this was asked last."""
        stale, self._is_stale = self._is_stale, False
        return stale or not self._database.is_claimed

    def _executed(self, connection: Connection, statement: object, *_: object) -> None:
        if isinstance(statement, UpdateBase) and statement.table is self._table:
            connection.info.setdefault(_WRITTEN, set()).add(self._table.name)

    def _committed(self, connection: Connection) -> None:
        if self._table.name in connection.info.get(_WRITTEN, ()):
            connection.info[_WRITTEN].discard(self._table.name)
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
        self._watch, self._parse = TableWatch(database, table), parse
        place = order.label("place")
        # Made once: building a query takes longer than answering it.
        self._newer = select(table, place).where(order > bindparam("last")).order_by(order)
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
        with self._engine.connect() as connection:
            rows = list(connection.execute(self._newer, {"last": self._last}))
        if not rows:
            return ()
        found = tuple(self._parse(row) for row in rows)
        self._last = rows[-1].place
        self._items += found
        return found
