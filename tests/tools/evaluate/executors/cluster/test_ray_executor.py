"""The search's side of a cluster, before simulated devices: what is asked, and how often."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import BatchRequest, Variants
from kernelwright.tools.evaluate.executors.batch.bundle import Probed
from kernelwright.tools.evaluate.executors.cluster.executor import Cluster, RayExecutor
from kernelwright.tools.evaluate.executors.cluster.messages import (
    Answer,
    Greeting,
    Ground,
    Job,
    Up,
)
from kernelwright.tools.evaluate.executors.cluster.scheduler import DeviceLostError, Scheduler
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Conditions,
    Evaluation,
    Graph,
    Measurement,
    Task,
    Verdict,
    Verification,
)

HARDWARE = Hardware(
    name="Toy", kind="cpu", source="test", cores=2, cache_mib=8, memory_gib=8,
    bandwidth_gb_s=20, fp32_tflops=0.1,
)  # fmt: skip
TASK = Task(
    name="toy", path="toy.py", source="", source_sha256="0", entry="Model",
    entry_kind="kernelbench", inputs=(), outputs=(), graph=Graph(nodes=(), inputs=(), outputs=()),
    bytes_moved=8, flops=1,
)  # fmt: skip
CONDITIONS = Conditions(device="toy", l2_flushed=False, input_sets=1)


def measured(ms: float) -> Measurement:
    return Measurement(median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=CONDITIONS)


def candidate(ms: float) -> Candidate:
    """The simulated devices read its time off its kernel."""
    return new_candidate(
        "cpp", f'extern "C" void run() {{}} // {ms}', "def forward(x):\n    return x\n"
    )


@dataclass
class Simulated:
    """Devices that take as long as a candidate says; the first `lost` jobs take them along."""

    lost: int = 0
    asked: list[Job] = field(default_factory=list)
    again: Callable[[str], None] = lambda device: None
    broken: str = ""

    async def run(self, device: str, text: str) -> str:
        job = Job.model_validate_json(text)
        await asyncio.sleep(0)
        if self.lost:
            self.lost -= 1
            asyncio.get_running_loop().call_soon(self.again, device)
            raise DeviceLostError("killed")
        self.asked.append(job)
        answer = Answer(job=job.id, device=device, broken=self.broken)
        if job.candidate is None:
            eager = Baselines(items=(Baseline(name="eager", measurement=measured(2.0)),))
            probed = Probed(hardware=HARDWARE, warnings=("busy",), baselines=eager)
            answer = answer.model_copy(update={"probed": probed})
        elif not self.broken:
            ms = float(job.candidate.kernel.split()[-1])
            found = Verification(verdict=Verdict.CORRECT, reason="")
            judged = Evaluation(candidate=job.candidate.id, verification=found, screen=measured(ms))
            answer = answer.model_copy(update={"evaluation": judged})
        return answer.model_dump_json()

    def end(self, device: str) -> None:
        raise AssertionError("nothing hangs here")


def cluster_of(fleet: Simulated, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two devices, of which no Ray knows."""
    cluster = Cluster(Ground(kinds=("cpu",)), folder)
    cluster.scheduler = Scheduler(fleet)
    greeting = Greeting(hardware=HARDWARE, node="n", unit="u", software="s", pid=1)
    fleet.again = lambda device: cluster.scheduler.up(device, "cpu", greeting)
    for device in ("one", "two"):
        fleet.again(device)

    async def some(kind: str) -> Hardware:
        return HARDWARE

    monkeypatch.setattr(cluster, "some", some)
    return cluster


def efforts(fleet: Simulated) -> list[tuple[str, str]]:
    return [(job.kind, job.candidate.id if job.candidate else "") for job in fleet.asked]


async def test_a_round_is_asked_by_the_rules_of_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Simulated(lost=2)
    executor = RayExecutor(cluster_of(fleet, tmp_path, monkeypatch), "cpu")
    executor.attach("run-1", tmp_path / "run" / "bundles")
    fast, slow, faster, slower = map(candidate, (1.0, 9.0, 0.5, 8.0))
    request = BatchRequest(
        probe=True, screen=(slow, fast), tuned=1, finalists=1, certify=(faster,),
        variants=(
            Variants(of=slow.id, candidates=(slower,)), Variants(of=fast.id, candidates=(faster,)),
        ),
    )  # fmt: skip
    await executor.fetch(TASK, request)
    assert efforts(fleet)[0] == ("probe", "")
    assert sorted(efforts(fleet)[1:]) == sorted(
        [("screen", slow.id), ("screen", fast.id), ("screen", faster.id),
         ("precise", faster.id), ("certify", faster.id)]
    )  # fmt: skip
    assert executor.known(slower.id, "screen") is None
    assert executor.audited(TASK).warnings == ("busy",)
    assert all(job.baselines is not None for job in fleet.asked[1:])
    assert len(executor.results.losses()) == 2
    await executor.aclose()


async def test_a_later_session_asks_for_nothing_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, one = Simulated(), candidate(1.0)
    for rules, times in ((Rules(), 1), (Rules(), 1), (Rules(screen_s=9.0), 2)):
        executor = RayExecutor(cluster_of(fleet, tmp_path, monkeypatch), "cpu", rules=rules)
        executor.attach("run-1", tmp_path / "run" / "bundles")
        found = await asyncio.gather(
            *(executor.fetch(TASK, BatchRequest(screen=(one,))) for _ in range(3))
        )
        assert len(found) == 3
        assert efforts(fleet) == [("screen", one.id)] * times
        known = executor.known(one.id, "screen")
        assert known is not None
        assert known.verdict is Verdict.CORRECT
        await executor.aclose()


async def test_where_every_judge_fails_it_is_a_verdict_or_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, one = Simulated(broken="no memory"), candidate(1.0)
    executor = RayExecutor(cluster_of(fleet, tmp_path, monkeypatch), "cpu")
    await executor.fetch(TASK, BatchRequest(screen=(one,)))
    known = executor.known(one.id, "screen")
    assert known is not None
    assert known.verdict is Verdict.CRASHED
    assert "the judge itself failed: no memory" in known.verification.reason
    await executor.aclose()


async def test_a_device_with_another_judge_is_left_out(tmp_path: Path) -> None:
    cluster = Cluster(Ground(kinds=("cpu",)), tmp_path)
    greeting = Greeting(hardware=HARDWARE, node="n", unit="u", software="older", pid=1)
    cluster._up(Up(device="cpu-0", kind="cpu", greeting=greeting))
    assert not cluster.scheduler.devices
    assert cluster.refusals["cpu-0"].startswith("n has older, but this machine kernelwright")
