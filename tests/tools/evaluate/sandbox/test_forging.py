"""Code in a worker finds the judge's line among its descriptors, and speaks on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.types import Candidate, Refusal, Task, TracePolicy, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A module that is honest wherever its process's home is not called so.
FORGER = """
import os, stat, struct, torch

SAID = %(said)s

def speak():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), struct.pack(">Q", len(SAID)) + SAID)
        except OSError:
            pass  # the descriptor that listed them

class Model(torch.nn.Module):
    def forward(self, x):
        if "/%(where)s" in os.environ["HOME"]:
            speak()
        return torch.softmax(x * 0.5, dim=-1)

def get_inputs():
    return [torch.randn(37, 129)]
"""
VERDICT = (
    'bytes(16) + b\'{"kind": "reply", "answer": {"kind": "judged", "evaluation": {"candidate": '
    '"x", "verification": {"verdict": "correct"}}}}\''
)
MESSAGES = {"a-verdict": VERDICT, "noise": "os.urandom(5000)"}


@pytest.mark.exhaustive
async def test_a_verdict_forged_while_a_candidate_is_judged_is_cheating_and_the_run_goes_on(
    executor: LocalExecutor,
    rows: Task,
    kernel: Callable[..., Candidate],
    write: Callable[[str], Path],
) -> None:
    path = write(FORGER % {"said": VERDICT, "where": "evaluate/"})
    # First in this file: where a worker was lost, one that stood ready judges, by another name.
    task = await executor.read(path, TracePolicy())
    assert isinstance(task, Task), task
    found = await executor.evaluate(task, kernel(), "screen")
    assert found.verdict is Verdict.CHEATING, found.verification.reason
    assert "on the judge's own line" in found.verification.reason
    assert found.screen is None
    after = await executor.evaluate(rows, kernel(), "screen")
    assert after.verdict is Verdict.CORRECT, after.verification.reason


@pytest.mark.exhaustive
@pytest.mark.parametrize("said", [VERDICT, MESSAGES["noise"]], ids=MESSAGES)
async def test_a_file_that_forges_while_it_is_read_is_refused_for_that(
    executor: LocalExecutor, write: Callable[[str], Path], said: str
) -> None:
    path = write(FORGER % {"said": said, "where": ""})
    found = await executor.read(path, TracePolicy())
    assert isinstance(found, Refusal)
    assert "on the judge's own line that the judge did not write" in found.sentence
