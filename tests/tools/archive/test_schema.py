import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Table
from sqlalchemy.exc import DatabaseError

from kernelwright.tools.archive import Archive, list_runs, schema

MakeArchive = Callable[[], Archive]


@contextmanager
def raw(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        yield connection


def written(database: Path) -> list[tuple[str, ...]]:
    with raw(database) as connection:
        return sorted(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


def test_tables_and_indices_are_those_that_are_declared(tmp_path: Path) -> None:
    ours, theirs = schema.connect(tmp_path / "ours.db"), schema.connect(tmp_path / "theirs.db")
    schema.make_tables(ours)
    schema.metadata.create_all(theirs)
    assert written(tmp_path / "ours.db") == written(tmp_path / "theirs.db")


def test_tables_are_made_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making, last = schema._making, schema.metadata.sorted_tables[-1]

    def cut_off(table: Table) -> tuple[str, ...]:
        if table is last:
            raise KeyboardInterrupt
        return making(table)

    monkeypatch.setattr(schema, "_making", cut_off)
    with pytest.raises(KeyboardInterrupt):
        schema.make_tables(schema.connect(tmp_path / "run.db"))
    assert written(tmp_path / "run.db") == []


def test_an_older_run_gets_what_is_younger_and_keeps_what_it_has(new_archive: MakeArchive) -> None:
    older = new_archive()
    older.set_status("stopped")
    older.close()
    complete = written(older.folder / "run.db")
    with raw(older.folder / "run.db") as connection:
        for table in (schema.terms, schema.calls):
            connection.execute(f"DROP TABLE {table.name}")
    assert written(older.folder / "run.db") != complete
    assert Archive.open(older.folder).record().status == "stopped"
    assert written(older.folder / "run.db") == complete


def test_a_run_that_lacks_nothing_is_opened_while_another_process_writes(
    new_archive: MakeArchive, tmp_path: Path
) -> None:
    archive = new_archive()
    with raw(archive.folder / "run.db") as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert Archive.open(archive.folder).id == archive.id
        assert [info.problem for info in list_runs(tmp_path)] == [""]


def test_a_run_where_nothing_can_be_written_is_read(
    new_archive: MakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = new_archive()
    made.set_status("finished")
    made.close()
    before = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    monkeypatch.setattr(schema.os, "access", lambda *_: False)  # as root may write anywhere
    again = Archive.open(made.folder)
    assert again.record().status == "finished"
    with pytest.raises(DatabaseError, match="readonly"):
        again.set_status("stopped")
    again.close()
    assert {path.name: path.read_bytes() for path in made.folder.iterdir()} == before


def test_what_still_lies_in_a_log_is_read_where_nothing_can_be_written(
    new_archive: MakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = new_archive()
    made.set_status("finished")  # it is open, so this lies in the log
    monkeypatch.setattr(schema.os, "access", lambda *_: False)
    again = Archive.open(made.folder)
    assert again.record().status == "finished"
    again.close()
    made.close()
