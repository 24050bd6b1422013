"""What the agents thought in a run: ideas, what they brought, analyses, profiles."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy import Row, select
from sqlalchemy.dialects.sqlite import insert

from tools.archive import schema
from tools.archive.database import Database
from tools.archive.shelf import Shelf, Watch
from tools.nouns import Analysis, Evidence, Idea, LedgerEntry, Symptom

EVIDENCE = TypeAdapter(tuple[Evidence, ...])
SYMPTOMS = TypeAdapter(tuple[Symptom, ...])


class Thoughts(Database):
    """What was thought, and how it turned out; see `shelf` for what is read when."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        proposing, contrasting = schema.ideas, schema.analyses
        self._ideas = Shelf(self, proposing, proposing.c.seq, _idea)
        self._analyses = Shelf(self, contrasting, contrasting.c.round, _analysis)
        self._entries: dict[str, LedgerEntry] = {}
        self._entering = Watch(self)

    def record_ideas(self, ideas: Iterable[Idea]) -> None:
        """Keep the ideas of a round, all of them or none."""
        with self._engine.begin() as connection:
            for idea in ideas:
                values = {"id": idea.id, "round": idea.round, "json": idea.model_dump_json()}
                connection.execute(insert(schema.ideas).values(values).on_conflict_do_nothing())

    def ideas(self, round: int | None = None) -> tuple[Idea, ...]:
        """Ideas in the order they were proposed, of one round or of all."""
        every = self._ideas.items()
        return every if round is None else tuple(idea for idea in every if idea.round == round)

    def record_ledger(self, entry: LedgerEntry) -> None:
        """Keep what an idea really did, instead of what was known of it before."""
        self.ledger()
        if self._entries.get(entry.idea) == entry:
            return
        values = {"idea": entry.idea, "round": entry.round, "json": entry.model_dump_json()}
        row = insert(schema.ledger).values(values)
        with self._engine.begin() as connection:
            connection.execute(row.on_conflict_do_update(index_elements=["idea"], set_=values))

    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What every idea really did, in order of rounds."""
        if self._entering.look():
            rows = self._rows(select(schema.ledger).order_by("round", "idea"))
            self._entries = {row.idea: LedgerEntry.model_validate_json(row.json) for row in rows}
        return tuple(self._entries.values())

    def record_analysis(self, analysis: Analysis) -> None:
        """Keep the critic's contrast of a round."""
        self._insert(schema.analyses, round=analysis.round, json=analysis.model_dump_json())

    def analyses(self) -> tuple[Analysis, ...]:
        """The critic's contrasts, in order of rounds."""
        return self._analyses.items()

    def record_profile(
        self, candidate: str, evidence: tuple[Evidence, ...], symptoms: tuple[Symptom, ...]
    ) -> None:
        """Keep what bounds a candidate."""
        self._insert(
            schema.profiles,
            candidate=candidate,
            evidence=EVIDENCE.dump_json(evidence).decode(),
            symptoms=SYMPTOMS.dump_json(symptoms).decode(),
        )

    def profile(self, candidate: str) -> tuple[tuple[Evidence, ...], tuple[Symptom, ...]] | None:
        """What bounds a candidate; None when it was never profiled."""
        table = schema.profiles
        rows = self._rows(select(table).where(table.c.candidate == candidate))
        if not rows:
            return None
        return EVIDENCE.validate_json(rows[0].evidence), SYMPTOMS.validate_json(rows[0].symptoms)


def _idea(row: Row[tuple[object, ...]]) -> Idea:
    return Idea.model_validate_json(row.json)


def _analysis(row: Row[tuple[object, ...]]) -> Analysis:
    return Analysis.model_validate_json(row.json)
