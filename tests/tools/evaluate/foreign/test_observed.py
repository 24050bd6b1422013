"""What a guest sees of threads in its own process."""

import _thread
import threading

import pytest

from tools.evaluate.foreign.guest.observed import observations, settings


def threads() -> list[str]:
    names, _ = observations(settings())
    return list(names)


def test_a_thread_below_pythons_threading_is_seen():
    before, ready, stop = threads(), threading.Event(), threading.Event()

    def works_on() -> None:
        ready.set()
        stop.wait()

    _thread.start_new_thread(works_on, ())
    try:
        assert ready.wait(10.0)
        assert len(threads()) == len(before) + 1
        assert "one without a name" in threads()
    finally:
        stop.set()


def test_what_watches_over_progress_bars_is_no_companion():
    tqdm = pytest.importorskip("tqdm")
    monitor = pytest.importorskip("tqdm._monitor")
    before = threads()
    watch = monitor.TMonitor(tqdm.tqdm, 10)
    try:
        assert watch.is_alive()
        assert threads() == before
    finally:
        watch.exit()
