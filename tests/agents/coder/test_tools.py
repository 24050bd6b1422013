"""A coder's tools on drafts: compiled by NVRTC for Hopper, and judged where there is a judge."""

import json
from pathlib import Path

import pytest

from kernelwright.agents.coder.coder import CoderRequest
from kernelwright.agents.coder.tools import DraftDesk
from kernelwright.agents.llm.tools import Tool, ToolError
from kernelwright.agents.toolbox.workbench import Workbench
from kernelwright.profiles.load import Hardware, SearchProfile, all_hardware
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.recorded import RecordedExecutor
from kernelwright.tools.types import Candidate, Profile, Task, TracePolicy

KERNEL = """#include "kernelwright.cuh"
// tune: THREADS in 256, 128
extern "C" __global__ void __launch_bounds__(THREADS) sums(const float* x, float* y, int n) {
    kw::Sum<float> total;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float v[1] = {kw::exp(x[i])};
        total.template add<1>(v);
    }
    total = kw::block_reduce<THREADS>(total);
    if (threadIdx.x == 0) y[0] = total.value();
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("sums", grid=1, block=THREADS, args=(x, y, x.numel()))
    return y
"""
PROFILE = SearchProfile(
    name="tiny", rounds=1, ideas_per_round=1, candidates_per_idea=1, repairs=0, patience=1,
    seconds=60, tuning_trials=0, finalists=1, stop_at_floor_fraction=0.99, minimum_gain=1.01,
)  # fmt: skip


async def nothing_measured(candidate: Candidate) -> Profile:
    return Profile(candidate=candidate.id)


@pytest.fixture
def h100() -> Hardware:
    return next(item for item in all_hardware().values() if item.architecture == "sm_90a")


@pytest.fixture
def tools(
    task: Task, h100: Hardware, coder_request: CoderRequest, tmp_path: Path
) -> dict[str, Tool]:
    archive = Archive.create(tmp_path, task, policy=TracePolicy(), profile=PROFILE, hardware=h100)
    far = RecordedExecutor(archive, archive, remote=True)
    bench = Workbench(task, h100, 0.1, archive, far, nothing_measured, tmp_path)
    desk = DraftDesk(bench, coder_request, "cuda")
    return {item.name: item for item in desk.tools()}


async def ask(found: Tool, **arguments: str) -> str:
    given = json.dumps(arguments)
    found.heed(given)
    return await found.run(given)


async def test_a_draft_is_compiled_and_its_machine_code_read(tools: dict[str, Tool]) -> None:
    assert sorted(tools) == ["compile", "machine_code"]  # nothing is run where no device is at hand
    said = await ask(tools["compile"], kernel=KERNEL, plan=PLAN)
    assert "`draft-1` compiles" in said
    assert "registers a thread" in said
    code = await ask(tools["machine_code"])
    assert "sums.special_functions" in code
    assert "in its deepest loop" in code
    assert "MUFU.EX2" in code
    assert "// line 5" in code or "// line 6" in code


async def test_what_is_wrong_with_a_draft_is_said_in_words(tools: dict[str, Tool]) -> None:
    compile = tools["compile"]
    for given, words in (
        ({}, "there is no draft yet"),
        ({"kernel": KERNEL}, "there is no plan"),
        ({"kernel": "int x;", "plan": PLAN}, "breaks the contract"),
        ({"kernel": KERNEL, "plan": "import os"}, "breaks the contract"),
        ({"kernel": KERNEL, "plan": PLAN.replace("(x)", "(x, z)")}, "the task has 1 inputs"),
    ):
        with pytest.raises(ToolError, match=words):
            await ask(compile, **given)
    said = await ask(compile, kernel=KERNEL.replace("kw::exp", "kw::expo"), plan=PLAN)
    assert "does not compile" in said
    assert "expo" in said
    assert ">    6" in said
    with pytest.raises(ToolError, match="no candidate 'v9'"):
        await ask(tools["machine_code"], candidate="v9")


async def test_an_answer_may_be_an_edit_of_a_draft(
    task: Task, h100: Hardware, coder_request: CoderRequest, tmp_path: Path
) -> None:
    archive = Archive.create(tmp_path, task, policy=TracePolicy(), profile=PROFILE, hardware=h100)
    far = RecordedExecutor(archive, archive, remote=True)
    bench = Workbench(task, h100, 0.1, archive, far, nothing_measured, tmp_path)
    desk = DraftDesk(bench, coder_request, "cuda")
    desk.tools()[0].heed(json.dumps({"kernel": KERNEL, "plan": PLAN}))
    found = desk.source("draft-1")
    assert found is not None
    assert (found.kernel, found.plan) == (KERNEL, PLAN)
    assert desk.source("draft-2") is None
    assert desk.source("0123456789ab") is None
