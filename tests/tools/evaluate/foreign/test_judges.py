"""Who judges foreign code, and who comes next."""

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.foreign.host import guest_process
from kernelwright.tools.evaluate.foreign.host.guest_process import ASLEEP, GuestProcess, Guests
from kernelwright.tools.evaluate.foreign.host.judges import Judges
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.process_tree import moves, tree

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


async def test_whatever_of_a_guest_woke_before_it_was_to_go_on_is_named() -> None:
    first, second = [await asyncio.create_subprocess_exec("sleep", "100") for _ in range(2)]
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
        await guest.pause()
        assert not moves(first.pid)
        assert guest.resume() == ()
        await guest.pause()
        os.kill(first.pid, signal.SIGCONT)  # as a timer of the kernel's would
        for _ in range(10_000):
            if moves(first.pid):
                break
            await asyncio.sleep(0.001)
        assert guest.resume() == ("sleep",)
        await guest.pause()
        inside.append(second.pid)  # one that was not there before
        assert guest.resume() == ("sleep",)
    finally:
        for started in (first, second):
            started.kill()
            await started.wait()


async def test_who_does_not_hear_in_time_that_it_is_to_stand_still_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guest_process, "_PAUSE_S", 0.0)
    guest = object.__new__(GuestProcess)
    guest._walled = SimpleNamespace(
        processes=lambda: (os.getpid(),), pause=lambda: None, resume=lambda: None
    )
    await guest.pause()
    assert guest.resume() == ()
