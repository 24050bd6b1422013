"""A recording is whole as far as it came, whoever cut it off."""

import gzip
from pathlib import Path

import pytest

from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, Option, Pick
from kernelwright.tools.evaluate.surfaces import (
    Point,
    Space,
    Way,
    append,
    load_surfaces,
    points_files,
    record,
)
from kernelwright.tools.types import Verdict

STRATEGY = Strategy(
    name="rows",
    title="a block a row",
    category="parallelism",
    mechanism="a block sums a row",
    reason="rows are long",
    metric="time",
    memory="streamed",
    compute="scalar",
    parallel="rows",
)
DRAFT = LibraryDraft(kernel="k", plan="p", strategies=("L0=rows",))
WAY = Way(picks=(Pick(loop="L0", strategy="rows"),), draft=DRAFT, tunables=("T",), valid=4, drawn=3)
SPACE = Space(
    name="sum",
    module="",
    hardware="h200",
    language="cuda",
    fixed_ms=0.0,
    floor_ms=0.1,
    options=(Option(loop="L0", family="reduction", strategy=STRATEGY, predicted_ms=0.2),),
    ways=(WAY,),
)


def recorded(folder: Path) -> None:
    append(folder, SPACE)
    append(folder, Point(loop="sum", way=-1, median_ms=2.0))
    append(folder, Point(loop="sum", way=0, values=(1,), median_ms=0.5))
    wrong = Point(loop="sum", way=0, values=(2,), verdict=Verdict.WRONG_RESULT, reason="9 times")
    append(folder, wrong)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    recorded(tmp_path)
    (surface,) = load_surfaces(tmp_path)
    assert surface.space == SPACE
    assert (surface.best_ms, surface.eager_ms) == (0.5, 2.0)
    assert [point.verdict for point in surface.points] == [Verdict.CORRECT, Verdict.WRONG_RESULT]


def test_a_line_that_was_cut_off_is_left_out_and_the_next_one_is_not(tmp_path: Path) -> None:
    recorded(tmp_path)
    with points_files(tmp_path)[0].open("a") as file:
        file.write('{"loop":"sum","way":0,"val')
    assert len(load_surfaces(tmp_path)[0].points) == 2
    append(tmp_path, Point(loop="sum", way=0, values=(3,), median_ms=0.4))
    assert load_surfaces(tmp_path)[0].best_ms == 0.4


def test_a_full_file_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "FILE_BYTES", 10)
    recorded(tmp_path)
    assert [path.name for path in points_files(tmp_path)] == [f"points-{n}.jsonl" for n in range(3)]
    assert len(load_surfaces(tmp_path)[0].points) == 2


def test_packed_files_are_read_and_never_added_to(tmp_path: Path) -> None:
    recorded(tmp_path)
    for path in list(tmp_path.glob("*.jsonl")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(load_surfaces(tmp_path)[0].points) == 2
    append(tmp_path, Point(loop="sum", way=0, values=(3,), median_ms=0.4))
    assert [path.name for path in points_files(tmp_path)] == ["points-0.jsonl.gz", "points-1.jsonl"]
    assert load_surfaces(tmp_path)[0].best_ms == 0.4


def test_a_folder_without_a_recording_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no recorded surfaces"):
        load_surfaces(tmp_path)
