"""What the processors and the kernel count, really counted here; and what the readings make of it.

Machines without hardware counters have the kernel's own, which are opened, started, read and
closed in the same way.
"""

import contextlib
import errno
import mmap
import os
import threading
import time
from pathlib import Path

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.profile import measured_evidence, symptoms
from kernelwright.tools.profile.host_counters import (
    PASSES,
    TASK_CLOCK,
    Event,
    counting,
    fault_us,
    not_counted,
    usage,
)
from kernelwright.tools.types import HostCounters, Profile

PAGE_FAULTS = Event("faults", "page-faults", 1, 2)
NO_SUCH = Event("nothing", "nothing", 1, 999)


def touch(pages: int) -> None:
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory.write(b"x" * pages * mmap.PAGESIZE)


def works() -> bool:
    with counting((TASK_CLOCK,)) as counter:
        return not counter.refused


allowed = pytest.mark.skipif(not works(), reason="perf_event_open is forbidden here")


@allowed
def test_only_what_lies_between_start_and_stop_is_counted() -> None:
    with counting((TASK_CLOCK, PAGE_FAULTS)) as counter:
        touch(3000)
        counter.start()
        touch(500)
        seen = counter.stop()
        touch(3000)
        counter.start()
        again = counter.stop()
    assert 500 <= seen["faults"] < 1500
    assert again["faults"] < 500
    assert seen["cpu_ns"] > 0


@allowed
def test_threads_that_were_there_before_are_counted_too() -> None:
    begin, done = threading.Event(), threading.Event()

    def wait_and_touch() -> None:
        begin.wait()
        touch(2000)
        done.set()

    thread = threading.Thread(target=wait_and_touch)
    thread.start()
    with counting((PAGE_FAULTS,)) as counter:
        counter.start()
        begin.set()
        done.wait()
        seen = counter.stop()
    thread.join()
    assert seen["faults"] >= 2000


def open_counters() -> int:
    """Descriptors of counters; others come and go with other threads."""
    links = []
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(place))
    return sum("perf_event" in link for link in links)


@allowed
def test_what_the_kernel_refuses_is_known_and_the_rest_counts() -> None:
    before = open_counters()
    with counting((NO_SUCH, TASK_CLOCK)) as counter:
        counter.start()
        time.sleep(0.001)
        seen = counter.stop()
    assert set(counter.refused) == {"nothing"}
    assert set(seen) == {"cpu_ns"}
    assert open_counters() == before, "a counter was left open"


def test_every_event_fills_a_field_and_no_pass_holds_more_than_a_processor_counts() -> None:
    fields = [event.field for events in PASSES for event in events]
    assert set(fields) <= set(HostCounters.model_fields)
    assert len(fields) == len(set(fields))
    assert all(sum(event.type != TASK_CLOCK.type for event in events) <= 4 for events in PASSES)


def test_touching_fresh_memory_costs_faults_and_time() -> None:
    before = usage()
    touch(1000)
    assert usage().faults - before.faults >= 1000
    assert 0 < fault_us() < 1000


@pytest.mark.parametrize(
    ("number", "words", "remedy"),
    [
        (errno.ENOENT, "no hardware counters", ""),
        (errno.EACCES, "", "sysctl kernel.perf_event_paranoid=2"),
        (errno.ENOSYS, "no perf_event_open", ""),
        (errno.EMFILE, "too many threads", "ulimit"),
        (errno.EIO, os.strerror(errno.EIO), ""),
    ],
)
def test_each_refusal_has_its_reason_and_remedy(tmp_path, monkeypatch, number, words, remedy):
    strict = tmp_path / "paranoid"
    strict.write_text("4\n")
    monkeypatch.setattr("kernelwright.tools.profile.host_counters._PARANOID", strict)
    missing = not_counted(number)
    assert words in missing.why
    assert remedy in missing.remedy


def test_a_container_that_forbids_counting_is_told_from_a_strict_kernel(tmp_path, monkeypatch):
    lenient = tmp_path / "paranoid"
    lenient.write_text("2\n")
    monkeypatch.setattr("kernelwright.tools.profile.host_counters._PARANOID", lenient)
    assert "--cap-add PERFMON" in not_counted(errno.EPERM).remedy


def test_readings_follow_from_the_counts_and_symptoms_cite_them() -> None:
    host = HostCounters(
        calls=9, time_ms=1.0, cpu_ns=1e6, cycles=3e6, instructions=1.5e6, branches=2e5,
        branch_misses=4e4, llc_loads=4e5, llc_load_misses=2e5, tlb_loads=5e5, tlb_load_misses=5e4,
        faults=1000, fault_us=0.25, huge_pages="madvise",
    )  # fmt: skip
    evidence = measured_evidence(Profile(candidate="c1", host=host))
    values = {item.name: item.value for item in evidence}
    assert values["instructions_per_cycle"] == pytest.approx(0.5)
    assert values["llc_miss_rate"] == pytest.approx(0.5)
    assert values["missed_bandwidth"] == pytest.approx(2e5 * 64 / 1e-3 / 1e9)
    assert values["tlb_share"] == pytest.approx(1 / 3)
    assert values["misprediction_share"] == pytest.approx(0.2)
    assert values["fault_share"] == pytest.approx(0.25)
    assert values["busy_threads"] == pytest.approx(1.0)
    assert "frontend_share" not in values
    cpu = hardware_profile("h200").model_copy(
        update={"kind": "cpu", "bandwidth_gb_s": 20.0, "cores": 8}
    )
    found = {item.name: item for item in symptoms(evidence, cpu)}
    wanted = {"memory-bound", "TLB-bound", "branch-bound", "page faults", "idle cores"}
    assert wanted <= set(found)
    assert all(found[name].evidence and found[name].points_to for name in wanted)
    assert "transparent huge pages: madvise" in found["page faults"].words
    # Nobody's cores are idle where the threads had work, or where others took the cores away.
    for change in ({"cpu_ns": 7.5e6}, {"preemptions": 2.0}):
        other = Profile(candidate="c1", host=host.model_copy(update=change))
        assert "idle cores" not in {item.name for item in symptoms(measured_evidence(other), cpu)}
