"""Candidates of a run and what the judge said of each.

An evaluation is known by candidate and effort, and the first one stays: nothing is measured twice.
"""

from collections.abc import Iterable

from sqlalchemy import Row, select
from sqlalchemy.dialects.sqlite import insert

from tools.archive import schema
from tools.archive.database import Database
from tools.archive.errors import UnknownRunError
from tools.archive.records import EFFORTS, Author, Effort, Standing, Written
from tools.nouns import Candidate, Evaluation, Verdict


class Attempts(Database):
    """What was tried and what became of it."""

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
            UnknownRunError: When the run has none.
        """
        column = schema.candidates.c
        rows = self._rows(select(column.json).where(column.id.startswith(id, autoescape=True)))
        if len(rows) != 1:
            many = "several candidates" if rows else "no candidate"
            raise UnknownRunError(f"run {self.id} has {many} {id!r}")
        return Candidate.model_validate_json(rows[0].json)

    def candidates(self, round: int | None = None) -> tuple[Written, ...]:
        """Candidates in the order they were written, of one round or of all."""
        query = select(schema.candidates).order_by("seq")
        if round is not None:
            query = query.where(schema.candidates.c.round == round)
        return tuple(_written(row) for row in self._rows(query))

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
        column = schema.evaluations.c
        rows = self._rows(select(column.effort, column.json).where(column.candidate == candidate))
        known = {row.effort: row.json for row in rows}
        wanted = EFFORTS[::-1] if effort is None else (effort,)
        found = next((known[name] for name in wanted if name in known), None)
        return None if found is None else Evaluation.model_validate_json(found)

    def standings(self) -> tuple[Standing, ...]:
        """Every judged candidate with its most trusted evaluation, in order of writing."""
        rows = self._rows(select(schema.evaluations).order_by("seq"))
        trusted: dict[str, Row[tuple[object, ...]]] = {}
        for row in sorted(rows, key=lambda row: EFFORTS.index(row.effort)):
            trusted[row.candidate] = row
        return tuple(
            Standing(
                **written.model_dump(exclude={"candidate"}),
                candidate=written.candidate,
                effort=trusted[written.candidate.id].effort,
                evaluation=Evaluation.model_validate_json(trusted[written.candidate.id].json),
            )
            for written in self.candidates()
            if written.candidate.id in trusted
        )

    def best(self) -> Standing | None:
        """The fastest candidate that is correct, by its most trusted evaluation."""
        timed = [
            (item.evaluation.median_ms, item.number, item)
            for item in self.standings()
            if item.evaluation.verdict is Verdict.CORRECT and item.evaluation.median_ms is not None
        ]
        return min(timed)[2] if timed else None


def _written(row: Row[tuple[object, ...]]) -> Written:
    return Written(
        number=row.seq,
        candidate=Candidate.model_validate_json(row.json),
        round=row.round,
        author=row.author,
    )
