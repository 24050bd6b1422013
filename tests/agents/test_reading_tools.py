"""Tools over what was measured: times, counters, hot lines, two apart, and earlier runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.agents.llm.tools import Tool, ToolError
from kernelwright.agents.toolbox.history import HistoryDesk
from kernelwright.agents.toolbox.readings import ReadingDesk
from kernelwright.agents.toolbox.workbench import Workbench
from kernelwright.profiles.load import Hardware, SearchProfile, all_hardware
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.recorded import RecordedExecutor
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Conditions,
    DType,
    Evaluation,
    Graph,
    Idea,
    InputSpec,
    KernelTime,
    LedgerEntry,
    Measurement,
    Node,
    Profile,
    Ref,
    Task,
    TensorSpec,
    TracePolicy,
    Verdict,
    Verification,
)

KERNEL = """#include "kernelwright.cuh"
extern "C" __global__ void sums(const float* x, float* y, int n) {
    float total = 0.0f;
    for (int i = threadIdx.x; i < n; i += 256) {
        total += kw::exp(x[i]);
    }
    y[threadIdx.x] = total;
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("sums", grid=1, block=256, args=(x, y, x.numel()))
    return y
"""
PROFILE = SearchProfile(
    name="tiny", rounds=1, ideas_per_round=1, candidates_per_idea=1, repairs=0, patience=1,
    seconds=60, tuning_trials=0, finalists=1, stop_at_floor_fraction=0.99, minimum_gain=1.01,
)  # fmt: skip
SPEC = TensorSpec(shape=(1024, 1024), dtype=DType.FLOAT32)


def a_task(*operators: str) -> Task:
    nodes = [Node(name="x", op="input", out=(SPEC,))]
    nodes += [
        Node(name=f"n{number}", op=op, args=(Ref(node=nodes[-1].name),), out=(SPEC,))
        for number, op in enumerate(operators)
    ]
    return Task(
        name="task", path="task.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=SPEC),), outputs=(SPEC,),
        graph=Graph(nodes=tuple(nodes), inputs=("x",), outputs=(nodes[-1].name,)),
        bytes_moved=2 * SPEC.size_bytes, flops=SPEC.numel,
    )  # fmt: skip


def judged(candidate: Candidate, ms: float, registers: int) -> Evaluation:
    conditions = Conditions(device="toy", l2_flushed=False, input_sets=1)
    return Evaluation(
        candidate=candidate.id,
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        reports=(CompileReport(kernel="sums", registers=registers),),
        screen=Measurement(
            median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=conditions
        ),
    )


@pytest.fixture
def device() -> Hardware:
    return next(item for item in all_hardware().values() if item.architecture == "sm_90a")


MakeArchive = Callable[..., Archive]


@pytest.fixture
def make_archive(tmp_path: Path, device: Hardware) -> MakeArchive:
    def make(*operators: str) -> Archive:
        return Archive.create(
            tmp_path, a_task(*operators), policy=TracePolicy(), profile=PROFILE, hardware=device
        )

    return make


def bench_of(archive: Archive, device: Hardware, home: Path) -> Workbench:
    async def measure(candidate: Candidate) -> Profile:
        time = KernelTime(
            kernel="sums", clock="cupti", own=True, time_ms=0.9, share=0.9, launches=2
        )
        profile = Profile(candidate=candidate.id, times=(time,))
        archive.record_measured(profile)
        return profile

    far = RecordedExecutor(archive, archive)
    return Workbench(archive.record().task, device, 0.002, archive, far, measure, home)


@pytest.fixture
def pair(make_archive: MakeArchive) -> tuple[Archive, Candidate, Candidate]:
    archive = make_archive("aten.exp.default")
    fast = new_candidate("cuda", KERNEL, PLAN)
    slow = new_candidate("cuda", KERNEL.replace("+= 256", "+= 128"), PLAN)
    archive.record_candidates((fast, slow), 1)
    archive.record_evaluation(judged(fast, 1.0, 32), "screen", 1)
    archive.record_evaluation(judged(slow, 2.0, 64), "screen", 1)
    return archive, fast, slow


async def ask(tools: tuple[Tool, ...], name: str, **arguments: str) -> str:
    found = next(item for item in tools if item.name == name)
    return await found.run(json.dumps(arguments))


async def test_times_counters_and_hot_lines_of_any_candidate(
    pair: tuple[Archive, Candidate, Candidate], device: Hardware, tmp_path: Path
) -> None:
    archive, fast, slow = pair
    tools = ReadingDesk(bench_of(archive, device, tmp_path)).tools((fast.id, slow.id))
    times = await ask(tools, "kernel_times", candidate="v1")
    assert times == "- sums: 0.9 ms, 90% of the call, 2 launches by the clock of cupti"
    counters = await ask(tools, "counters", candidate=fast.id[:8], names="registers")
    assert "= 32 registers" in counters or "registers = 32" in counters
    with pytest.raises(ToolError, match=r"no reading of .* is called so"):
        await ask(tools, "counters", candidate="v1", names="unheard-of")
    lines = await ask(tools, "hot_lines", candidate="v1")
    assert lines.startswith("Estimated from the machine code")
    assert "total += kw::exp(x[i]);" in lines
    assert [len(item.beforehand) for item in tools] == [1, 0, 1, 1]


async def test_two_candidates_are_told_apart(
    pair: tuple[Archive, Candidate, Candidate], device: Hardware, tmp_path: Path
) -> None:
    archive, fast, slow = pair
    tools = ReadingDesk(bench_of(archive, device, tmp_path)).tools()
    said = await ask(tools, "compare", faster=fast.id, slower=slow.id)
    assert f"{fast.id}: correct, 1 ms" in said
    assert "registers: 32 against 64" in said
    assert "+    for (int i = threadIdx.x; i < n; i += 128) {" in said
    with pytest.raises(ToolError, match="the same candidate"):
        await ask(tools, "compare", faster="v1", slower="v1")


async def test_a_candidate_that_is_not_right_is_not_profiled(
    make_archive: MakeArchive, device: Hardware, tmp_path: Path
) -> None:
    archive = make_archive("aten.exp.default")
    archive.record_candidates((new_candidate("cuda", KERNEL, PLAN),), 1)
    tools = ReadingDesk(bench_of(archive, device, tmp_path)).tools()
    with pytest.raises(ToolError, match="not known to be right"):
        await ask(tools, "kernel_times", candidate="v1")


async def test_what_paid_in_runs_over_like_tasks_is_found(
    make_archive: MakeArchive, device: Hardware, tmp_path: Path
) -> None:
    for operators, title in (
        (("aten.exp.default", "aten.sum.dim_IntList"), "Online maximum"),
        (("aten.convolution.default",), "Implicit product"),
    ):
        earlier = make_archive(*operators)
        idea = Idea(
            id="r1i1", title=title, mechanism="one pass", reason="bytes", category="memory",
            metric="bytes", round=1,
        )  # fmt: skip
        earlier.record_ideas((idea,))
        entry = LedgerEntry(
            idea="r1i1", category="memory", predicted_ms=1.0, measured_ms=1.0,
            best_before_ms=1.5, candidates=1, correct=1, round=1,
        )  # fmt: skip
        earlier.record_ledger(entry)
    archive = make_archive("aten.exp.default", "aten.sum.dim_IntList", "aten.div.Tensor")
    tools = HistoryDesk(bench_of(archive, device, tmp_path)).tools()
    said = await ask(tools, "what_worked")
    assert "Online maximum: 1.50 times as fast" in said
    assert "on this device (67% of the operators alike)" in said
    assert "Implicit product" not in said
    with pytest.raises(ToolError, match="no earlier run"):
        await ask(tools, "what_worked", words="quantum")
    floor = await ask(tools, "floor")
    assert "- input x (1024 x 1024): 4.194 MB" in floor
    assert "it must move 8.389 MB" in floor
