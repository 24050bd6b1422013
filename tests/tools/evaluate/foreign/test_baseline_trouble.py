"""A reference that fails while it is timed costs times, and never the candidate its verdict."""

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.foreign.host.judges import ForeignJudge
from kernelwright.tools.evaluate.messages import Foreign, ForeignRequest
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import detect
from kernelwright.tools.types import Task, TracePolicy, Verdict

TASK = """
import os
import sys

import torch
from torch import nn

IN_A_GUEST = "foreign" in sys.argv[0]  # a module that is forked has imported all there is
CALLS = []

class Model(nn.Module):
    def forward(self, x):
        if IN_A_GUEST and not torch.compiler.is_compiling():
            CALLS.append(0)
            if len(CALLS) == TROUBLED:
                TROUBLE
        return torch.softmax(x, 1)

def get_inputs():
    return [torch.randn(64, 2048)]
"""

HONEST = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)
"""


async def judged(tmp_path, trouble: str, call: int, against: tuple[str, ...]):
    """What comes of an honest candidate whose reference is in trouble in that call as a guest."""
    path = tmp_path / "task.py"
    path.write_text(TASK.replace("TROUBLED", str(call)).replace("TROUBLE", trouble))
    executor = LocalExecutor.create("cpu", tmp_path / "scratch", rules=Rules(compile_ahead=False))
    try:
        task = await executor.read(path, TracePolicy())
    finally:
        await executor.aclose()
    assert isinstance(task, Task), task
    foreign_judge = ForeignJudge(tmp_path / "judge", "cpu")
    request = ForeignRequest(
        task=task,
        hardware=detect("cpu"),
        rules=Rules(certify_s=0.2),
        foreign=Foreign(name="it", source=HONEST),
        seed=7,
        compare_to=against,
    )
    try:
        return await foreign_judge.judge(request)
    finally:
        await foreign_judge.aclose()


@pytest.mark.exhaustive
async def test_where_not_even_eager_can_be_called_there_are_no_times(tmp_path):
    found = await judged(tmp_path, 'raise RuntimeError("not today")', 1, ("eager",))
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.comparisons == ()
    assert any("PyTorch could not be timed" in words for words in found.verification.not_verified)
    assert any("not today" in words for words in found.verification.not_verified)


@pytest.mark.exhaustive
async def test_a_baseline_whose_process_ends_costs_its_own_times_alone(tmp_path):
    found = await judged(tmp_path, "os._exit(3)", 6, ("eager", "compile"))
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    told = found.verification.not_verified
    assert any("its time beside eager, which failed: its process" in words for words in told), told
    timed = [item.baseline for item in found.comparisons]
    noisy = any("its time beside compile" in words for words in told)  # a busy machine says so
    assert timed == ["compile"] or noisy, told
