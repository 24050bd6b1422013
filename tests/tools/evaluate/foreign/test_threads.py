"""How threads wait where foreign code is timed: alike on both sides, whatever a person had set."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.foreign.host.guest_process import ASLEEP, Guests
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.evaluate.sandbox.process_tree import tree


async def test_both_sides_wait_alike_and_have_the_threads_that_a_person_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    guests = Guests(tmp_path, "cpu")
    try:
        candidate = await guests.seat("candidate")
        reference = await guests.seat("reference")
        sides = [await of_threads(guest.scratch) for guest in (candidate, reference)]
    finally:
        await guests.aclose()
    assert sides == [{**ASLEEP, "OMP_NUM_THREADS": "3"}] * 2


def test_workers_that_judge_our_own_candidates_wait_as_a_person_has_it(tmp_path: Path) -> None:
    assert not ASLEEP.keys() & worker_environment(tmp_path, {}).keys()
    theirs = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "7"}
    assert theirs.items() <= worker_environment(tmp_path, theirs).items()


async def of_threads(scratch: Path) -> dict[str, str]:
    """What the settings of OpenMP are in the process that runs the code, by the kernel's books."""
    while True:
        for pid in tree(os.getpid()):
            try:
                argv = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
                text = (Path("/proc") / str(pid) / "environ").read_text(encoding="utf-8")
            except OSError:
                continue  # another one, which has just ended
            seen = dict(line.split("=", 1) for line in text.split("\0") if line)
            if argv[0] == sys.executable.encode() and seen.get("HOME") == str(scratch / "home"):
                return {name: value for name, value in seen.items() if "OMP_" in name}
        await asyncio.sleep(0.01)
