import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.tools.archive import (
    Archive,
    CorruptRunError,
    RunBusyError,
    RunRecord,
    UnknownRunError,
    default_home,
    list_runs,
    schema,
)
from kernelwright.tools.types import (
    Analysis,
    Candidate,
    Evaluation,
    Idea,
    LedgerEntry,
    Task,
    Verdict,
)

MakeArchive = Callable[[], Archive]
MakeCandidate = Callable[[str], Candidate]
MakeEvaluation = Callable[..., Evaluation]


def test_a_run_id_reads_as_task_and_day_and_its_folder_reopens(
    new_archive: MakeArchive, task: Task, tmp_path: Path
) -> None:
    archive = new_archive()
    assert re.fullmatch(r"soft-max-\d{4}-[a-z0-9]{4}", archive.id)
    again = Archive.open(archive.id, tmp_path)
    assert again.record().task == task
    assert Archive.open(archive.id[:-2], tmp_path).id == archive.id
    assert Archive.open(archive.folder).id == archive.id


def test_events_keep_their_order_and_a_key_tells_a_thing_once(new_archive: MakeArchive) -> None:
    archive = new_archive()
    archive.append_event("a", 0, "{}", key="start")
    assert archive.append_event("a", 0, "{}", key="start") is None
    archive.append_event("b", 1, '{"x": 1}')
    archive.append_event("b", 1, '{"x": 2}')
    assert [event.payload for event in archive.events()] == ["{}", '{"x": 1}', '{"x": 2}']
    first = archive.events()[0].seq
    assert len(archive.events(after=first)) == 2


def test_the_first_evaluation_of_an_effort_stays(
    new_archive: MakeArchive, evaluation: MakeEvaluation
) -> None:
    archive = new_archive()
    archive.record_evaluation(evaluation("c", 2.0), "screen", 1)
    archive.record_evaluation(evaluation("c", 9.0), "screen", 1)
    archive.record_evaluation(evaluation("c", 3.0), "certify", 1)
    screened = archive.evaluation("c", "screen")
    assert screened is not None
    assert screened.median_ms == 2.0
    trusted = archive.evaluation("c")
    assert trusted is not None
    assert trusted.median_ms == 3.0
    assert archive.evaluation("c", "precise") is None


def test_the_best_is_the_fastest_that_is_correct_by_its_most_trusted_verdict(
    new_archive: MakeArchive, candidate: MakeCandidate, evaluation: MakeEvaluation
) -> None:
    archive = new_archive()
    for name in "abc":
        archive.record_candidates([candidate(name)], 1)
    archive.record_evaluation(evaluation("a", 3.0), "screen", 1)
    archive.record_evaluation(evaluation("b", 1.0), "screen", 1)
    archive.record_evaluation(evaluation("c", None, Verdict.WRONG_RESULT), "screen", 1)
    best = archive.best()
    assert best is not None
    assert best.candidate.id == "b"
    archive.record_evaluation(evaluation("b", None, Verdict.WRONG_RESULT), "certify", 1)
    best = archive.best()
    assert best is not None
    assert best.candidate.id == "a"


def test_thoughts_come_back_as_they_were(new_archive: MakeArchive) -> None:
    archive = new_archive()
    idea = Idea(
        id="i1", title="t", mechanism="m", reason="r", category="memory", metric="ms", round=1
    )
    entry = LedgerEntry(
        idea="i1", category="memory", predicted_ms=1.0, measured_ms=None, best_before_ms=2.0,
        candidates=1, correct=0, round=1,
    )  # fmt: skip
    analysis = Analysis(round=1, claims=(), implies="nothing yet")
    archive.record_ideas([idea, idea])
    archive.record_ledger(entry)
    archive.record_analysis(analysis)
    assert archive.ideas(1) == (idea,)
    assert archive.ideas(2) == ()
    assert archive.ledger() == (entry,)
    assert archive.analyses() == (analysis,)


def test_a_candidate_is_found_by_the_beginning_of_its_id(
    new_archive: MakeArchive, candidate: MakeCandidate
) -> None:
    archive = new_archive()
    archive.record_candidates([candidate("abc123")], 1)
    archive.record_candidates([candidate("abd456")], 1, "tuner")
    assert archive.candidate("abc").id == "abc123"
    with pytest.raises(UnknownRunError, match="several candidates 'ab'"):
        archive.candidate("ab")
    with pytest.raises(UnknownRunError, match="no candidate"):
        archive.candidate("zz")


def test_an_unknown_run_is_one_sentence_that_names_what_is_close(
    new_archive: MakeArchive, tmp_path: Path
) -> None:
    archive = new_archive()
    with pytest.raises(UnknownRunError, match=f"did you mean {archive.id}"):
        Archive.open(archive.id[:-1] + "0", tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100])
def test_a_corrupt_run_is_one_sentence_and_the_list_goes_on(
    content: bytes, new_archive: MakeArchive, tmp_path: Path
) -> None:
    good, bad = new_archive(), new_archive()
    bad.close()
    for leftover in bad.folder.iterdir():
        leftover.unlink()
    (bad.folder / "run.db").write_bytes(content)
    with pytest.raises(CorruptRunError, match="cannot be read"):
        Archive.open(bad.id, tmp_path)
    problems = {info.id: info.problem for info in list_runs(tmp_path)}
    assert problems[good.id] == ""
    assert "cannot be read" in problems[bad.id]


def test_a_run_in_a_list_is_read_once(
    new_archive: MakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {new_archive().id for _ in range(3)}
    read, record = [], Archive.record

    def noted(archive: Archive) -> RunRecord:
        read.append(archive.id)
        return record(archive)

    monkeypatch.setattr(Archive, "record", noted)
    assert {info.id for info in list_runs(tmp_path)} == ids == set(read)
    assert len(read) == len(ids)


def test_a_run_is_searched_by_one_process_at_a_time(
    new_archive: MakeArchive, tmp_path: Path
) -> None:
    archive = new_archive()
    archive.claim()
    with pytest.raises(RunBusyError, match="this process"):
        Archive.open(archive.folder).claim()
    claim = (
        f"from kernelwright.tools.archive import *; Archive.open({str(archive.folder)!r}).claim()"
    )
    other = subprocess.run([sys.executable, "-c", claim], capture_output=True, text=True)
    assert "RunBusyError" in other.stderr
    assert "another process" in other.stderr
    assert [info.live for info in list_runs(tmp_path)] == [True]
    asks = (
        "import sys; from pathlib import Path; from kernelwright.tools.archive import *; "
        f"sys.exit(list_runs(Path({str(tmp_path)!r}))[0].live)"
    )
    assert subprocess.run([sys.executable, "-c", asks]).returncode == 1
    archive.close()
    assert subprocess.run([sys.executable, "-c", asks]).returncode == 0
    (archive.folder / "lock").unlink()
    assert [info.live for info in list_runs(tmp_path)] == [False]
    assert not (archive.folder / "lock").exists(), "a folder that is only read stays as it is"
    Archive.open(archive.folder).claim()


def test_time_spent_adds_up_over_sessions(new_archive: MakeArchive) -> None:
    archive = new_archive()
    archive.claim()
    archive.append_event("a", 0, "{}")
    first = archive.spent_s()
    assert first > 0
    archive.close()
    again = Archive.open(archive.folder)
    kept = again.spent_s()
    again.claim()
    assert again.spent_s() > kept > 0
    again.close()


def test_the_home_is_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    assert default_home() == tmp_path
    monkeypatch.delenv("KERNELWRIGHT_HOME")
    assert default_home().name == "kernelwright"


def test_a_run_that_could_not_be_written_down_leaves_no_folder(
    new_archive: MakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(schema, "make_tables", full)
    with pytest.raises(OSError, match="No space"):
        new_archive()
    assert list_runs(tmp_path) == ()
    assert not list((tmp_path / "runs").iterdir())
