"""Who judges foreign code, and who comes next."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.foreign.host.guest_process import ASLEEP, GuestProcess, Guests
from kernelwright.tools.evaluate.foreign.host.judges import Judges
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.process_tree import stopped, tree

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


def soon(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10.0
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)
    return true()


def test_whatever_of_a_guest_woke_before_it_was_to_go_on_is_named() -> None:
    first, second = (subprocess.Popen(["sleep", "100"]) for _ in range(2))
    inside = [first.pid]

    def all_are_sent(how: signal.Signals) -> None:
        for pid in inside:
            os.kill(pid, how)

    guest = object.__new__(GuestProcess)
    guest._walled = SimpleNamespace(
        processes=lambda: tuple(inside),
        pause=lambda: all_are_sent(signal.SIGSTOP),
        resume=lambda: all_are_sent(signal.SIGCONT),
    )
    try:
        guest.pause()
        assert soon(lambda: stopped(first.pid))
        assert guest.resume() == ()
        assert soon(lambda: not stopped(first.pid))
        guest.pause()
        os.kill(first.pid, signal.SIGCONT)  # as a timer of the kernel's would
        assert soon(lambda: not stopped(first.pid))
        assert guest.resume() == ("sleep",)
        guest.pause()
        assert soon(lambda: stopped(first.pid))
        inside.append(second.pid)  # and one that was not there before
        assert guest.resume() == ("sleep",)
    finally:
        for started in (first, second):
            started.kill()
            started.wait()
