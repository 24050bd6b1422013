"""How a worker ended becomes a verdict, blamed on whoever ran."""

import signal
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.messages import JudgeRequest, Stage
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.worker import evaluation_of, verdict_of
from kernelwright.tools.languages import Built, new_candidate
from kernelwright.tools.types import Task, Verdict


@pytest.mark.parametrize(
    ("how", "status", "verdict"),
    [
        ("timed_out", None, Verdict.TIMED_OUT),
        ("out_of_memory", -9, Verdict.OUT_OF_MEMORY),
        ("exited", -9, Verdict.OUT_OF_MEMORY),
        ("forged", -9, Verdict.CHEATING),
        ("too_many_processes", -9, Verdict.CRASHED),
        ("exited", -signal.SIGSEGV, Verdict.ILLEGAL_ACCESS),
        ("exited", -signal.SIGABRT, Verdict.CRASHED),
        ("exited", 1, Verdict.CRASHED),
    ],
)
def test_the_end_of_a_worker_has_a_verdict(how: str, status: int | None, verdict: Verdict) -> None:
    ended = Ended.model_validate({"how": how, "status": status, "stage": None})
    assert verdict_of(ended) is verdict
    assert ended.words


def test_what_the_reference_did_is_not_blamed_on_a_candidate(
    cpu: Hardware, tmp_path: Path, rows: Task
) -> None:
    kernel = 'extern "C" void f(const float* x) {}'
    candidate = new_candidate("cpp", kernel, "def forward(x):\n    return x\n")
    built = Built(language="cpp", artifact=tmp_path, functions=("f",))
    request = JudgeRequest(
        task=rows, hardware=cpu, rules=Rules(), candidate=candidate, built=built,
        effort="screen", seed=0,
    )  # fmt: skip
    stage = Stage(words="the reference runs", limit_s=1, blame="reference")
    ended = Ended(how="exited", status=-signal.SIGSEGV, stage=stage)
    found = evaluation_of(request, ended, "here")
    assert found.verdict is Verdict.CRASHED
    assert "damaged memory" in found.verification.reason
