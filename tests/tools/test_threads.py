"""Work in threads learns when nobody waits for it."""

import asyncio
import threading

import pytest

from kernelwright.tools.threads import in_thread, is_wanted


async def test_work_is_wanted_until_whoever_waits_is_cancelled():
    began, ended = threading.Event(), threading.Event()

    def work():
        began.set()
        while is_wanted():
            threading.Event().wait(0.01)
        ended.set()

    waiting = asyncio.create_task(in_thread(work))
    assert await asyncio.to_thread(began.wait, 10)
    assert not ended.is_set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(ended.wait, 10)


async def test_each_call_has_its_own_and_results_and_errors_come_back():
    assert await in_thread(lambda a, b: (a + b, is_wanted()), 1, b=2) == (3, True)
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)
    assert is_wanted()
