"""Searches that live on a server: heard late, paused, resumed, revived after a kill."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest

from kernelwright.agents.assistant.types import (
    ContinueSearch,
    LoadTask,
    PauseSearch,
    ShowProgress,
    StartSearch,
    StopSearch,
)
from kernelwright.graphs.conversation import ChatController, SearchManager, Told
from kernelwright.graphs.conversation.store import is_going
from kernelwright.tools.archive import Archive
from kernelwright.tools.types.run import Summary

Begin = Callable[..., Awaitable[None]]
Held = Callable[..., Awaitable[tuple[SearchManager, ChatController, threading.Event]]]
SLOW = 0.03


class Ear(Protocol):
    """The listener of conftest."""

    told: list[Told]

    async def __call__(self, told: Told) -> None: ...


def stored(desk: ChatController) -> list[int]:
    archive = Archive.open(desk.run, desk.home)
    try:
        return [event.seq for event in archive.events()]
    finally:
        archive.close()


def summary_of(desk: ChatController) -> Summary:
    archive = Archive.open(desk.run, desk.home)
    try:
        summary = archive.record().summary
        assert summary is not None
        return summary
    finally:
        archive.close()


@pytest.fixture
def all_told(until: Begin) -> Begin:
    """Wait until a listener was told exactly what is stored, behind the first few events."""

    async def wait(ear: Ear, desk: ChatController, after: int = 0) -> None:
        await until(lambda: [told.seq for told in ear.told] == stored(desk)[after:])

    return wait


async def test_a_search_goes_on_when_nobody_listens(
    desk: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(desk)
    await rest(desk)
    assert summary_of(desk).status == "improved"


async def test_a_late_listener_is_told_everything_once_and_in_order(
    held: Held, ear: Ear, rest: Begin, all_told: Begin
) -> None:
    lives, desk, free = await held()
    assert desk.running
    late = ChatController(lives.home, lives, "ann", "one")
    late.watch(ear)
    free.set()
    await rest(desk)
    await all_told(ear, desk)
    late.unwatch()
    await lives.aclose()


async def test_who_knows_the_beginning_is_told_the_rest(
    desk: ChatController, ear: Ear, begin: Begin, rest: Begin, all_told: Begin
) -> None:
    await begin(desk)
    await rest(desk)
    known = stored(desk)[4]
    desk.watch(ear, after=known)
    await all_told(ear, desk, after=5)
    desk.unwatch()


async def test_a_listener_that_fails_harms_nobody(
    desk: ChatController, ear: Ear, begin: Begin, rest: Begin, all_told: Begin
) -> None:
    async def failing(told: Told) -> None:
        raise RuntimeError("the page is gone")

    desk.watch(failing)
    desk.watch(ear)
    await begin(desk)
    await rest(desk)
    await all_told(ear, desk)
    desk.unwatch()


async def test_a_pause_loses_nothing_and_nothing_is_measured_twice(
    held: Held, tmp_path: Path, rest: Begin
) -> None:
    log = tmp_path / "log"
    lives, desk, free = await held(log=log)
    await desk.do(PauseSearch())
    assert desk.state == "pausing"
    free.set()
    await rest(desk)
    assert desk.state == "resting"
    assert summary_of(desk).status == "stopped"
    await desk.do(ContinueSearch())
    await rest(desk)
    assert summary_of(desk).status == "improved"
    asked = log.read_text().splitlines()
    assert len(asked) == len(set(asked))
    await lives.aclose()


async def test_continuing_while_it_pauses_waits_for_the_pause(
    make_lives: Callable[..., SearchManager], begin: Begin, rest: Begin
) -> None:
    lives = make_lives(pause_s=SLOW)
    desk = ChatController(lives.home, lives, "ann", "one")
    await begin(desk)
    await desk.do(PauseSearch())
    await desk.do(ContinueSearch())
    assert desk.running
    await rest(desk)
    assert summary_of(desk).status == "improved"
    await lives.aclose()


async def test_a_stop_keeps_the_best_so_far(held: Held, rest: Begin) -> None:
    lives, desk, free = await held()
    await desk.do(StopSearch())
    free.set()
    await rest(desk)
    assert summary_of(desk).stopped_because == "you asked"
    assert "Continue" in [offer.label for offer in (await desk.do(ShowProgress())).offers]
    await lives.aclose()


async def test_a_finished_search_goes_on_with_as_much_again(
    desk: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(desk, rounds=1)
    await rest(desk)
    assert summary_of(desk).rounds == 1
    await desk.do(ContinueSearch())
    await rest(desk)
    assert summary_of(desk).rounds == 2


async def test_a_server_that_ends_takes_its_searches_up_again(
    make_lives: Callable[..., SearchManager], held: Held, rest: Begin
) -> None:
    lives, desk, _ = await held()
    run = desk.run
    await lives.aclose()
    after = make_lives()
    revived = await after.revive()
    assert [life.run for life in revived] == [run]
    again = ChatController(after.home, after, "ann", "one")
    assert again.run == run
    await rest(again)
    assert summary_of(again).status == "improved"
    assert await after.revive() == ()
    await after.aclose()


async def test_what_the_person_paused_stays_paused(
    make_lives: Callable[..., SearchManager], begin: Begin, rest: Begin
) -> None:
    lives = make_lives(pause_s=SLOW)
    desk = ChatController(lives.home, lives, "ann", "one")
    await begin(desk)
    await desk.do(PauseSearch())
    await rest(desk)
    assert not is_going(desk.home / "runs" / desk.run)
    await lives.aclose()
    after = make_lives()
    assert await after.revive() == ()
    await after.aclose()


@pytest.mark.parametrize("when", [0.05, 0.6])
async def test_a_killed_server_comes_back_with_every_run(
    make_lives: Callable[..., SearchManager],
    tmp_path: Path,
    rest: Begin,
    ear: Ear,
    when: float,
    all_told: Begin,
) -> None:
    script = Path(__file__).with_name("server.py")
    arguments = [sys.executable, str(script), str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"two searches run\n"
    await asyncio.sleep(when)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    lives = make_lives()
    assert len(await lives.revive()) == 2
    for person in ("ann", "bob"):
        desk = ChatController(lives.home, lives, person, "one")
        assert desk.task is not None
        desk.watch(ear)
        await rest(desk)
        assert summary_of(desk).status == "improved"
        await all_told(ear, desk)
        desk.unwatch()
        ear.told.clear()
    await lives.aclose()


async def test_a_search_that_cannot_begin_says_why(
    desk: ChatController, lives: SearchManager
) -> None:
    await desk.do(LoadTask(source="x = 1", name="toy.py"))

    def broken(around: object) -> object:
        raise RuntimeError("no minds today")

    lives._make_minds = broken  # type: ignore[assignment]
    saying = await desk.do(StartSearch())
    assert "no minds today" in saying.text
    assert not desk.running


async def test_workers_that_nobody_needs_are_let_go(
    make_lives: Callable[..., SearchManager], until: Begin
) -> None:
    lives = make_lives(idle_s=0.05)
    desk = ChatController(lives.home, lives, "ann", "one")
    await desk.do(LoadTask(source="x = 1", name="toy.py"))
    assert lives.judges.present == 1
    await until(lambda: not lives.judges.present)
    await lives.aclose()


async def test_one_persons_searches_share_a_worker_and_two_persons_do_not(
    make_lives: Callable[..., SearchManager],
) -> None:
    lives = make_lives()
    for person, thread in (("ann", "one"), ("ann", "two"), ("bob", "one")):
        desk = ChatController(lives.home, lives, person, thread)
        await desk.do(LoadTask(source="x = 1", name="toy.py"))
    assert lives.judges.present == 2
    await lives.aclose()


async def test_a_run_that_cannot_be_read_does_not_keep_the_others_from_coming_back(
    make_lives: Callable[..., SearchManager], begin: Begin, rest: Begin
) -> None:
    lives = make_lives(pause_s=0.05)
    for person in ("ann", "bob"):
        await begin(ChatController(lives.home, lives, person, "one"))
    await lives.aclose()
    after = make_lives()
    broken = ChatController(after.home, after, "bob", "one")
    (broken.home / "runs" / broken.run / "run.db").write_bytes(b"no database")
    revived = await after.revive()
    desk = ChatController(after.home, after, "ann", "one")
    assert [life.run for life in revived] == [desk.run]
    await rest(desk)
    assert summary_of(desk).status == "improved"
    assert (await broken.do(ShowProgress())).pieces
    assert (await broken.do(ContinueSearch())).pieces
    assert broken.turn("what now?").run == broken.run
    await after.aclose()
