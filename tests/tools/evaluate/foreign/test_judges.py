"""Who judges foreign code, and who comes next."""

from pathlib import Path

import pytest

from kernelwright.tools.evaluate.foreign.host.guest_process import ASLEEP, Guests
from kernelwright.tools.evaluate.foreign.host.judges import Judges
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.process_tree import tree

RULES = Rules()


@pytest.fixture
def judges(tmp_path: Path) -> Judges:
    return Judges(tmp_path, "cpu", Guests(tmp_path, "cpu"))


@pytest.mark.exhaustive
async def test_the_one_that_stands_ready_sits_next_and_nobody_is_left(
    judges: Judges, tmp_path: Path
) -> None:
    first = await judges.present(RULES, ())
    assert await judges.present(RULES, ()) is first
    judges.prepare(())
    judges.prepare(())
    await judges.leave()
    assert not first.worker.alive
    second = await judges.present(RULES, ())
    assert judges.started == 2
    assert second.worker.scratch != first.worker.scratch
    # Who cannot read what a task's file imports is of no use to it.
    judges.prepare(())
    third = await judges.present(RULES, (tmp_path,))
    assert not second.worker.alive
    assert tmp_path in third.worker.readable
    await judges.aclose()
    assert not third.worker.alive


@pytest.mark.exhaustive
async def test_a_judges_own_threads_take_no_processor_from_a_guest(
    judges: Judges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")  # of a person, for programs of their own
    judge = await judges.present(RULES, ())
    # The innermost process; a wall around it has no threads.
    asleep = {f"{name}={value}".encode() for name, value in ASLEEP.items()}
    seen = settings(tree(judge.worker.pid)[-1])
    await judges.aclose()
    assert asleep <= seen


def settings(pid: int) -> set[bytes]:
    return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
