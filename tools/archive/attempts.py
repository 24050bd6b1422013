"""Candidates of a run and what the judge said of each.

An evaluation is known by candidate and effort, and the first one stays: nothing is measured twice.
"""

from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Row, select
from sqlalchemy.dialects.sqlite import insert

from tools.archive import schema
from tools.archive.database import Database
from tools.archive.errors import UnknownRunError
from tools.archive.ranking import ranked
from tools.archive.records import EFFORTS, Author, Effort, Standing, Written
from tools.nouns import Candidate, Evaluation


class Attempts(Database):
    """What was tried and what became of it.

    Rows never change, so what was read once is kept and only newer rows are read again.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._written: dict[str, Written] = {}
        self._judged: dict[tuple[str, Effort], Evaluation] = {}
        self._last_written = 0
        self._last_judged = 0

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
        return tuple(
            Standing(
                number=written.number,
                candidate=written.candidate,
                round=written.round,
                author=written.author,
                effort=effort,
                evaluation=self._judged[id, effort],
            )
            for id, written in self._written.items()
            if (effort := self._most_trusted(id)) is not None
        )

    def best(self) -> Standing | None:
        """The fastest candidate that is correct, by its most trusted evaluation."""
        return next(iter(ranked(self.standings())), None)

    def _most_trusted(self, candidate: str) -> Effort | None:
        return next((name for name in EFFORTS[::-1] if (candidate, name) in self._judged), None)

    def _read(self) -> None:
        """Take in what was written since the last time, by this process or another."""
        written, judged = schema.candidates, schema.evaluations
        new = select(written).where(written.c.seq > self._last_written).order_by("seq")
        for row in self._rows(new):
            self._written[row.id] = _written(row)
            self._last_written = row.seq
        new = select(judged).where(judged.c.seq > self._last_judged).order_by("seq")
        for row in self._rows(new):
            evaluation = Evaluation.model_validate_json(row.json)
            self._judged[row.candidate, row.effort] = evaluation
            self._last_judged = row.seq


def _written(row: Row[tuple[object, ...]]) -> Written:
    return Written(
        number=row.seq,
        candidate=Candidate.model_validate_json(row.json),
        round=row.round,
        author=row.author,
    )
