"""What torch.compile makes is made once, where no candidate can write, and found by the others."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.evaluate.executors.local.baselines import KnownBaselines
from kernelwright.tools.evaluate.executors.local.builder import Builder, Making, _digest
from kernelwright.tools.evaluate.executors.local.certification import Certification
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.executors.local.workshop import Workshop
from kernelwright.tools.evaluate.messages import (
    BaselineMeasured,
    BaselineRequest,
    CeilingsRequest,
    RehearseRequest,
    Reply,
)
from kernelwright.tools.evaluate.rules import Depth, Rules
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.keeper import Keeper, Spares
from kernelwright.tools.evaluate.sandbox.walls import wall
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Conditions,
    Evaluation,
    Measurement,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
    Verification,
    WallKind,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(
    tmp_path_factory: pytest.TempPathFactory, cpu: Hardware, short_rules: Rules
) -> AsyncIterator[LocalExecutor]:
    """One that compiles as soon as it has read, as those of searches do."""
    rules = short_rules.model_copy(update={"compile_ahead": True})
    made = LocalExecutor(cpu, tmp_path_factory.mktemp("scratch"), seed=7, rules=rules)
    yield made
    await made.aclose()


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

SHIFTED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.ones(32))

    def forward(self, x):
        return torch.tanh(x + self.shift) * 3

def get_inputs():
    return [torch.randn(16, 32)]
"""


def graphs(folder: Path) -> set[tuple[str, int]]:
    """The compiled graphs in a cache of Inductor's, with when they were written."""
    found = (path for path in folder.glob("fxgraph/*/*/*") if path.is_file())
    return {(path.name, path.stat().st_mtime_ns) for path in found}


def timed(median_ms: float) -> Measurement:
    return Measurement(
        median_ms=median_ms, p10_ms=median_ms, p90_ms=median_ms, samples_ms=(median_ms,),
        conditions=Conditions(device="gpu", l2_flushed=True, input_sets=1),
    )  # fmt: skip


def folders(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()]


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
async def test_the_prepared_worker_is_the_next_one(short_rules: Rules, tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, short_rules)
    try:
        keeper.prepare()
        await asyncio.sleep(0)
        await keeper.ask(RehearseRequest(), 60.0)
        assert folders(tmp_path / "evaluate") == ["0"]
    finally:
        await keeper.aclose()


@pytest.mark.exhaustive
async def test_workers_that_stand_by_can_read_what_was_built_and_are_taken_first(
    short_rules: Rules, tmp_path: Path
) -> None:
    lease, built = asyncio.Lock(), tmp_path / "built"
    spares = Spares(tmp_path / "spares", short_rules, lease, wanted=0, readable=(built,))
    keeper = Keeper(tmp_path, short_rules, lease=lease, spares=spares)
    try:
        assert spares.take() is None
        spares.stand_by(2)
        async with asyncio.timeout(240):
            while spares.ready < 2:  # noqa: ASYNC110 - processes come up
                await asyncio.sleep(0.1)
        reply = await keeper.ask(RehearseRequest(compiler=True), 60.0, (built,))
        assert not isinstance(reply, Ended)
        assert keeper.scratch in {tmp_path / "spares" / f"spare-{n}" for n in (0, 1)}
        assert spares.ready == 1
        assert not (tmp_path / "evaluate").exists()
    finally:
        await spares.aclose()
        await keeper.aclose()
    assert spares.ready == 0


@pytest.mark.parametrize(
    ("evidence", "eager_ms", "left_out"),
    [
        ("full", 3.0, ()),
        ("timing", 3.0, ("graph", "compile-graph", "max-autotune")),
        ("timing", 0.2, ("max-autotune",)),
        ("autotune", 3.0, ("graph", "compile-graph")),
    ],
)
async def test_baselines_that_nobody_compares_with_are_named(
    evidence: Depth, eager_ms: float, left_out: tuple[str, ...], rows: Task, tmp_path: Path
) -> None:
    rules, device = Rules.of(evidence), hardware_profile("h200")
    shop = Workshop(device, tmp_path, seed=0, rules=rules, lease=None, spares=None)
    known = KnownBaselines(shop, Builder(shop))
    eager = Baseline(name="eager", measurement=timed(eager_ms))
    known.remember(rows, Baselines(items=(eager,)))
    assert known.left_out(rows) == left_out
    assert ("max-autotune" in known.to_compare(rows, "certify")) == (
        evidence in ("full", "autotune")
    )
    without = Baseline(name="max-autotune", failure="left out")
    known.remember(rows, Baselines(items=(eager, without)))
    assert known.to_compare(rows, "certify") == ("eager",)


async def test_waiting_for_a_compiler_is_a_cost_of_that_baseline_alone(
    rows: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search's own seconds are counted without it."""
    device = hardware_profile("h200").model_copy(update={"measured": True})
    shop = Workshop(device, tmp_path, seed=0, rules=Rules(), lease=None, spares=None)
    builder = Builder(shop)
    known = KnownBaselines(shop, builder)

    async def measure(task: Task, name: str) -> Baseline:
        return Baseline(name=name, measurement=timed(3.0), setup_s=1.0)

    monkeypatch.setattr(known, "_measure", measure)
    monkeypatch.setattr(builder, "settled", lambda task: asyncio.sleep(0, 0.5))
    found = await known.measured(rows, eager_only=False)
    assert isinstance(found, Baselines)
    assert [(item.name, item.setup_s) for item in found.items[:2]] == [
        ("eager", 1.0),
        ("compile", 1.5),
    ]


async def test_settling_waits_for_what_was_begun_and_says_how_long(
    rows: Task, tmp_path: Path
) -> None:
    shop = Workshop(
        hardware_profile("h200"), tmp_path, seed=0, rules=Rules(), lease=None, spares=None
    )
    builder, rest_s = Builder(shop), 0.05
    begun = builder._begun[_digest(rows)] = asyncio.create_task(asyncio.sleep(rest_s))
    assert await builder.settled(rows) >= 0.9 * rest_s
    assert begun.done()


@pytest.mark.exhaustive
async def test_where_work_is_ahead_a_baseline_is_compiled_beside_and_then_only_looked_up(
    executor: LocalExecutor, write: Callable[[str], Path]
) -> None:
    def own() -> set[tuple[str, int]]:
        return set().union(*map(graphs, executor.scratch.glob("evaluate/*/inductor")))

    before, found_before = set(executor.scratch.glob("built/*")), own()
    executor.stand_by(0)
    task = await executor.read(write(SHIFTED), TracePolicy())
    assert isinstance(task, Task), task
    assert isinstance(await executor.audit(task), Task)
    found = await executor.baselines(task)
    assert isinstance(found, Baselines)
    compiled = found.named("compile")
    assert compiled is not None
    assert compiled.measurement is not None, compiled.failure
    spent = {phase.name: phase.times for phase in executor.spent(task.path)}
    assert "beside: build compile" in spent
    # Nothing was left to compile, so it is not built once more for the workers, but looked up.
    assert spent["baselines: build compile"] == 1
    assert spent.get("worker: end", 0) + spent.get("beside: worker end", 0) == 1
    (built,) = set(executor.scratch.glob("built/*")) - before
    assert len(graphs(built / "compile" / "inductor")) == 1, "it was compiled once"
    assert own() - found_before == graphs(built / "compile" / "inductor")


@pytest.mark.exhaustive
async def test_what_was_compiled_in_part_is_built_as_a_whole_where_no_candidate_ran(
    executor: LocalExecutor, write: Callable[[str], Path]
) -> None:
    before = set(executor.scratch.glob("built/*"))
    executor.stand_by(0)
    broken = SHIFTED.replace("return torch.tanh(", "torch._dynamo.graph_break()\n        return (")
    task = await executor.read(write(broken), TracePolicy())
    assert isinstance(task, Task), task
    await executor.baselines(task)
    spent = {phase.name: phase.times for phase in executor.spent(task.path)}
    assert "beside: build compile" in spent
    assert spent["baselines: build compile"] == 2  # in the process that read the file, then here
    (built,) = set(executor.scratch.glob("built/*")) - before
    assert graphs(built / "compile" / "inductor")


@pytest.mark.exhaustive
async def test_what_was_built_elsewhere_and_ends_a_process_is_compiled_again_without_it(
    rows: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = hardware_profile("h200")
    shop = Workshop(device, tmp_path, seed=0, rules=Rules(), lease=None, spares=None)
    builder = Builder(shop)
    asked: list[tuple[str, bool]] = []
    dying = 'Current thread 0x1 (most recent call first):\n  File "/a/b/launch.py", line 7 in run\n'

    async def built(task: Task, name: str, readable: tuple[Path, ...]) -> Making:
        (builder.place(task) / name).mkdir(parents=True)
        return Making(seconds=1.0)

    async def answered(
        task: Task, request: BaselineRequest, limit_s: float, readable: tuple[Path, ...]
    ) -> Reply | Ended:
        asked.append((request.name, bool(request.compiled)))
        if request.compiled or "graph" in request.name:
            return Ended(how="exited", status=-signal.SIGSEGV, stage=None, output=dying)
        made = Measurement(
            median_ms=1.0, p10_ms=1.0, p90_ms=1.0, samples_ms=(1.0,),
            conditions=Conditions(device="gpu", l2_flushed=True, input_sets=1),
        )  # fmt: skip
        return Reply(
            answer=BaselineMeasured(baseline=Baseline(name=request.name, measurement=made))
        )

    async def known() -> Hardware:
        return device

    monkeypatch.setattr(shop, "hardware", known)
    monkeypatch.setattr(builder, "build", built)
    monkeypatch.setattr(shop, "ask", answered)
    found = await KnownBaselines(shop, builder).measured(rows, eager_only=False)
    assert isinstance(found, Baselines)
    compiled, graph = found.named("compile"), found.named("graph")
    assert compiled is not None and compiled.measurement is not None  # noqa: PT018
    # Short calls have torch.compile as graphs beside them; these take a millisecond.
    names = [("eager", False), ("compile", True), ("compile", False), ("graph", False)]
    assert asked == [*names, ("compile-graph", False)]
    assert compiled.measurement.conditions.notes == (
        "compiled again: with what another process had compiled it ended with a segmentation fault "
        "(b/launch.py:7 in run)",
    )
    assert builder.lying(rows) == ()
    assert graph is not None
    assert graph.failure == "graph ended with a segmentation fault (b/launch.py:7 in run)"


async def test_a_device_whose_ceilings_cannot_be_measured_is_asked_once_whoever_holds_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop(
        hardware_profile("h200"), tmp_path, seed=0, rules=Rules(), lease=None, spares=None
    )
    asked: list[float] = []

    async def lost(request: CeilingsRequest, limit_s: float) -> Ended:
        asked.append(limit_s)
        return Ended(how="exited", status=1, stage=None)

    monkeypatch.setattr(shop.keeper, "ask", lost)
    assert not (await shop.hardware()).measured
    async with asyncio.timeout(10), shop.lease:
        assert not (await shop.hardware()).measured
    assert len(asked) == 1


async def test_a_baseline_that_could_not_be_made_is_among_what_was_not_verified(
    rows: Task, tmp_path: Path
) -> None:
    """A finalist is ahead of what was timed, and of nothing else."""
    device = hardware_profile("h200")
    shop = Workshop(device, tmp_path, seed=0, rules=Rules(), lease=None, spares=None)
    known = KnownBaselines(shop, Builder(shop))
    assert known.failures(rows) == ()
    eager = Baseline(name="eager", measurement=timed(1.0))
    broken = Baseline(name="compile", failure="PermissionError: '/opt/gcc/bin/gcc'")
    known.remember(rows, Baselines(items=(eager, broken)))
    words = "faster than compile, which could not be made here: PermissionError: '/opt/gcc/bin/gcc'"
    assert known.failures(rows) == (words,)
    right = Evaluation(
        candidate="c1", verification=Verification(verdict=Verdict.CORRECT, reason="")
    )
    certification = Certification(shop, known, Builder(shop))
    told = certification._without_failures(rows, right).verification.not_verified
    assert told == (words,)
    late = certification._without_failures(rows, right, ("eager", "max-autotune")).verification
    assert late.not_verified[1:] == ("faster than max-autotune, which was not made in time",)
    wrong = Verification(verdict=Verdict.WRONG_RESULT, reason="2 for 1")
    found = certification._without_failures(rows, Evaluation(candidate="c1", verification=wrong))
    assert found.verification.not_verified == ()
