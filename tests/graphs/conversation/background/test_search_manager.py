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
    MeasureAgain,
    PauseSearch,
    ShowProgress,
    StartSearch,
    StopSearch,
)
from kernelwright.graphs.conversation import ChatController, SearchManager, Told
from kernelwright.graphs.conversation.background.store import is_going
from kernelwright.tools.archive import Archive
from kernelwright.tools.types.run import Summary

Begin = Callable[..., Awaitable[None]]
Held = Callable[..., Awaitable[tuple[SearchManager, ChatController, threading.Event]]]
SLOW = 0.03


class Ear(Protocol):
    """The listener of conftest."""

    told: list[Told]

    async def __call__(self, told: Told) -> None: ...


def stored(controller: ChatController) -> list[int]:
    archive = Archive.open(controller.run, controller.home)
    try:
        return [event.seq for event in archive.events()]
    finally:
        archive.close()


def summary_of(controller: ChatController) -> Summary:
    archive = Archive.open(controller.run, controller.home)
    try:
        summary = archive.record().summary
        assert summary is not None
        return summary
    finally:
        archive.close()


@pytest.fixture
def all_told(until: Begin) -> Begin:
    """Wait until a listener was told exactly what is stored, behind the first few events."""

    async def wait(subscriber: Ear, controller: ChatController, after: int = 0) -> None:
        await until(lambda: [told.seq for told in subscriber.told] == stored(controller)[after:])

    return wait


async def test_a_search_goes_on_when_nobody_listens(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    assert summary_of(controller).status == "improved"


async def test_a_late_listener_is_told_everything_once_and_in_order(
    held: Held, subscriber: Ear, rest: Begin, all_told: Begin
) -> None:
    search_manager, controller, free = await held()
    assert controller.running
    late = ChatController(search_manager.home, search_manager, "ann", "one")
    late.watch(subscriber)
    free.set()
    await rest(controller)
    await all_told(subscriber, controller)
    late.unwatch()
    await search_manager.aclose()


async def test_who_knows_the_beginning_is_told_the_rest(
    controller: ChatController, subscriber: Ear, begin: Begin, rest: Begin, all_told: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    known = stored(controller)[4]
    controller.watch(subscriber, after=known)
    await all_told(subscriber, controller, after=5)
    controller.unwatch()


async def test_a_listener_that_fails_harms_nobody(
    controller: ChatController, subscriber: Ear, begin: Begin, rest: Begin, all_told: Begin
) -> None:
    async def failing(told: Told) -> None:
        raise RuntimeError("the page is gone")

    controller.watch(failing)
    controller.watch(subscriber)
    await begin(controller)
    await rest(controller)
    await all_told(subscriber, controller)
    controller.unwatch()


async def test_a_pause_loses_nothing_and_nothing_is_measured_twice(
    held: Held, tmp_path: Path, rest: Begin
) -> None:
    log = tmp_path / "log"
    search_manager, controller, free = await held(log=log)
    await controller.do(PauseSearch())
    assert controller.state == "pausing"
    free.set()
    await rest(controller)
    assert controller.state == "resting"
    assert summary_of(controller).status == "stopped"
    await controller.do(ContinueSearch())
    await rest(controller)
    assert summary_of(controller).status == "improved"
    asked = log.read_text().splitlines()
    assert len(asked) == len(set(asked))
    await search_manager.aclose()


async def test_a_result_is_measured_again_and_the_page_hears_of_it(
    make_search_manager: Callable[..., SearchManager],
    subscriber: Ear,
    begin: Begin,
    rest: Begin,
    all_told: Begin,
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    search_manager = make_search_manager(log=log)
    controller = ChatController(search_manager.home, search_manager, "ann", "one")
    assert "no search yet" in (await controller.do(MeasureAgain())).text
    await begin(controller)
    await rest(controller)
    before = log.read_text().splitlines()
    controller.watch(subscriber)
    assert "again" in (await controller.do(MeasureAgain())).text
    await rest(controller)
    await all_told(subscriber, controller)
    assert summary_of(controller).status == "improved"
    eager, compiled, again = log.read_text().splitlines()[len(before) :]
    assert (eager, compiled) == ("eager screen", "compile screen")  # PyTorch's own ways as well
    assert again.endswith("certify")
    assert again in before  # the same finalist, a second time
    await search_manager.aclose()


async def test_continuing_while_it_pauses_waits_for_the_pause(
    make_search_manager: Callable[..., SearchManager], begin: Begin, rest: Begin
) -> None:
    search_manager = make_search_manager(pause_s=SLOW)
    controller = ChatController(search_manager.home, search_manager, "ann", "one")
    await begin(controller)
    await controller.do(PauseSearch())
    await controller.do(ContinueSearch())
    assert controller.running
    await rest(controller)
    assert summary_of(controller).status == "improved"
    await search_manager.aclose()


async def test_a_stop_keeps_the_best_so_far(held: Held, rest: Begin) -> None:
    search_manager, controller, free = await held()
    await controller.do(StopSearch())
    free.set()
    await rest(controller)
    assert summary_of(controller).stopped_because == "you asked"
    assert "Continue" in [offer.label for offer in (await controller.do(ShowProgress())).offers]
    await search_manager.aclose()


async def test_a_finished_search_goes_on_with_as_much_again(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller, rounds=1)
    await rest(controller)
    assert summary_of(controller).rounds == 1
    await controller.do(ContinueSearch())
    await rest(controller)
    assert summary_of(controller).rounds == 2


async def test_a_server_that_ends_takes_its_searches_up_again(
    make_search_manager: Callable[..., SearchManager], held: Held, rest: Begin
) -> None:
    search_manager, controller, _ = await held()
    run = controller.run
    await search_manager.aclose()
    after = make_search_manager()
    revived = await after.revive()
    assert [search_session.run for search_session in revived] == [run]
    again = ChatController(after.home, after, "ann", "one")
    assert again.run == run
    await rest(again)
    assert summary_of(again).status == "improved"
    assert await after.revive() == ()
    await after.aclose()


async def test_what_the_person_paused_stays_paused(
    make_search_manager: Callable[..., SearchManager], begin: Begin, rest: Begin
) -> None:
    search_manager = make_search_manager(pause_s=SLOW)
    controller = ChatController(search_manager.home, search_manager, "ann", "one")
    await begin(controller)
    await controller.do(PauseSearch())
    await rest(controller)
    assert not is_going(controller.home / "runs" / controller.run)
    await search_manager.aclose()
    after = make_search_manager()
    assert await after.revive() == ()
    await after.aclose()


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", [pytest.param(0.05, marks=pytest.mark.exhaustive), 0.6])
async def test_a_killed_server_comes_back_with_every_run(
    make_search_manager: Callable[..., SearchManager],
    tmp_path: Path,
    rest: Begin,
    subscriber: Ear,
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
    search_manager = make_search_manager()
    assert len(await search_manager.revive()) == 2
    for person in ("ann", "bob"):
        controller = ChatController(search_manager.home, search_manager, person, "one")
        assert controller.task is not None
        controller.watch(subscriber)
        await rest(controller)
        assert summary_of(controller).status == "improved"
        await all_told(subscriber, controller)
        controller.unwatch()
        subscriber.told.clear()
    await search_manager.aclose()


async def test_a_search_that_cannot_begin_says_why(
    controller: ChatController, search_manager: SearchManager
) -> None:
    await controller.do(LoadTask(source="x = 1", name="toy.py"))

    def broken(around: object) -> object:
        raise RuntimeError("no agents today")

    search_manager._make_agents = broken  # type: ignore[assignment]
    reply = await controller.do(StartSearch())
    assert "no agents today" in reply.text
    assert not controller.running


async def test_workers_that_nobody_needs_are_let_go(
    make_search_manager: Callable[..., SearchManager], until: Begin
) -> None:
    search_manager = make_search_manager(idle_s=0.05)
    controller = ChatController(search_manager.home, search_manager, "ann", "one")
    await controller.do(LoadTask(source="x = 1", name="toy.py"))
    assert search_manager.judges.present == 1
    await until(lambda: not search_manager.judges.present)
    await search_manager.aclose()


async def test_one_persons_searches_share_a_worker_and_two_persons_do_not(
    make_search_manager: Callable[..., SearchManager],
) -> None:
    search_manager = make_search_manager()
    for person, thread in (("ann", "one"), ("ann", "two"), ("bob", "one")):
        controller = ChatController(search_manager.home, search_manager, person, thread)
        await controller.do(LoadTask(source="x = 1", name="toy.py"))
    assert search_manager.judges.present == 2
    await search_manager.aclose()


async def test_a_run_that_cannot_be_read_does_not_keep_the_others_from_coming_back(
    make_search_manager: Callable[..., SearchManager], begin: Begin, rest: Begin
) -> None:
    search_manager = make_search_manager(pause_s=0.05)
    for person in ("ann", "bob"):
        await begin(ChatController(search_manager.home, search_manager, person, "one"))
    await search_manager.aclose()
    after = make_search_manager()
    broken = ChatController(after.home, after, "bob", "one")
    (broken.home / "runs" / broken.run / "run.db").write_bytes(b"no database")
    revived = await after.revive()
    controller = ChatController(after.home, after, "ann", "one")
    assert [search_session.run for search_session in revived] == [controller.run]
    await rest(controller)
    assert summary_of(controller).status == "improved"
    assert (await broken.do(ShowProgress())).pieces
    assert (await broken.do(ContinueSearch())).pieces
    assert broken.turn("what now?").run == broken.run
    await after.aclose()
