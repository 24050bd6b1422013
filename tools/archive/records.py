"""What a run wrote down, in order: events, candidates and their evaluations, thoughts, questions.

Events are kept as text. An evaluation is known by candidate and effort, and the first one stays:
nothing is measured twice, unless a person asks for it; then the newer one counts, and the older
one is kept beside it.

Thoughts are ideas and what they brought, analyses and profiles. Beside the questions to language
models stands what else a replay has to know.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy import Row, select, update
from sqlalchemy.dialects.sqlite import insert

from kernelwright.tools.archive import schema
from kernelwright.tools.archive.database import (
    EFFORTS,
    Author,
    Database,
    Shelf,
    Standing,
    StoredEvent,
    TableWatch,
    UnknownRunError,
    Written,
    unless_there,
)
from kernelwright.tools.archive.elites import ranked
from kernelwright.tools.types import (
    Analysis,
    Call,
    Candidate,
    Effort,
    Evaluation,
    Evidence,
    Idea,
    LedgerEntry,
    Profile,
    StrategyVersion,
    Symptom,
)


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
            row = {"key": key, "kind": kind, "round": round, "payload": payload}
            row["at"] = at.isoformat()
            done = connection.execute(unless_there(schema.events), row)
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

    def replace_evaluation(self, evaluation: Evaluation, effort: Effort, round: int) -> None:
        """Keep what the judge said when it was asked again; the earlier answer stays as history."""
        table = schema.evaluations
        earlier = (table.c.candidate == evaluation.candidate) & (table.c.effort == effort)
        before = f"{effort}, before {datetime.now(UTC).isoformat()}"
        values = {
            "candidate": evaluation.candidate,
            "effort": effort,
            "round": round,
            "verdict": evaluation.verdict.value,
            "median_ms": evaluation.median_ms,
            "json": evaluation.model_dump_json(),
        }
        with self._engine.begin() as connection:
            connection.execute(update(table).where(earlier).values(effort=before))
            connection.execute(insert(table).values(values))

    def evaluation(self, candidate: str, effort: Effort | None = None) -> Evaluation | None:
        """What the judge said at that effort, or at the most trusted one there is."""
        self._read()
        wanted = EFFORTS[::-1] if effort is None else (effort,)
        known = (self._judged.get((candidate, name)) for name in wanted)
        return next((evaluation for evaluation in known if evaluation is not None), None)

    def screenings(self) -> tuple[Evaluation, ...]:
        """The short evaluations, in the order in which they were made."""
        self._read()
        return tuple(item for (_, effort), item in self._judged.items() if effort == "screen")

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


class Talks(Database):
    """Calls, versions of evolving prompts, decisions of the clock, and the terms of a run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._calls = Shelf(self, schema.calls, schema.calls.c.seq, _call)
        self._versions = Shelf(self, schema.strategies, schema.strategies.c.seq, _version)
        self._terms: dict[str, str] = {}
        self._agreeing = TableWatch(self, schema.terms)

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
            connection.execute(insert(schema.calls), values)

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
            connection.execute(insert(schema.decisions), {"key": key, "value": value})

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
        if self._agreeing.look():
            rows = self._rows(select(schema.terms))
            self._terms = {str(row.name): str(row.json) for row in rows}
        return dict(self._terms)

    def term(self, name: str) -> str | None:
        """The JSON under that name; None where the run has none."""
        return self.terms().get(name)


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
        self._entering = TableWatch(self, schema.ledger)

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
        rows = [
            {"idea": entry.idea, "round": entry.round, "json": entry.model_dump_json()}
            for entry in changed
        ]
        row = insert(schema.ledger)
        new = {"round": row.excluded.round, "json": row.excluded.json}
        with self._engine.begin() as connection:
            connection.execute(row.on_conflict_do_update(index_elements=["idea"], set_=new), rows)

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
        return sum(self._profiles_s())

    def profile_s(self) -> float:
        """Seconds that the quickest of these took, as others wait for processes; 0.0 for none."""
        return min((seconds for seconds in self._profiles_s() if seconds), default=0.0)

    def _profiles_s(self) -> list[float]:
        rows = self._rows(select(schema.measured.c.json))
        return [Profile.model_validate_json(row.json).seconds for row in rows]


def _idea(row: Row[tuple[object, ...]]) -> Idea:
    return Idea.model_validate_json(row.json)


def _entry(json: str) -> LedgerEntry:
    return LedgerEntry.model_validate_json(json)


def _analysis(row: Row[tuple[object, ...]]) -> Analysis:
    return Analysis.model_validate_json(row.json)
