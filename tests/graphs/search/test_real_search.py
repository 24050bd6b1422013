"""A search with nothing faked, on the CPU and over a tiny module."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import DatabaseError

from kernelwright.tools.archive import Archive, run_folders

MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=-1)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []
"""
SCRIPT = """
import asyncio, sys
from pathlib import Path
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import TracePolicy

home, run = Path(sys.argv[1]), sys.argv[2:]
profile = SearchProfile(
    name="tiny", rounds=1, ideas_per_round=2, candidates_per_idea=1, repairs=1, patience=1,
    seconds=600, tuning_trials=1, finalists=1, stop_at_floor_fraction=1.0, minimum_gain=1.0,
)
rules = Rules(precise_s=0.1, certify_s=0.2, mode_s=0.1, latency_s=0.1, settle_max_s=0.2)

async def search():
    judge = LocalExecutor.create("cpu", home / f"scratch-{len(run)}", rules=rules)
    try:
        if run:
            await resume_search(run[0], home=home, executor=judge)
        else:
            file = home / "tiny.py"
            await start_search(file, TracePolicy(), "cpu", profile, home=home, executor=judge)
    finally:
        await judge.aclose()

asyncio.run(search())
"""
ROOT = Path(__file__).parents[3]


def wait_for(home: Path, kind: str, process: subprocess.Popen[bytes]) -> None:
    """Until the run has told an event of that kind, or the process ended."""
    while process.poll() is None:
        for folder in run_folders(home):
            archive = Archive(folder)
            try:
                if any(event.kind == kind for event in archive.events()):
                    return
            except DatabaseError:  # the tables are being made
                continue
            finally:
                archive.close()
        time.sleep(0.1)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
def test_a_real_search_that_is_killed_still_ends_with_a_certified_kernel(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(MODULE)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT)
    wait_for(tmp_path, "candidate_judged", process)
    process.kill()
    process.wait()
    archive = Archive.open(run_folders(tmp_path)[0])
    command.append(archive.id)
    assert subprocess.run(command, cwd=ROOT, timeout=600).returncode == 0
    summary = archive.record().summary
    assert summary is not None
    assert summary.best is not None
    assert summary.best.verdict == "correct"
    assert summary.baselines["eager"].median_ms
    assert archive.evaluation(summary.best.candidate, "precise") is not None
    kinds = [event.kind for event in archive.events()]
    assert kinds.count("run_started") == 2
    assert kinds.count("baselines_measured") == 2
    assert kinds.count("run_finished") == 1
    judged = [event.key for event in archive.events() if event.kind == "candidate_judged"]
    assert len(judged) == len(set(judged))
