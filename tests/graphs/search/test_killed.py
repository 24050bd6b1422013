"""A search that is killed, again and again, at any moment."""

import multiprocessing
import random
import runpy
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from kernelwright.tools.archive import Archive, run_folders

TOY = Path(__file__).parents[1] / "toy.py"
# Forked from a server that has imported what takes long, so that a process starts in no time.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["kernelwright.graphs.search.run", "optuna.samplers"])


def start(home: Path, log: Path, run: str | None = None) -> BaseProcess:
    arguments = [str(home), str(log), *([run] if run else [])]
    process = CONTEXT.Process(
        target=runpy.run_path, args=(str(TOY), {"ARGUMENTS": arguments}, "__main__")
    )
    process.start()
    return process


def measured(archive: Archive) -> set[tuple[str, str]]:
    return {
        (item.candidate.id, effort)
        for item in archive.standings()
        for effort in ("screen", "precise", "certify")
        if archive.evaluation(item.candidate.id, effort)
    }


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (0, 2, 3))]
)
def test_a_search_killed_at_any_moment_loses_nothing_and_measures_nothing_twice(
    tmp_path: Path, seed: int
) -> None:
    dice, log = random.Random(seed), tmp_path / "log"
    process = start(tmp_path, log)
    known: set[tuple[str, str]] = set()
    archive: Archive | None = None
    for _ in range(4):
        while not log.exists() and process.exitcode is None:
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.25))
        process.kill()
        process.join()
        archive = Archive.open(run_folders(tmp_path)[0])
        lines = log.read_text().splitlines() if log.exists() else []
        assert not known & {tuple(line.split()) for line in lines}
        log.unlink(missing_ok=True)
        assert known <= measured(archive)
        known = measured(archive)
        process = start(tmp_path, log, archive.id)
    assert archive is not None
    process.join(240)
    assert process.exitcode == 0
    lines = log.read_text().splitlines() if log.exists() else []
    assert not known & {tuple(line.split()) for line in lines}
    record = archive.record()
    assert record.status == "finished"
    assert record.summary is not None
    assert record.summary.status == "improved"
    keys = Counter(event.key for event in archive.events() if event.key)
    assert set(keys.values()) == {1}
    ledger = {entry.idea for entry in archive.ledger()}
    assert ledger == {idea.id for idea in archive.ideas()}
