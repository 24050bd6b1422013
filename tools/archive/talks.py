"""What was said to and by language models in a run, and what else a replay has to know."""

from pathlib import Path

from sqlalchemy import Row, select
from sqlalchemy.dialects.sqlite import insert

from kernelwright.tools.archive import schema
from kernelwright.tools.archive.database import Database
from kernelwright.tools.archive.shelf import Shelf
from kernelwright.tools.types import Call, StrategyVersion


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
