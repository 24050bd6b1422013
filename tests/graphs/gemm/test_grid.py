"""A grid measured by a formula: what is tried, what is kept, what is done again and by whom."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.tools.gemm.choice import is_ours
from kernelwright.tools.gemm.record import GemmRecord, RecordsError, append, mend, read
from kernelwright.tools.types import Candidate, Effort, Verdict


async def test_the_fastest_of_what_was_tried_is_certified(formula: SimpleNamespace) -> None:
    judge = formula.judge()
    (record,) = await formula.measure(judge, "512x512x512")
    assert record.ended == "measured"
    assert len(record.tried) == 5
    fastest = min(record.tried, key=lambda one: one.ms)
    assert (record.best.strategy, record.best.settings) == (fastest.strategy, fastest.settings)
    assert [effort for _, effort in judge.asked] == ["screen"] * 5 + ["certify"]
    assert is_ours(record)


async def test_one_that_certifying_refuses_makes_room_for_the_next(
    formula: SimpleNamespace,
) -> None:
    refused: list[str] = []

    def wrong(candidate: Candidate, effort: Effort) -> Verdict | None:
        if effort != "certify" or refused not in ([], [candidate.id]):
            return None
        refused[:] = [candidate.id]
        return Verdict.NONDETERMINISTIC

    (record,) = await formula.measure(formula.judge(wrong=wrong), "512x512x512")
    assert record.is_right
    assert record.best.candidate.id not in refused


async def test_where_nothing_is_right_the_library_keeps_the_shape(formula: SimpleNamespace) -> None:
    judge = formula.judge(wrong=lambda candidate, effort: Verdict.WRONG_RESULT)
    (record,) = await formula.measure(judge, "512x512x512")
    assert record.ended == "none_correct"
    assert "wrong_result: the formula says so" in record.words
    assert not is_ours(record)


async def test_what_breaks_costs_its_shape_alone(formula: SimpleNamespace) -> None:
    judge = formula.judge(breaks_at="mm_128x64x64_nt_fp16")
    found = await formula.measure(judge, "64,128,256x64x64")
    assert [record.ended for record in found] == ["measured", "failed", "measured"]
    assert found[1].words == "RuntimeError: the formula broke"


async def test_no_shape_is_begun_that_would_not_end_in_time(formula: SimpleNamespace) -> None:
    assert await formula.measure(formula.judge(), "64x64x64", seconds=30.0) == []


async def test_processes_share_shapes_by_marks(formula: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "64x64x64_nt").touch()  # another process has begun it
    found = await formula.measure(formula.judge(), "64,128x64x64", marks=tmp_path)
    assert [record.shape.m for record in found] == [128]
    assert await formula.measure(formula.judge(), "64,128x64x64", marks=tmp_path) == []


async def test_what_won_a_near_shape_is_tried_first(
    formula: SimpleNamespace, records: tuple[GemmRecord, ...]
) -> None:
    (record,) = await formula.measure(formula.judge(), "128x2048x256", known=records)
    near = next(one for one in records if one.shape.name == "64x2048x256_nt")
    assert (record.tried[0].strategy, record.tried[0].settings) == (
        near.best.strategy, near.best.settings,
    )  # fmt: skip


def test_a_record_does_not_tell_where_it_was_made(
    records: tuple[GemmRecord, ...], tmp_path: Path
) -> None:
    task = records[0].task
    assert task is not None
    elsewhere = task.model_copy(update={"path": f"/somewhere/{task.name}.py"})
    record = GemmRecord(
        shape=records[0].shape, terms=records[0].terms, ended="none_correct", task=elsewhere
    )
    append(tmp_path / "grid.jsonl", record)
    assert "somewhere" not in (tmp_path / "grid.jsonl").read_text(encoding="utf-8")


def test_records_are_read_as_they_were_written_and_a_torn_line_is_left_out(
    records: tuple[GemmRecord, ...], tmp_path: Path
) -> None:
    path = tmp_path / "grid.jsonl"
    for record in (*records[:2], records[0]):
        append(path, record)
    assert read(path) == (records[1], records[0])  # the last line of a shape counts
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"shape": {"m": 64')
    assert read(path) == (records[1], records[0])
    mend(path)
    assert path.read_bytes() == whole
    path.write_bytes(b"no record\n" + whole)
    with pytest.raises(RecordsError, match=r"grid\.jsonl:1 is no record of a product"):
        read(path)
