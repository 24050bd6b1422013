"""What devices answered, by job: kept the moment it is known, and never asked for again.

One SQLite file a run, in its folder. A job has one row however often it was begun, so that a
search that is killed and resumed, or a device that answers twice, changes nothing. Losses are kept
beside, so that a run can say what they cost.
"""

import sqlite3
import time
from pathlib import Path

from kernelwright.tools.evaluate.executors.cluster.messages import Answer
from kernelwright.tools.types import Value

_TABLES = """
create table if not exists results(
    job text primary key, kind text, candidate text, device text, seconds real, answer text
);
create table if not exists losses(job text, device text, words text, at real);
"""


class Row(Value):
    """One answer: what it is of, who gave it, in how many seconds."""

    job: str
    kind: str
    candidate: str
    device: str
    seconds: float


class Loss(Value):
    """One job that a device did not live to answer."""

    job: str
    device: str
    words: str


class Results:
    """The answers of one run. For one thread.

    Args:
        path: The file; None keeps them in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
        # A killed program loses nothing; only a power cut may lose the last answers.
        self._base.execute("pragma journal_mode=wal")
        self._base.execute("pragma synchronous=normal")
        self._base.executescript(_TABLES)

    def get(self, job: str) -> Answer | None:
        """What was answered to a job, None while nobody did."""
        row = self._base.execute("select answer from results where job=?", (job,)).fetchone()
        return None if row is None else Answer.model_validate_json(row[0])

    def put(self, answer: Answer, kind: str, candidate: str, text: str | None = None) -> bool:
        """Keep an answer; whether it is the first to its job. `text` is its JSON where at hand."""
        kept = text if text is not None else answer.model_dump_json()
        row = (answer.job, kind, candidate, answer.device, answer.seconds, kept)
        done = self._base.execute("insert or ignore into results values(?,?,?,?,?,?)", row)
        return done.rowcount == 1

    def lose(self, job: str, device: str, words: str) -> None:
        """Note that a job was begun and not answered."""
        self._base.execute(
            "insert into losses values(?,?,?,?)", (job, device, words[:500], time.time())
        )

    def rows(self) -> tuple[Row, ...]:
        """Every answer without its text, in the order they came."""
        found = self._base.execute(
            "select job, kind, candidate, device, seconds from results order by rowid"
        )
        return tuple(
            Row(job=job, kind=kind, candidate=candidate, device=device, seconds=seconds)
            for job, kind, candidate, device, seconds in found
        )

    def losses(self) -> tuple[Loss, ...]:
        """Every loss, in the order they came."""
        found = self._base.execute("select job, device, words from losses order by rowid")
        return tuple(Loss(job=job, device=device, words=words) for job, device, words in found)

    def close(self) -> None:
        """Close the file."""
        self._base.close()
