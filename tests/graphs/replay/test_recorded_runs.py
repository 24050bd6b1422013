"""Searches recorded on an H200 decide the same again, but where the playbook has grown."""

import zipfile
from pathlib import Path

import pytest

from kernelwright.graphs.replay import replay

RUNS = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "model_runs"


def unpacked(name: str, folder: Path) -> Path:
    """The run's folder."""
    with zipfile.ZipFile(RUNS / f"{name}.zip") as packed:
        packed.extractall(folder)
    (database,) = folder.rglob("run.db")
    return database.parent


@pytest.mark.parametrize(
    ("name", "decisions"),
    [
        pytest.param("conv-relu-pool-1121-86w9", 69, marks=pytest.mark.exhaustive),
        pytest.param("matmul-1121-7p9z", 122, marks=pytest.mark.exhaustive),
        pytest.param("max-pool-1121-nfdr", 106, marks=pytest.mark.exhaustive),
        ("softmax-1121-j8j6", 135),
    ],
)
async def test_a_recorded_search_decides_the_same_again(
    name: str, decisions: int, tmp_path: Path
) -> None:
    told = await replay(unpacked(name, tmp_path))
    assert told.difference is None
    assert told.ended == ""
    assert told.same == decisions


async def test_a_playbook_that_has_another_first_idea_is_told_from_the_recorded_one(
    tmp_path: Path,
) -> None:
    # Since this run rows are written by small tiles, which the playbook proposes first.
    told = await replay(unpacked("layer-norm-1121-9qjv", tmp_path))
    assert told.difference is not None
    assert told.same < 117
