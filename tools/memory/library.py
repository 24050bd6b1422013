"""The user's library of verified kernels, and of how searches went: one SQLite file.

Several searches may read and write it at once; a write is one transaction that waits its turn. It
is bounded: of a task on a device the fastest few stay, of all kernels those that were used last,
and of the searches of a depth on a device the latest. Times are of the device and the day they were
taken on.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from math import log2
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.memory.entry import Kept
from kernelwright.tools.memory.structure import TaskKey
from kernelwright.tools.memory.trail import Trail
from kernelwright.tools.types.value import Value

BROKEN = (sqlite3.Error, OSError, ValidationError)

_FILE = "library.db"
_WAIT_S = 15.0
# Kernels of one task on one device; of all; and the bytes of all.
_OF_A_TASK, _KERNELS, _BYTES = 3, 4000, 128 * 2**20
_TRAILS = 64  # searches of one depth on one device
# Kernels of one structure that a search looks at, the latest used.
_LOOKED_AT = 64
_LAYOUT = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS kernels (
    id TEXT PRIMARY KEY,
    exact TEXT NOT NULL,
    structure TEXT NOT NULL,
    kind TEXT NOT NULL,
    device TEXT NOT NULL,
    candidate TEXT NOT NULL,
    ratio REAL NOT NULL,
    used_at TEXT NOT NULL,
    json TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_structure ON kernels (structure, kind);
CREATE INDEX IF NOT EXISTS by_candidate ON kernels (candidate);
CREATE TABLE IF NOT EXISTS trails (
    number INTEGER PRIMARY KEY,
    device TEXT NOT NULL,
    depth TEXT NOT NULL,
    json TEXT NOT NULL
);
"""


def library_path(home: Path) -> Path:
    """Where the library of that data folder lies; a layout that changes has another name."""
    return home / (_FILE if _LAYOUT == 1 else f"library-{_LAYOUT}.db")


def forget(home: Path) -> bool:
    """Delete the library; False where there is none. Searches under way find it empty."""
    path = library_path(home)
    if not path.is_file():
        return False
    try:
        with KernelLibrary(home)._open() as connection:
            connection.execute("DELETE FROM kernels")
            connection.execute("DELETE FROM trails")
        with closing(sqlite3.connect(path, timeout=_WAIT_S)) as connection:
            connection.execute("VACUUM")
    except sqlite3.DatabaseError:  # it cannot be read, which deleting it mends
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)
    return True


class LibraryCounts(Value):
    """How much is in a library."""

    kernels: int
    tasks: int
    searches: int
    size_bytes: int


class KernelLibrary:
    """The library in a data folder; nothing is made there before the first kernel is kept.

    Args:
        home: The folder.
    """

    def __init__(self, home: Path) -> None:
        self._path = library_path(home)

    def keep(self, kernels: Iterable[Kept]) -> int:
        """Take kernels in, in place of what was known of the same; answers how many.

        One that was merged never replaces what was measured here.
        """
        count = 0
        with self._open() as connection:
            for item in kernels:
                count += 1
                self._insert(connection, item)
                connection.execute(
                    "DELETE FROM kernels WHERE exact = ? AND device = ? AND id NOT IN (SELECT id "
                    "FROM kernels WHERE exact = ? AND device = ? ORDER BY ratio DESC LIMIT ?)",
                    (item.key.exact, item.device, item.key.exact, item.device, _OF_A_TASK),
                )
            _bound(connection)
        return count

    def certify(self, candidates: Iterable[str], device: str) -> None:
        """Say of kernels, by their candidates, that a model with them in it was certified."""
        with self._open() as connection:
            for candidate in candidates:
                found = connection.execute(
                    "SELECT json FROM kernels WHERE candidate = ? AND device = ?",
                    (candidate, device),
                ).fetchall()
                for (text,) in found:
                    item = Kept.model_validate_json(text)
                    proof = item.proof.model_copy(update={"certified": True})
                    self._insert(connection, item.model_copy(update={"proof": proof}))

    def drop(self, ids: Iterable[str]) -> None:
        """Let go of kernels that did not hold."""
        if gone := [(id,) for id in ids]:
            with self._open() as connection:
                connection.executemany("DELETE FROM kernels WHERE id = ?", gone)

    def exactly(self, key: TaskKey, kind: str, device: str) -> tuple[Kept, ...]:
        """Kernels of the same task in the same shapes, this device's first, the fastest first."""
        found = self._found("exact = ? AND kind = ?", (key.exact, kind))
        return tuple(sorted(found, key=lambda i: (i.device != device, i.merged, -i.proof.ratio)))

    def like(self, key: TaskKey, kind: str, device: str) -> tuple[Kept, ...]:
        """Kernels of the same structure in other shapes, the nearest first."""
        found = self._found(
            "structure = ? AND kind = ? AND exact != ?", (key.structure, kind, key.exact)
        )
        return tuple(sorted(found, key=lambda i: (i.device != device, _distance(i.key, key))))

    def every(self) -> tuple[Kept, ...]:
        """All kernels, the latest used first."""
        return self._found("1 = 1", (), _KERNELS)

    def used(self, kernels: Iterable[Kept]) -> None:
        """Say that these were of use, so that they stay."""
        now = datetime.now(UTC).isoformat()
        with self._open() as connection:
            rows = [(now, item.id) for item in kernels]
            connection.executemany("UPDATE kernels SET used_at = ? WHERE id = ?", rows)

    def keep_trail(self, trail: Trail) -> None:
        """Take note of how one more search went."""
        of = (trail.device, trail.depth)
        with self._open() as connection:
            connection.execute(
                "INSERT INTO trails (device, depth, json) VALUES (?, ?, ?)",
                (*of, trail.model_dump_json()),
            )
            connection.execute(
                "DELETE FROM trails WHERE device = ? AND depth = ? AND number NOT IN (SELECT "
                "number FROM trails WHERE device = ? AND depth = ? ORDER BY number DESC LIMIT ?)",
                (*of, *of, _TRAILS),
            )

    def trails(self, device: str, depth: str) -> tuple[Trail, ...]:
        """How searches of a depth went on a device, the latest first."""
        if not self._path.is_file():
            return ()
        query = "SELECT json FROM trails WHERE device = ? AND depth = ? ORDER BY number DESC"
        with self._open() as connection:
            rows = connection.execute(query, (device, depth)).fetchall()
        return tuple(Trail.model_validate_json(text) for (text,) in rows)

    def counts(self) -> LibraryCounts:
        """How much there is."""
        columns = "count(*), count(DISTINCT exact), coalesce(sum(length(json)), 0)"
        if not self._path.is_file():
            return LibraryCounts(kernels=0, tasks=0, searches=0, size_bytes=0)
        with self._open() as connection:
            kernels, tasks, size = connection.execute(f"SELECT {columns} FROM kernels").fetchone()
            (searches,) = connection.execute("SELECT count(*) FROM trails").fetchone()
        return LibraryCounts(kernels=kernels, tasks=tasks, searches=searches, size_bytes=size)

    def _insert(self, connection: sqlite3.Connection, item: Kept) -> None:
        rows = connection.execute("SELECT json FROM kernels WHERE id = ?", (item.id,))
        known = next((_read(text) for (text,) in rows.fetchall()), None)
        if known is not None and not known.merged and not item.merged:
            item = _renewed(known, item)
        verb = "IGNORE" if item.merged else "REPLACE"
        columns = (
            item.id,
            item.key.exact,
            item.key.structure,
            item.kind,
            item.device,
            item.candidate,
            item.proof.ratio,
            datetime.now(UTC).isoformat(),
            item.model_dump_json(),
        )
        connection.execute(
            f"INSERT OR {verb} INTO kernels VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", columns
        )

    def _found(
        self, where: str, values: tuple[str, ...], most: int = _LOOKED_AT
    ) -> tuple[Kept, ...]:
        if not self._path.is_file():
            return ()
        query = f"SELECT json FROM kernels WHERE {where} ORDER BY used_at DESC LIMIT {most}"
        with self._open() as connection:
            rows = connection.execute(query, values).fetchall()
        return tuple(item for (text,) in rows if (item := _read(text)) is not None)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database, in one transaction that is kept where nothing is raised."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_TABLE)
            with connection:
                yield connection


def _renewed(known: Kept, item: Kept) -> Kept:
    """The same kernel measured again: what settled nothing leaves standing what was settled."""
    low, high = item.proof.ci95
    newest = known if known.faster and low <= 1.0 <= high else item
    certified = known.proof.certified or item.proof.certified
    proof = newest.proof.model_copy(update={"certified": certified})
    return newest.model_copy(update={"proof": proof})


def _read(text: str) -> Kept | None:
    """A kernel; None for one that another version wrote in words that this one does not know."""
    try:
        return Kept.model_validate_json(text)
    except ValidationError:
        return None


def _bound(connection: sqlite3.Connection) -> None:
    """Let go of what was not used for longest."""
    rows = connection.execute(
        "SELECT id, length(json) FROM kernels ORDER BY used_at DESC, id"
    ).fetchall()
    total = 0
    for number, (id, size) in enumerate(rows):
        total += size
        if number >= _KERNELS or total > _BYTES:
            connection.execute("DELETE FROM kernels WHERE id = ?", (id,))


def _distance(one: TaskKey, other: TaskKey) -> float:
    """How far two shapes of a rank lie apart, by the powers of two between their sizes."""
    pairs = zip(one.shape, other.shape, strict=False)
    return sum(abs(log2(max(a, 1)) - log2(max(b, 1))) for a, b in pairs)
