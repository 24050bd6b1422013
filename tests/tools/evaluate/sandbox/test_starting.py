"""Workers give way to the program, and start a few at a time in the order of asking."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.messages import Rehearsed, Reply
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.sandbox import keeper as spares
from kernelwright.tools.evaluate.sandbox.keeper import Starts
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, start_walled
from kernelwright.tools.evaluate.sandbox.walls import standing, wall
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError, WorkerProcess
from kernelwright.tools.runtime import NICENESS, give_way, session_niceness
from kernelwright.tools.types import EnvironmentLacksError, WallKind


def niceness(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


async def rested() -> None:
    """Whatever can go on in this loop has gone on."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_everything_behind_the_wall_gives_way_to_the_program(tmp_path: Path) -> None:
    shell = ("/bin/sh", "-c", "sleep 60 & sleep 60 & wait")
    walled = await start_walled(Enclosure(argv=shell, scratch=tmp_path, environment={}))
    try:
        while len(running := walled.processes()) < 4:  # noqa: ASYNC110 - processes come up
            await asyncio.sleep(0.02)
        assert {niceness(pid) for pid in running} == {max(NICENESS, niceness(0))}
        sessions = {session_niceness(pid) for pid in running}
        assert sessions <= {None, NICENESS}
    finally:
        await walled.end()


def told_by(code: str, lower: int) -> int:
    """What a program prints that lowered itself by so much before it did the rest."""
    begun = f"import os, subprocess, sys\nos.nice({lower})\n{code}"
    done = subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("lower", [0, 2, 9])
def test_what_starts_low_needs_no_lowering(lower: int) -> None:
    """Also what forks before anybody could lower it; a program that is low itself adds nothing."""
    code = (
        "from kernelwright.tools.runtime import lowered\n"
        "told = 'import os; print(os.getpriority(os.PRIO_PROCESS, 0))'\n"
        "subprocess.run(lowered((sys.executable, '-c', told)), check=True)\n"
    )
    assert told_by(code, lower) == max(NICENESS, niceness(0) + lower)


def test_what_lowers_itself_is_not_lowered_by_others_before_it_does() -> None:
    """Else it would end up lower than what it is compared with: both add to what they find."""
    with subprocess.Popen(("sleep", "60"), start_new_session=True) as child:
        give_way(child.pid, began_low=True)
        assert niceness(child.pid) == niceness(0)
        child.kill()


@pytest.mark.parametrize("lower", [0, 2, 9])
def test_nobody_gives_way_twice_and_nobody_is_raised(lower: int) -> None:
    """A program that was itself started low starts others as low as itself, not lower."""
    code = (
        "from kernelwright.tools.runtime import give_way\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "for _ in range(2):\n"
        "    give_way(child.pid)\n"
        "print(os.getpriority(os.PRIO_PROCESS, child.pid))\n"
        "child.kill()\n"
    )
    assert told_by(code, lower) == max(NICENESS, niceness(0) + lower)


def test_what_has_ended_needs_no_way() -> None:
    done = subprocess.Popen(["true"], start_new_session=True)
    done.wait()
    give_way(done.pid)


async def test_a_worker_that_is_late_is_the_machines_lack_and_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(worker: WorkerProcess) -> None:
        await asyncio.get_running_loop().create_future()

    # A worker may have spoken before anybody listens, however short the time.
    monkeypatch.setattr(WorkerProcess, "_receive", silent)
    with pytest.raises(EnvironmentLacksError, match="others keep this machine busy") as told:
        await WorkerProcess.start(tmp_path, Rules(start_s=0.05))
    assert "\n" not in str(told.value)
    assert isinstance(told.value, WorkerBrokenError), "a search tries again"


async def test_turns_come_in_the_order_of_asking_and_a_failure_gives_its_own_back() -> None:
    starts, begun, ended = Starts(at_once=2), [], asyncio.Event()

    async def start(number: int) -> None:
        async with starts.turn():
            begun.append(number)
            if number == 0:
                raise RuntimeError("it does not come up")
            await ended.wait()

    tasks = [asyncio.create_task(start(number)) for number in range(6)]
    await rested()
    assert begun == [0, 1, 2]  # the first has failed, and the third has its place
    assert starts.waiting == 3
    tasks[3].cancel()  # somebody who waits goes away
    await rested()
    assert starts.waiting == 2
    ended.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert begun == [0, 1, 2, 4, 5]
    assert starts.waiting == 0


def test_the_sandbox_is_the_wall_unless_rules_take_it_away() -> None:
    assert standing(Rules(), "cpu") == wall("cpu")
    off = standing(Rules(switched_off=(Defence.SANDBOX,)), "cpu")
    assert off.kind is WallKind.NONE
    assert "switched off" in off.isolation.words


async def test_a_spare_that_is_slow_to_start_holds_up_no_other(
    tmp_path: Path, short_rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suite takes a process every few seconds: each is replaced for itself."""
    started: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    class Worker:
        alive = True

        @classmethod
        async def start(cls, *given: object, **named: object) -> "Worker":
            go = asyncio.Event()
            started.put_nowait(go)
            await go.wait()
            return cls()

        async def ask(self, request: object, limit_s: float) -> Reply:
            return Reply(answer=Rehearsed())

        async def aclose(self) -> None: ...

    monkeypatch.setattr(spares, "WorkerProcess", Worker)
    kept = spares.Spares(tmp_path, short_rules, asyncio.Lock(), wanted=0)
    kept.starts = Starts(at_once=4)
    kept.stand_by(2)
    slow, quick = await started.get(), await started.get()
    quick.set()
    while not kept.ready:  # noqa: ASYNC110 - it is rehearsed
        await asyncio.sleep(0)
    assert kept.take() is not None
    third = await started.get()  # though the slow one is still under way
    assert started.empty(), "two are wanted, and two are coming"
    for go in (slow, third):
        go.set()
    while kept.ready < 2:  # noqa: ASYNC110 - they are rehearsed
        await asyncio.sleep(0)
    assert started.empty()
    await kept.aclose()
