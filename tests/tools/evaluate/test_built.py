"""What torch.compile makes is made once, where no candidate can write, and found by the others."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.evaluate.local import LocalExecutor
from tools.evaluate.messages import RehearseRequest
from tools.evaluate.process.keeper import Keeper
from tools.evaluate.process.walls import wall
from tools.evaluate.rules import Rules
from tools.nouns import Baselines, Candidate, Refusal, Task, TracePolicy, Verdict, WallKind

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Whoever finds what an earlier process left in its folder, or can write where baselines lie, is
# no task.
NOSY = """
import os
from pathlib import Path
import torch

MARK = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "mark"
BUILT = Path(os.environ["HOME"]).parents[2] / "built"
if MARK.exists():
    raise RuntimeError("the folder is another's")
MARK.touch()
(BUILT / "mark").touch()

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(8, 8)]
"""


def graphs(folder: Path) -> set[tuple[str, int]]:
    """The compiled graphs in a cache of Inductor's, with when they were written."""
    found = (path for path in folder.glob("fxgraph/*/*/*") if path.is_file())
    return {(path.name, path.stat().st_mtime_ns) for path in found}


def folders(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()]


async def test_a_finalists_process_finds_what_was_compiled_before_any_candidate_ran(
    executor: LocalExecutor, rows: Task, kernel: Callable[..., Candidate]
) -> None:
    scratch = executor.scratch
    await executor.evaluate(rows, kernel(), "screen")  # the judge's worker is no clean place now
    found = await executor.baselines(rows)
    assert isinstance(found, Baselines)
    compiled = found.named("compile")
    assert compiled is not None
    assert compiled.measurement is not None, compiled.failure
    (built,) = scratch.glob("built/*/compile/inductor")
    assert graphs(built)
    judged = await executor.evaluate(rows, kernel(), "certify")
    assert judged.verdict is Verdict.CORRECT, judged.verification.reason
    assert {item.baseline for item in judged.comparisons} == {"eager", "compile"}
    (own,) = scratch.glob("evaluate/*/inductor")  # the earlier worker's went with it
    assert graphs(own) == graphs(built)
    spent = {phase.name: phase for phase in executor.spent(rows.path)}
    assert spent["baselines: build compile"].times == 2  # built, and taken over
    assert {"certify: against compile", "worker: start", "screen: verify task"} <= set(spent)
    await executor.read(Path(rows.path), TracePolicy())
    assert [phase.name for phase in executor.spent(rows.path)] == ["read: worker and file"]


async def test_a_process_has_a_folder_of_its_own_and_cannot_write_where_baselines_lie(
    executor: LocalExecutor, write: Callable[[str], Path]
) -> None:
    if wall().kind is not WallKind.BUBBLEWRAP:
        pytest.skip("without bubblewrap files can be written")
    first = await executor.read(write(NOSY), TracePolicy())
    assert isinstance(first, Refusal)
    assert "Read-only file system" in f"{first.sentence} {first.detail}"
    harmless = NOSY.replace('(BUILT / "mark").touch()', "")
    for _ in range(2):
        again = await executor.read(write(harmless), TracePolicy())
        assert isinstance(again, Task), again


async def test_the_prepared_worker_is_the_next_one(short_rules: Rules, tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, short_rules)
    try:
        keeper.prepare()
        await asyncio.sleep(0)
        await keeper.ask(RehearseRequest(), 60.0)
        assert folders(tmp_path / "evaluate") == ["0"]
    finally:
        await keeper.aclose()
