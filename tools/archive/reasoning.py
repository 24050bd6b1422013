"""What the agents thought in a run, and what was said to and by language models.

Thoughts are ideas and what they brought, analyses and profiles. Beside the questions to models
stands what else a replay has to know.
"""

from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy import Row, select
from sqlalchemy.dialects.sqlite import insert

from kernelwright.tools.archive import schema
from kernelwright.tools.archive.database import Database, Shelf, TableWatch
from kernelwright.tools.types import (
    Analysis,
    Call,
    Evidence,
    Idea,
    LedgerEntry,
    Profile,
    StrategyVersion,
    Symptom,
)


class Talks(Database):
    """Calls, versions of evolving prompts, decisions of the clock, and the terms of a run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._calls = Shelf(self, schema.calls, schema.calls.c.seq, _call)
        self._versions = Shelf(self, schema.strategies, schema.strategies.c.seq, _version)

    def record_call(self, call: Call) -> None:
        """Keep a question with its reply or failure, before anyone acts upon it."""
        with self._engine.begin() as connection:
            values = {
                "key": call.prompt.key,
                "sha256": call.prompt.sha256,
                "role": call.prompt.role,
                "round": call.prompt.round,
                "json": call.model_dump_json(),
            }
            connection.execute(insert(schema.calls).values(values))

    def calls(self, key: str | None = None) -> tuple[Call, ...]:
        """Calls in the order they were made, of one key or of all."""
        every = self._calls.items()
        return every if key is None else tuple(call for call in every if call.prompt.key == key)

    def record_strategy(self, version: StrategyVersion) -> None:
        """Keep a version of an evolving prompt; one that is known stays as it is."""
        self._insert(
            schema.strategies,
            id=version.id,
            role=version.role,
            round=version.round,
            json=version.model_dump_json(),
        )

    def strategies(self) -> tuple[StrategyVersion, ...]:
        """Every version of the evolving prompts, in the order they were born."""
        return self._versions.items()

    def record_decision(self, key: str, value: str) -> None:
        """Keep what was decided; the same key may be decided again, and the order is kept."""
        with self._engine.begin() as connection:
            connection.execute(insert(schema.decisions).values(key=key, value=value))

    def decisions(self) -> tuple[tuple[str, str], ...]:
        """Keys and values in the order they were decided."""
        rows = self._rows(select(schema.decisions).order_by("seq"))
        return tuple((row.key, row.value) for row in rows)

    def record_term(self, name: str, json: str) -> None:
        """Keep a term of the run instead of what stood under that name before."""
        with self._engine.begin() as connection:
            row = insert(schema.terms).values(name=name, json=json)
            connection.execute(
                row.on_conflict_do_update(index_elements=["name"], set_={"json": json})
            )

    def terms(self) -> dict[str, str]:
        """Every term by its name."""
        return {str(row.name): str(row.json) for row in self._rows(select(schema.terms))}

    def term(self, name: str) -> str | None:
        """The JSON under that name; None where the run has none."""
        rows = self._rows(select(schema.terms).where(schema.terms.c.name == name))
        return str(rows[0].json) if rows else None


def _call(row: Row[tuple[object, ...]]) -> Call:
    return Call.model_validate_json(row.json)


def _version(row: Row[tuple[object, ...]]) -> StrategyVersion:
    return StrategyVersion.model_validate_json(row.json)


EVIDENCE = TypeAdapter(tuple[Evidence, ...])
SYMPTOMS = TypeAdapter(tuple[Symptom, ...])


class Thoughts(Database):
    """What was thought, and how it turned out; see `shelf` for what is read when."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        proposing, contrasting = schema.ideas, schema.analyses
        self._ideas = Shelf(self, proposing, proposing.c.seq, _idea)
        self._analyses = Shelf(self, contrasting, contrasting.c.round, _analysis)
        # By their JSON: lines may change, and what did not need not be parsed again.
        self._entries: dict[str, LedgerEntry] = {}
        self._entering = TableWatch(self)

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

    def record_ledger(self, *entries: LedgerEntry) -> None:
        """Keep what ideas really did, instead of what was known of them before."""
        known = {entry.idea: entry for entry in self.ledger()}
        changed = [entry for entry in entries if known.get(entry.idea) != entry]
        if not changed:
            return
        with self._engine.begin() as connection:
            for entry in changed:
                values = {
                    "idea": entry.idea,
                    "round": entry.round,
                    "json": entry.model_dump_json(),
                }
                row = insert(schema.ledger).values(values)
                connection.execute(row.on_conflict_do_update(index_elements=["idea"], set_=values))

    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What every idea really did, in order of rounds."""
        if self._entering.look():
            rows = self._rows(select(schema.ledger.c.json).order_by("round", "idea"))
            known = self._entries
            texts = [str(row.json) for row in rows]
            self._entries = {text: known.get(text) or _entry(text) for text in texts}
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

    def record_measured(self, profile: Profile) -> None:
        """Keep what a profiler measured of a candidate."""
        json = profile.model_dump_json()
        self._insert(schema.measured, candidate=profile.candidate, json=json)

    def measured(self, candidate: str) -> Profile | None:
        """What a profiler measured of a candidate; None when it was never asked."""
        table = schema.measured
        rows = self._rows(select(table).where(table.c.candidate == candidate))
        return Profile.model_validate_json(rows[0].json) if rows else None

    def profiling_s(self) -> float:
        """Seconds that profilers have taken in this run."""
        rows = self._rows(select(schema.measured.c.json))
        return sum(Profile.model_validate_json(row.json).seconds for row in rows)


def _idea(row: Row[tuple[object, ...]]) -> Idea:
    return Idea.model_validate_json(row.json)


def _entry(json: str) -> LedgerEntry:
    return LedgerEntry.model_validate_json(json)


def _analysis(row: Row[tuple[object, ...]]) -> Analysis:
    return Analysis.model_validate_json(row.json)
