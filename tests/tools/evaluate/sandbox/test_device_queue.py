"""Who waits for a device knows how many are before them."""

import asyncio
import contextlib

import pytest

from kernelwright.tools.evaluate.sandbox.device_queue import Line, Seat

pytestmark = pytest.mark.asyncio


async def enter(seat: Seat, until: asyncio.Event) -> None:
    async with seat:
        await until.wait()


async def queue(*seats: Seat) -> list[tuple[asyncio.Task[None], asyncio.Event]]:
    """One question of each, in this order."""
    asked = []
    for seat in seats:
        until = asyncio.Event()
        asked.append((asyncio.create_task(enter(seat, until)), until))
        await asyncio.sleep(0)
    return asked


async def end(asked: list[tuple[asyncio.Task[None], asyncio.Event]]) -> None:
    for task, until in asked:
        until.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_it_goes_round_in_the_order_of_asking() -> None:
    line = Line()
    ann, bob, cat = line.seat("ann"), line.seat("bob"), line.seat("cat")
    asked = await queue(ann, bob, cat, bob)
    assert [seat.ahead for seat in (ann, bob, cat)] == [0, 1, 2]
    assert ann.waited_s == 0.0
    assert min(bob.waited_s, cat.waited_s) > 0.0
    await end(asked[:1])
    assert [seat.ahead for seat in (ann, bob, cat)] == [0, 0, 1]
    assert bob.waited_s == 0.0
    await end(asked[1:])
    assert not line.turns
    assert cat.waited_s == 0.0


async def test_a_persons_own_questions_and_nobodys_do_not_count() -> None:
    line = Line()
    ann, nobody = line.seat("ann"), line.seat()
    asked = await queue(nobody, ann, ann)
    assert ann.ahead == 0
    assert ann.waited_s > 0.0
    await end(asked)


async def test_who_gives_up_leaves_the_line() -> None:
    line = Line()
    ann, bob, cat = line.seat("ann"), line.seat("bob"), line.seat("cat")
    asked = await queue(ann, bob, cat)
    asked[1][0].cancel()
    asked[0][1].set()  # given back in the very moment in which the next one gives up
    for _ in range(50):  # whatever can go on goes on
        await asyncio.sleep(0)
    assert cat.waited_s == 0.0
    assert [turn.seat.name for turn in line.turns] == ["cat"]
    await end(asked)
    assert not line.lock.locked()
