"""`selftest` keeps what it saw; what it sees is judged in `tests/evil`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.evaluate.executors.local import executor
from kernelwright.tools.selftest import suite
from kernelwright.tools.selftest.catalogue import CaseFinding, Outcome
from kernelwright.tools.selftest.suite import Report
from kernelwright.tools.types import Isolation, Verdict, WallKind
from kernelwright.ui.cli.selftest import selftest

RIGHT = CaseFinding(verdict=Verdict.CORRECT, said="", seconds=1.0)
FOUND_OUT = Outcome(
    row=1, cheat="a cheat", case="one", kind="plan", device="cuda", expected=(Verdict.CHEATING,),
    words=("caught",), evil=CaseFinding(verdict=Verdict.CHEATING, said="caught", seconds=1.0),
    twin=RIGHT,
)  # fmt: skip


class Judge:
    """Judges nothing; the suite beside it knows its outcomes."""

    isolation = Isolation(kind=WallKind.NONE, words="none")

    @classmethod
    def create(cls, *_: object, **__: object) -> "Judge":
        return cls()

    async def hardware(self) -> Hardware:
        return hardware_profile("h200")

    async def aclose(self) -> None:
        pass


def test_a_run_that_is_stopped_keeps_the_cases_that_were_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(*_: object) -> AsyncIterator[Outcome]:
        yield FOUND_OUT
        yield FOUND_OUT
        raise RuntimeError("the time is over")

    monkeypatch.setattr(executor, "LocalExecutor", Judge)
    monkeypatch.setattr(suite.Suite, "run", stopped)
    file = tmp_path / "report.json"
    with pytest.raises(RuntimeError, match="the time is over"):
        selftest("", "cuda", "", str(file), None)
    kept = Report.model_validate_json(file.read_text(encoding="utf-8"))
    assert kept.outcomes == (FOUND_OUT, FOUND_OUT)
    assert kept.holds
