"""Whose trouble ends the timing of foreign code, told by a clock that only fails."""

from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.evaluate.foreign import ladder as climbing
from kernelwright.tools.evaluate.foreign.guest_link import BaselineTroubleError
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.truth import UnverifiableError
from kernelwright.tools.types import Evaluation, Verdict, Verification


@pytest.mark.parametrize(
    ("trouble", "verdict", "words"),
    [
        (BaselineTroubleError("its process ended", lost=True), Verdict.CORRECT, "its process"),
        (MemoryError("9 GiB"), Verdict.CORRECT, "no room to verify"),
        (torch.OutOfMemoryError("9 GiB"), Verdict.CORRECT, "no room to verify"),
        (UnverifiableError("the truth fits nowhere"), Verdict.CORRECT, "fits nowhere"),
        (RejectedError(Verdict.TIMED_OUT, "it hangs"), Verdict.TIMED_OUT, "it hangs"),
        (RuntimeError("odd"), Verdict.LAUNCH_ERROR, "odd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_only_the_candidates_own_trouble_changes_its_verdict(
    monkeypatch, trouble: Exception, verdict: Verdict, words: str
):
    def fails(_: Evaluation) -> Evaluation:
        raise trouble

    dismissed: list[bool] = []
    monkeypatch.setattr(climbing, "Timing", lambda *_: SimpleNamespace(against=fails))
    ladder = climbing.ForeignLadder.__new__(climbing.ForeignLadder)
    ladder._runtime = ladder._request = ladder._seat = None
    ladder._secret, ladder._session = 1, SimpleNamespace(dismiss=lambda: dismissed.append(True))
    right = Verification(verdict=Verdict.CORRECT, reason="right")
    found = ladder._time(Evaluation(candidate="it", verification=right))
    assert found.verdict is verdict
    assert words in " ".join((found.verification.reason, *found.verification.not_verified))
    assert dismissed == [True], "the next candidate gets a fresh guest beside it"
