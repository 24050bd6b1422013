"""What a guest sees of its own process, seen in one that has nothing of others."""

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
_ENDING = """
import threading
from kernelwright.tools.evaluate.foreign.guest import observed
stop = threading.Event()
works = threading.Thread(target=stop.wait)
works.start()
def others_go_on(seconds):  # what a pause is for, without waiting for the machine
    stop.set()
    works.join()
observed.sleep = others_go_on
"""
_PROGRESS_BARS = """
from tqdm import _monitor, tqdm
assert _monitor.TMonitor(tqdm, 10).is_alive()
"""


def observed_after(code: str) -> tuple[list[str], list[str]]:
    """The threads and settings that a fresh process is told of once it has run the code."""
    script = (
        "import json\n"
        "from kernelwright.tools.evaluate.foreign.guest.observed import observations, settings\n"
        "usual = settings()\n"
        f"{code}\n"
        "print(json.dumps(observations(usual)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    threads, settings = json.loads(done.stdout.splitlines()[-1])
    return threads, settings


def threads_after(code: str) -> list[str]:
    return observed_after(code)[0]


@pytest.mark.exhaustive
def test_a_process_of_its_own_has_no_companion_and_nothing_is_changed():
    assert observed_after("") == ([], [])


def test_a_thread_is_seen_by_its_name():
    assert threads_after(_NAMED) == ["works on"]


@pytest.mark.exhaustive
def test_a_thread_below_pythons_threading_is_seen():
    assert threads_after(_BELOW_THREADING) == ["one without a name"]


@pytest.mark.exhaustive
def test_a_thread_that_ends_within_a_moment_is_no_companion():
    assert threads_after(_ENDING) == []


@pytest.mark.exhaustive
def test_what_watches_over_progress_bars_is_no_companion():
    pytest.importorskip("tqdm._monitor")
    assert threads_after(_PROGRESS_BARS) == []


@pytest.mark.exhaustive
def test_a_precision_is_seen_by_whichever_of_torchs_names_it_was_set():
    pytest.importorskip("torch", minversion="2.9")
    _, changed = observed_after("import torch; torch.backends.cuda.matmul.fp32_precision = 'tf32'")
    assert changed == ["matmul precision: high", "cuda tf32: True"]
    older = "import torch; torch.set_float32_matmul_precision('high')"
    assert changed == observed_after(older)[1]
