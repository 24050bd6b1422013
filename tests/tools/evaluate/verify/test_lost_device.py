"""A device that is lost while a candidate's results are looked at is the candidate's doing."""

from collections.abc import Callable

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates.run import device_lost
from kernelwright.tools.evaluate.messages import Judged, JudgeRequest
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify import trials
from kernelwright.tools.evaluate.worker.request_handler import RequestHandler
from kernelwright.tools.languages import Built, compile_candidate
from kernelwright.tools.types import Candidate, Task, Verdict

LOST = "CUDA error: an illegal instruction was encountered\nSearch for `cudaErrorIllegal...'"


@pytest.fixture
async def request_of(
    rows: Task, kernel: Callable[..., Candidate], cpu: Hardware, short_rules: Rules
) -> JudgeRequest:
    """To judge an honest kernel."""
    candidate = kernel()
    built = await compile_candidate(candidate, architecture=None, timeout_s=60)
    assert isinstance(built, Built)
    return JudgeRequest(
        task=rows, hardware=cpu, rules=short_rules, candidate=candidate, built=built,
        effort="screen", seed=0,
    )  # fmt: skip


async def test_it_is_a_verdict_and_no_fault_of_the_judge(
    request_of: JudgeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks(*_: object) -> None:
        raise torch.AcceleratorError(LOST)

    monkeypatch.setattr(trials, "inputs_unchanged", looks)
    answer = RequestHandler(lambda _: None).answer(request_of)
    assert isinstance(answer, Judged)
    assert answer.evaluation.verdict is Verdict.ILLEGAL_ACCESS
    assert (
        "after it ran: CUDA error: an illegal instruction" in answer.evaluation.verification.reason
    )


async def test_what_is_no_word_of_the_device_stays_our_fault(
    request_of: JudgeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(trials, "inputs_unchanged", looks)
    with pytest.raises(RuntimeError, match="of ours"):
        RequestHandler(lambda _: None).answer(request_of)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (torch.AcceleratorError(LOST), True),
        (RuntimeError("CUDA error: unspecified launch failure"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
        (RuntimeError("shapes do not match"), False),
    ],
)
def test_what_the_device_says_is_told_apart(error: RuntimeError, lost: bool) -> None:
    assert device_lost(error) is lost
