"""What a guest sees of threads in its own process, seen in a process with none of others."""

import json
import subprocess
import sys

import pytest

_BELOW_THREADING = """
import _thread, threading
ready, stop = threading.Event(), threading.Event()
def works_on():
    ready.set()
    stop.wait()
_thread.start_new_thread(works_on, ())
assert ready.wait(60.0)
"""
_NAMED = """
import threading
stop = threading.Event()
threading.Thread(target=stop.wait, name="works on", daemon=True).start()
"""
_PROGRESS_BARS = """
from tqdm import _monitor, tqdm
assert _monitor.TMonitor(tqdm, 10).is_alive()
"""


def threads_after(code: str) -> list[str]:
    """The threads that a fresh process is told of once it has run the code."""
    script = (
        "import json\n"
        "from tools.evaluate.foreign.guest.observed import observations, settings\n"
        f"{code}\n"
        "print(json.dumps(observations(settings())[0]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_process_of_its_own_has_no_companion():
    assert threads_after("") == []


def test_a_thread_is_seen_by_its_name():
    assert threads_after(_NAMED) == ["works on"]


def test_a_thread_below_pythons_threading_is_seen():
    assert threads_after(_BELOW_THREADING) == ["one without a name"]


def test_what_watches_over_progress_bars_is_no_companion():
    pytest.importorskip("tqdm._monitor")
    assert threads_after(_PROGRESS_BARS) == []
