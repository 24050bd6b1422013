"""What happened in a run, in order, as text; its candidates, and what the judge said of each.

An evaluation is known by candidate and effort, and the first one stays: nothing is measured twice.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Row, select
from sqlalchemy.dialects.sqlite import insert

from kernelwright.tools.archive import schema
from kernelwright.tools.archive.database import Database, Shelf
from kernelwright.tools.archive.elites import ranked
from kernelwright.tools.archive.records import (
    EFFORTS,
    Author,
    Standing,
    StoredEvent,
    UnknownRunError,
    Written,
)
from kernelwright.tools.types import Candidate, Effort, Evaluation


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


class Attempts(Database):
    """What was tried and what became of it; see `shelf` for what is read when."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        writing, judging = schema.candidates, schema.evaluations
        self._writing = Shelf(self, writing, writing.c.seq, _written)
        self._judging = Shelf(self, judging, judging.c.seq, _judged)
        self._written: dict[str, Written] = {}
        self._judged: dict[tuple[str, Effort], Evaluation] = {}
        # In order of writing, None until a candidate is judged.
        self._standing: dict[str, Standing | None] = {}
        self._standings: tuple[Standing, ...] | None = None

    def record_candidates(
        self, candidates: Iterable[Candidate], round: int, author: Author = "coder"
    ) -> None:
        """Keep candidates before they are judged, all of them or none."""
        with self._engine.begin() as connection:
            for candidate in candidates:
                values = {
                    "id": candidate.id,
                    "idea": candidate.idea,
                    "round": round,
                    "author": author,
                    "json": candidate.model_dump_json(),
                }
                row = insert(schema.candidates).values(values).on_conflict_do_nothing()
                connection.execute(row)

    def candidate(self, id: str) -> Candidate:
        """The candidate of that id, or of which that is the beginning.

        Raises:
            UnknownRunError: When the run has none, or several begin so.
        """
        self._read()
        if id in self._written:
            return self._written[id].candidate
        found = [item.candidate for name, item in self._written.items() if name.startswith(id)]
        if len(found) != 1:
            many = "several candidates" if found else "no candidate"
            raise UnknownRunError(f"run {self.id} has {many} {id!r}")
        return found[0]

    def candidates(self, round: int | None = None) -> tuple[Written, ...]:
        """Candidates in the order they were written, of one round or of all."""
        self._read()
        every = self._written.values()
        return tuple(item for item in every if round is None or item.round == round)

    def candidate_ids(self) -> tuple[str, ...]:
        """Ids of candidates in the order they were written, without reading more of them."""
        rows = self._rows(select(schema.candidates.c.id).order_by("seq"))
        return tuple(str(row.id) for row in rows)

    def record_evaluation(self, evaluation: Evaluation, effort: Effort, round: int) -> None:
        """Keep what the judge said; a first answer is never replaced by a later one."""
        self._insert(
            schema.evaluations,
            candidate=evaluation.candidate,
            effort=effort,
            round=round,
            verdict=evaluation.verdict.value,
            median_ms=evaluation.median_ms,
            json=evaluation.model_dump_json(),
        )

    def evaluation(self, candidate: str, effort: Effort | None = None) -> Evaluation | None:
        """What the judge said at that effort, or at the most trusted one there is."""
        self._read()
        wanted = EFFORTS[::-1] if effort is None else (effort,)
        known = (self._judged.get((candidate, name)) for name in wanted)
        return next((evaluation for evaluation in known if evaluation is not None), None)

    def standings(self) -> tuple[Standing, ...]:
        """Every judged candidate with its most trusted evaluation, in order of writing."""
        self._read()
        if self._standings is None:
            known = self._standing.values()
            self._standings = tuple(item for item in known if item is not None)
        return self._standings

    def best(self) -> Standing | None:
        """The fastest candidate that is correct, by its most trusted evaluation."""
        return next(iter(ranked(self.standings())), None)

    def _read(self) -> None:
        """Take in what was written since the last time, by this process or another."""
        for written in self._writing.news():
            self._written[written.candidate.id] = written
            self._settle(written.candidate.id)
        for effort, evaluation in self._judging.news():
            self._judged[evaluation.candidate, effort] = evaluation
            self._settle(evaluation.candidate)

    def _settle(self, candidate: str) -> None:
        """Say anew how a candidate stands."""
        written = self._written.get(candidate)
        if written is not None:
            self._standing[candidate] = self._stand(written)
            self._standings = None

    def _stand(self, written: Written) -> Standing | None:
        id = written.candidate.id
        effort = next((name for name in EFFORTS[::-1] if (id, name) in self._judged), None)
        if effort is None:
            return None
        return Standing(
            number=written.number,
            candidate=written.candidate,
            round=written.round,
            author=written.author,
            effort=effort,
            evaluation=self._judged[id, effort],
        )


def _written(row: Row[tuple[object, ...]]) -> Written:
    return Written(
        number=row.seq,
        candidate=Candidate.model_validate_json(row.json),
        round=row.round,
        author=row.author,
    )


def _judged(row: Row[tuple[object, ...]]) -> tuple[Effort, Evaluation]:
    return row.effort, Evaluation.model_validate_json(row.json)
