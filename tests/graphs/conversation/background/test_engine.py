"""The searches' own thread, the workers that stand ready, and who may ask them when."""

import asyncio
import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest

from kernelwright.graphs.conversation.background.judges import Engine
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.keeper import Keeper, Spares


async def test_what_runs_there_does_not_hold_up_the_callers_loop() -> None:
    engine = Engine()
    release = threading.Event()

    async def stubborn() -> str:
        release.wait(60)  # a search that thinks hard, as far as its loop can tell
        return threading.current_thread().name

    asked = asyncio.create_task(engine.call(stubborn()))
    for _ in range(10):
        await asyncio.sleep(0)  # this loop goes on meanwhile
    release.set()
    assert await asked == "searches"
    engine.close()


async def test_what_is_raised_there_is_raised_here() -> None:
    engine = Engine()

    async def broken() -> None:
        raise LookupError("there")

    with pytest.raises(LookupError, match="there"):
        await engine.call(broken())
    engine.close()


async def test_who_is_cancelled_here_is_cancelled_there() -> None:
    engine = Engine()
    begun, ended = threading.Event(), threading.Event()

    async def waiting() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    asked = asyncio.create_task(engine.call(waiting()))
    assert await asyncio.to_thread(begun.wait, 60)
    asked.cancel()
    assert await asyncio.to_thread(ended.wait, 60)
    engine.close()


async def test_what_runs_there_when_it_is_closed_is_cancelled_and_waited_for() -> None:
    engine, begun = Engine(), threading.Event()
    ended: list[str] = []

    async def waiting() -> None:
        try:
            begun.set()
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)  # as whoever gives a worker back
            ended.append(threading.current_thread().name)

    asked = engine.submit(waiting())
    assert await asyncio.to_thread(begun.wait, 60)
    await asyncio.to_thread(engine.close)
    assert ended == ["searches"]
    assert asked.cancelled()


def test_an_engine_that_never_ran_can_be_closed() -> None:
    Engine().close()


@pytest.mark.exhaustive
async def test_a_spare_stands_ready_once_and_is_replaced(tmp_path: Path) -> None:
    spares = Spares(tmp_path, Rules(), asyncio.Lock(), wanted=1, after_s=0.0)
    assert spares.take() is None  # nothing was started yet, but now something is
    async with asyncio.timeout(240):
        while not spares.ready:  # noqa: ASYNC110 - a process comes up
            await asyncio.sleep(0.05)
    worker = spares.take()
    assert worker is not None
    assert worker.alive
    assert spares.ready == 0
    async with asyncio.timeout(240):
        while not spares.ready:  # noqa: ASYNC110 - another one
            await asyncio.sleep(0.05)
    await worker.aclose()
    await spares.aclose()
    assert spares.take() is None


async def test_nobody_is_started_while_somebody_measures(tmp_path: Path) -> None:
    lease = asyncio.Lock()
    spares = Spares(tmp_path, Rules(), lease, wanted=1, after_s=0.0)
    async with lease:
        spares.fill()
        await asyncio.sleep(0.2)
        assert not os.listdir(tmp_path)
    await spares.aclose()


async def test_who_finds_no_spare_waits_for_a_turn_to_start_one(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares", Rules(), asyncio.Lock(), wanted=0)
    keeper = Keeper(tmp_path / "work", Rules(), spares=spares)

    async def read() -> None:
        async with keeper.short_lived("trace"):
            pass

    async with contextlib.AsyncExitStack() as others:
        for _ in range(os.cpu_count() or 1):
            await others.enter_async_context(spares.starts.turn())
        reading = asyncio.create_task(read())
        async with asyncio.timeout(60):
            while not spares.starts.waiting:  # noqa: ASYNC110 - it asks for its turn
                await asyncio.sleep(0.01)
        assert spares.starts.waiting == 1
        assert not (tmp_path / "work").exists()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert spares.starts.waiting == 0
    await keeper.aclose()
    await spares.aclose()


@pytest.mark.exhaustive
async def test_where_a_worker_was_lost_the_next_one_stands_ready(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares", Rules(), asyncio.Lock(), wanted=0, after_s=0.0)
    keeper = Keeper(tmp_path / "work", Rules(), spares=spares)
    spares.fill()
    async with keeper.short_lived("trace") as worker:
        assert not spares.ready, "nothing was lost yet"
        os.kill(worker.pid, signal.SIGKILL)
        while worker.alive:  # noqa: ASYNC110 - a process ends
            await asyncio.sleep(0.02)
    async with asyncio.timeout(240):
        while not spares.ready:  # noqa: ASYNC110 - a process comes up
            await asyncio.sleep(0.05)
    async with keeper.short_lived("trace") as worker:
        assert worker.alive
        assert not spares.ready, "the one that stood ready was taken"
    await keeper.aclose()
    await spares.aclose()
