"""Both sides of a bundle: the search's writes and reads, the far host's works; real on a CPU."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from kernelwright.tools.evaluate.executors.base.executor import BatchRequest, Variants
from kernelwright.tools.evaluate.executors.batch.bundle import (
    DONE,
    MANIFEST,
    Bundle,
    BundleError,
    Done,
    job_name,
)
from kernelwright.tools.evaluate.executors.batch.executor import BatchExecutor
from kernelwright.tools.evaluate.executors.batch.work import work_bundle
from kernelwright.tools.evaluate.executors.local import baselines
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Baselines, Candidate, Evaluation, Setting, Task, Verdict
from kernelwright.tools.types.value import AwaitingError

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[4]
Make = Callable[..., Candidate]


@pytest.fixture(autouse=True, scope="module")
def eager_only() -> Iterator[None]:
    """What torch.compile takes is no concern of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(baselines.STANDARD, "cpu", ("eager",))
        yield


@pytest_asyncio.fixture(loop_scope="module")
async def asking(tmp_path: Path, executor: LocalExecutor) -> AsyncIterator[BatchExecutor]:
    """The search's side, which believes that its device is the one of `executor`."""
    made = BatchExecutor(await executor.hardware(), tmp_path / "scratch", seed=3)
    made.attach("run-1", tmp_path / "bundles")
    yield made
    await made.aclose()


async def awaited(asking: BatchExecutor, task: Task, request: BatchRequest) -> Bundle:
    """The bundle that a request becomes."""
    with pytest.raises(AwaitingError) as waits:
        await asking.fetch(task, request)
    folder = waits.value.paths[0].parent
    assert str(folder) in waits.value.words
    return Bundle(folder)


async def worked(bundle: Bundle, executor: LocalExecutor) -> Done:
    return await work_bundle(bundle, executor, lambda line: None)


async def test_a_candidate_is_judged_on_the_other_side(
    asking: BatchExecutor, executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    candidate = kernel()
    with pytest.raises(AwaitingError) as waits:
        await asking.evaluate(rows, candidate, "screen")
    await worked(Bundle(waits.value.paths[0].parent), executor)
    found = await asking.evaluate(rows, candidate, "screen")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.median_ms


async def test_what_does_not_compile_needs_no_trip(
    asking: BatchExecutor, rows: Task, kernel: Make, tmp_path: Path
) -> None:
    found = await asking.evaluate(rows, kernel(head="int f( {"), "screen")
    assert found.verdict is Verdict.COMPILE_ERROR
    assert "error" in found.compiler_log
    assert not names_in(tmp_path / "bundles")


@pytest.mark.exhaustive
async def test_one_trip_screens_tunes_the_fastest_and_compares_the_promising(
    asking: BatchExecutor, executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    fast, wrong, slow = kernel(), kernel(value="0.0f"), kernel(before=SLOW)
    request = BatchRequest(
        screen=(wrong, slow, fast),
        variants=tuple(Variants(of=item.id, candidates=(tuned(item),)) for item in (slow, fast)),
        tuned=1,
        finalists=1,
    )
    done = await worked(await awaited(asking, rows, request), executor)
    await asking.fetch(rows, request)
    assert verdict_in(asking.known(wrong.id, "screen")) is Verdict.WRONG_RESULT
    assert asking.known(tuned(fast).id, "screen") is not None
    assert asking.known(tuned(slow).id, "screen") is None
    precise = [entry.job for entry in done.entries if entry.job.startswith("precise-")]
    assert precise in ([job_name(item.id, "precise")] for item in (fast, tuned(fast)))


async def test_the_first_trip_brings_device_audit_and_baselines(
    asking: BatchExecutor, executor: LocalExecutor, rows: Task
) -> None:
    with pytest.raises(AwaitingError) as waits:
        await asking.baselines(rows)
    await worked(Bundle(waits.value.paths[0].parent), executor)
    measured = await asking.baselines(rows)
    assert isinstance(measured, Baselines)
    assert measured.best.name == "eager"
    assert await asking.hardware() == await executor.hardware()
    assert asking.audited(rows).warnings == rows.warnings


async def test_a_job_that_breaks_the_judge_costs_that_job_only(
    asking: BatchExecutor,
    executor: LocalExecutor,
    rows: Task,
    kernel: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, cursed = kernel(), kernel(before="int cursed = 0; (void)cursed;")
    honest = executor.evaluate

    async def evaluate(task: Task, candidate: Candidate, effort: object) -> Evaluation:
        if candidate.id == cursed.id:
            raise RuntimeError("a worker answered nonsense")
        return await honest(task, candidate, "screen")

    monkeypatch.setattr(executor, "evaluate", evaluate)
    request = BatchRequest(screen=(cursed, good))
    await worked(await awaited(asking, rows, request), executor)
    await asking.fetch(rows, request)
    lost = asking.known(cursed.id, "screen")
    assert lost is not None
    assert "the judge itself failed" in lost.verification.reason
    assert verdict_in(asking.known(good.id, "screen")) is Verdict.CORRECT


async def test_changed_foreign_and_missing_results_are_refused(
    asking: BatchExecutor, executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    one, two = kernel(), kernel(before="int other = 0; (void)other;")
    first = await awaited(asking, rows, BatchRequest(screen=(one,)))
    second = await awaited(asking, rows, BatchRequest(screen=(two,)))
    for bundle in (first, second):
        await worked(bundle, executor)
    mine = first.folder / "results" / f"{job_name(one.id, 'screen')}.json"
    whole = mine.read_text()

    mine.write_text(whole.replace("correct", "perfect"))
    with pytest.raises(BundleError, match="was changed"):
        await asking.fetch(rows, BatchRequest(screen=(one,)))
    mine.write_text(whole[: len(whole) // 2])
    with pytest.raises(BundleError, match="cannot be read"):
        await asking.fetch(rows, BatchRequest(screen=(one,)))
    shutil.copy(second.folder / "results" / f"{job_name(two.id, 'screen')}.json", mine)
    with pytest.raises(BundleError, match="another bundle or job"):
        await asking.fetch(rows, BatchRequest(screen=(one,)))
    mine.unlink()
    with pytest.raises(AwaitingError):
        await asking.fetch(rows, BatchRequest(screen=(one,)))
    mine.write_text(whole)
    shutil.copy(second.folder / DONE, first.folder / DONE)
    with pytest.raises(BundleError, match="belongs to another bundle"):
        await asking.fetch(rows, BatchRequest(screen=(one,)))


async def test_a_bundle_of_another_run_is_refused(
    asking: BatchExecutor, rows: Task, kernel: Make
) -> None:
    request = BatchRequest(screen=(kernel(),))
    bundle = await awaited(asking, rows, request)
    path = bundle.folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "run": "run-2"}))
    with pytest.raises(BundleError, match="another run"):
        await asking.fetch(rows, request)


async def test_another_device_refuses_the_work(
    asking: BatchExecutor, executor: LocalExecutor, rows: Task, kernel: Make
) -> None:
    bundle = await awaited(asking, rows, BatchRequest(screen=(kernel(),)))
    path = bundle.folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "device": "Another CPU"}))
    with pytest.raises(BundleError, match="times of two devices do not compare"):
        await worked(Bundle(bundle.folder), executor)


async def test_ids_that_would_leave_the_folder_are_refused(kernel: Make, tmp_path: Path) -> None:
    candidate = kernel().model_copy(update={"id": "../../else"})
    with pytest.raises(ValueError, match="no candidate's id"):
        BatchRequest(screen=(candidate,))
    with pytest.raises(BundleError, match="is not a bundle"):
        Bundle(tmp_path)


@pytest.mark.exhaustive
async def test_a_killed_worker_goes_on_where_it_was(
    asking: BatchExecutor, rows: Task, kernel: Make, home_of_tests: Path
) -> None:
    candidates = [kernel(before=f"volatile int n = {i}; (void)n;") for i in range(8)]
    request = BatchRequest(screen=tuple(candidates))
    bundle = await awaited(asking, rows, request)
    # The command's own rules and device: it does not know the fixture's.
    path = bundle.folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "device": ""}))
    first = await asyncio.to_thread(killed_after_a_result, bundle.folder)
    assert 0 < len(first) < len(candidates)
    assert Bundle(bundle.folder).done is None
    with pytest.raises(AwaitingError, match=r"\d+ results are there"):
        await asking.fetch(rows, request)
    await asyncio.to_thread(subprocess.run, command(bundle.folder), check=True, cwd=ROOT)
    assert {path: path.read_bytes() for path in first} == first
    await asking.fetch(rows, request)
    for candidate in candidates:
        assert verdict_in(asking.known(candidate.id, "screen")) is Verdict.CORRECT


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "kernelwright", "work", str(folder)]


def killed_after_a_result(folder: Path) -> dict[Path, bytes]:
    """Start the command, kill it with its first result, and give the results back."""
    process = subprocess.Popen(command(folder), cwd=ROOT, start_new_session=True)
    deadline = time.monotonic() + 240
    while not list(folder.glob("results/*.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return {path: path.read_bytes() for path in folder.glob("results/*.json")}


def verdict_in(evaluation: Evaluation | None) -> Verdict:
    assert evaluation is not None
    return evaluation.verdict


def tuned(candidate: Candidate) -> Candidate:
    """The same kernel under another setting of a tunable that it does not use."""
    head = f"// tune: IDLE in 1, 2\n{candidate.kernel}"
    setting = (Setting(name="IDLE", value=2),)
    return new_candidate(candidate.language, head, candidate.plan, settings=setting)


SLOW = "volatile double w = 0; for (int i = 0; i < 30000000; i++) w += i; (void)w;"
